"""Hidden vectors → scores of the next token."""

from typing import Any

from ebar.heads.adaptive import AdaptiveSoftmax
from ebar.heads.logistic_mixture import LogisticMixture
from ebar.heads.mixture import MixtureOfContexts, MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax, WideSoftmax
from ebar.tables import Table

HEADS: Table[Any] = Table(
    "head",
    {
        "softmax": Softmax,
        "adaptive_softmax": AdaptiveSoftmax,
        "mixture_of_softmaxes": MixtureOfSoftmaxes,
        "mixture_of_contexts": MixtureOfContexts,
        "wide_softmax": WideSoftmax,
        "logistic_mixture": LogisticMixture,
    },
    given=("vocabulary", "width", "embedding"),
)
