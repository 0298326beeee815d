"""What is learnt, and how: an objective turns a batch into losses, each for one player."""

from ebar.objectives.maximum_likelihood import MaximumLikelihood

# A line here puts an objective in the configuration, the command line and the contract tests.
OBJECTIVES = {"maximum_likelihood": MaximumLikelihood}

__all__ = ["OBJECTIVES", "MaximumLikelihood"]
