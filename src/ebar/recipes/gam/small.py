"""What the small recipes share: training in memory with early stopping."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import Generator, nn

from ebar.training import OPTIMISERS, Batches, Best, Patience, Player, evaluating, fit, measure
from ebar.types import Objective


def fit_early(
    module: nn.Module, objective: Objective, data: Any, held_out: Any, *, batch_size: int, epochs: int, patience: int,
    learning_rate: float, seed: int, generator: Generator, parameters: Sequence[nn.Parameter] | None = None,
) -> int:  # fmt: skip
    """Train until `patience` epochs bring nothing on held-out data; the module keeps its best weights.

    Gives the number of epochs that were best, 0 where the first weights were: noise has nothing to be learnt from.
    """
    optimiser = OPTIMISERS["adam"](learning_rate=learning_rate).build(parameters or module.parameters())
    player = Player(module=module, optimiser=optimiser, clip_norm=1.0)
    batches = Batches(data=data, batch_size=batch_size, seed=seed)
    validation = Batches(data=held_out, batch_size=1024, shuffle=False)

    def figure() -> float:
        with evaluating(player):
            # The same draws each time, where an objective draws: epochs are compared, not luck.
            return measure(objective, validation, generator=Generator().manual_seed(seed))["loss"]

    best, kept = Best().update(figure(), 0), copy.deepcopy(module.state_dict())
    stop = Patience(evaluations=patience)
    for step in fit(objective, batches, {"model": player}, generator=generator):
        if not step.ends_epoch:
            continue
        best = best.update(figure(), step.position.epoch)
        if best.step == step.position.epoch:
            kept = copy.deepcopy(module.state_dict())
        if step.position.epoch >= epochs or stop.exhausted(best):
            break
    module.load_state_dict(kept)
    module.eval()
    return best.step or 0
