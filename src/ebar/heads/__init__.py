"""Hidden vectors → scores of the next token."""

from typing import Any

from ebar.heads.mixture import MixtureOfContexts, MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax, WideSoftmax
from ebar.tables import Table

HEADS: Table[Any] = Table(
    "head",
    {
        "softmax": Softmax,
        "mixture_of_softmaxes": MixtureOfSoftmaxes,
        "mixture_of_contexts": MixtureOfContexts,
        "wide_softmax": WideSoftmax,
    },
    given=("vocabulary", "width", "embedding"),
)
