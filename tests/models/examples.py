"""Small models of every kind, with everything about them known by enumeration."""

from typing import Any

import torch
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.types import Context, Sequences, Space

ENDING = Space(vocabulary=3, length=5, end=2)
FIXED = Space(vocabulary=3, length=4)
SPACES = {"ending": ENDING, "fixed": FIXED}
MODELS = ["lstm one-hot", "lstm embedding", "tabular"]


def lstm(space: Space, *, embedding: int | None = None, dtype: torch.dtype = torch.float64, dropout: float = 0.2,
         layers: int = 2, hidden: int = 7) -> Any:  # fmt: skip
    torch.manual_seed(3)
    backbone = Lstm(space.vocabulary, layers=layers, hidden=hidden, dropout=dropout, embedding=embedding)
    model: Any = Autoregressive(backbone, Softmax(hidden, space.vocabulary), space).to(dtype).eval()
    with torch.no_grad():  # far from uniform, and the past matters
        for parameter in model.parameters():
            parameter.mul_(3)
        model.head.linear.weight.mul_(4)
    return model


def model_of(kind: str, space: Space, dtype: torch.dtype, generator: Generator) -> Any:
    if kind == "tabular":
        return Tabular.random(space, conditions=3, scale=2.0, dtype=dtype, generator=generator)
    return lstm(space, embedding=4 if kind == "lstm embedding" else None, dtype=dtype)


def three_contexts() -> Context:
    """Prefixes of unequal lengths; their first tokens are the conditions of a tabular model."""
    tokens = torch.tensor([[0, 99, 99, 99], [1, 0, 99, 99], [2, 1, 0, 1]])
    return Context(Sequences(tokens, torch.tensor([1, 2, 4])))
