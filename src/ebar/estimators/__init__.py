"""Numbers about models, each with its interval.

Exact where it can be (`exact`: enumeration; automata), by Monte Carlo otherwise, and then an `Estimate`. Whatever makes
an estimate doubtful is said in its `warning`, in words, and nowhere else: it is carried with the number to whoever
prints it, and neither lost in a log nor raised as a Python warning.
"""
