"""Hidden vectors → scores of the next token."""

from typing import Any

from ebar.heads.adaptive import AdaptiveSoftmax
from ebar.heads.softmax import Softmax
from ebar.tables import Table

HEADS: Table[Any] = Table(
    "head", {"softmax": Softmax, "adaptive_softmax": AdaptiveSoftmax}, given=("vocabulary", "width", "embedding")
)
