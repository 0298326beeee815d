"""Every sequence of a small space: what a number about a model is compared with."""

from ebar.maths.enumeration import all_sequences
from ebar.types import Context, Sequences, Space, context_rows


def whole_space(space: Space, context: Context | None = None) -> Sequences:
    """Every sequence of the space, once for each row of the context, context-major."""
    everything = all_sequences(space)
    rows = context_rows(context)
    return Sequences(everything.tokens.repeat(rows, 1), everything.lengths.repeat(rows))
