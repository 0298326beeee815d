"""What the recipes without a configuration share: training in memory, on sequences in memory."""

from typing import Any

from torch import nn

from ebar.data.corpus import FEW_LOGITS, Corpus, Part
from ebar.journeys.train import train
from ebar.training.course import Training
from ebar.training.optimisers import Adam
from ebar.types import Space


def learn(
    module: nn.Module, data: Part, held_out: Part, *, learning_rate: float, seed: int, objective: Any = None,
    **training: Any,
) -> int:  # fmt: skip
    """Trains a module, by maximum likelihood unless told otherwise; it keeps its best weights. The number of steps.

    The seed decides everything random, dropout too.
    """
    space = getattr(module, "space", Space(2, 1))
    corpus = Corpus(space=space, tokeniser=None, parts={"train": data, "validation": held_out})
    how = Training(**{"clip": 1.0, "held_out_batch": FEW_LOGITS, **training})
    trained = train(
        module, corpus, objective=objective, training=how, optimiser=Adam(learning_rate=learning_rate), seed=seed
    )
    assert trained.result is not None
    return trained.result.position.step
