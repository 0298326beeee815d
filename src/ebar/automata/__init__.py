"""Exact languages: automata from motifs and regular expressions, and the distributions built on them."""
