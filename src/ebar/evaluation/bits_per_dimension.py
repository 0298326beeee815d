"""How well a model predicts images: bits per dimension, a dimension being one channel of one pixel."""

import math

from ebar.evaluation.cross_entropy import cross_entropy, cross_entropy_difference
from ebar.types import Context, Distribution, Estimate, Sequences

LOG_2 = math.log(2)


def bits_per_dimension(model: Distribution, data: Sequences, *, context: Context | None = None) -> Estimate:
    """−log₂ p(x) over the number of tokens, the mean over images; the interval is over the draw of the images.

    With a context (a given part of each image) only what is not given counts.
    """
    return _in_bits(cross_entropy(model, data, context=context).per_token)


def bits_difference(
    model: Distribution, other: Distribution, data: Sequences, *, context: Context | None = None
) -> Estimate:
    """Bits per dimension of a model minus those of another, paired over images."""
    return _in_bits(cross_entropy_difference(model, other, data, context=context))


def _in_bits(nats: Estimate) -> Estimate:
    return nats._replace(value=nats.value / LOG_2, low=nats.low / LOG_2, high=nats.high / LOG_2)
