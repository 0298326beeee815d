"""The one training loop: a generator of steps, so that everything else is the caller's ordinary code."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from ebar import devices, together
from ebar.errors import UserError, choose
from ebar.maths.rows import Place, process_share
from ebar.together import Parts, Share, Waits
from ebar.training import distributed
from ebar.training.batches import Source
from ebar.training.players import Player, Players
from ebar.training.randomness import capture_dropout, restore_dropout
from ebar.training.sharding import clip_gradients
from ebar.types import Clock, Game, Loss, Objective


class Position(NamedTuple):
    """Where training stands; with the weights and the random state, all that resuming needs."""

    step: int = 0  # completed
    epoch: int = 0  # completed
    taken: int = 0  # batches of the current epoch

    @property
    def clock(self) -> Clock:
        return Clock(self.step, self.epoch)


class Step(NamedTuple):
    """What one step did."""

    position: Position  # from where the next step starts
    metrics: dict[str, float]
    halt: str | None = None  # why a game asks to stop, if it does

    @property
    def number(self) -> int:
        return self.position.step

    @property
    def ends_epoch(self) -> bool:
        return self.position.taken == 0


class NonFiniteError(UserError):
    """A loss or a gradient is infinite or not a number; the player has not been moved by it."""

    def __init__(self, message: str, *, step: int, batch: Any):
        super().__init__(message)
        self.step = step  # the number of the step that could not be taken
        self.batch = batch


def fit(
    objective: Objective,
    batches: Source,
    players: Players,
    *,
    generator: Generator,
    start: Position = Position(),  # noqa: B008 — immutable
    accumulate: int = 1,
    autocast: str | None = None,
) -> Iterator[Step]:
    """Steps without end: stop iterating to stop training.

    A step takes one batch, and one optimiser step for each loss the objective yields, in order, so that a
    later loss sees what the earlier ones have moved. A loss reaches its own player's parameters only. The
    batch is cut into `accumulate` parts per process, which changes memory, not the result: gradients add up to
    those of Σ w·L / Σ w over all parts of all processes. The batch of a `Game` is not cut. `autocast` names the device
    on which losses are computed with matrix products in bfloat16; weights and what is measured stay as they are.
    """
    for player in players.values():
        player.module.train()
    position = start
    for batch, epoch, taken in _stream(batches, start):
        metrics = _take_step(objective, batch, players, position.clock, accumulate, generator, autocast)
        position = Position(position.step + 1, epoch, taken)
        yield Step(position, metrics, objective.after_step(metrics) if isinstance(objective, Game) else None)


def _stream(batches: Source, start: Position) -> Iterator[tuple[Any, int, int]]:
    """Each batch, with where the epochs stand after it. One ahead: an epoch's end is known at its last batch."""
    epoch, taken, end = start.epoch, start.taken, object()
    while True:
        iterator = iter(batches.at(epoch, taken))
        batch = next(iterator, end)
        if batch is end:
            raise UserError(f"The training data has no batch number {taken} in epoch {epoch}: it is empty or was cut.")
        while batch is not end:
            following = next(iterator, end)
            epoch, taken = (epoch + 1, 0) if following is end else (epoch, taken + 1)
            yield batch, epoch, taken
            batch = following


def _take_step(
    objective: Objective, batch: Any, players: Players, clock: Clock, accumulate: int, generator: Generator,
    autocast: str | None,
) -> dict[str, float]:  # fmt: skip
    if isinstance(objective, Game):
        shares: list[tuple[Any, Place | None]] = [(batch, None)]
    else:
        shares = process_share(batch, rank=distributed.rank(), ranks=distributed.world_size(), parts=accumulate)
    common = Parts(len(shares))
    compute = partial(_computed, players=players, autocast=autocast)
    parts = [
        _Part(partial(objective.losses, part, clock, generator=generator), place, number, common, compute)
        for number, (part, place) in enumerate(shares)
    ]
    metrics: dict[str, float] = {}
    # Part by part, not all losses first: only one part's graph is alive at a time.
    while (first := _first_loss(parts, common)) is not None:
        player = choose(players, first.player, "player")
        name = "" if sum(each.optimiser is not None for each in players.values()) == 1 else f"{first.player}."
        means, norm = _accumulate(first, parts, player, first.player)
        for what, number in {**means, "gradient_norm": norm}.items():
            metrics[name + what] = number
            if not math.isfinite(number) and what in ("loss", "gradient_norm"):
                _clear(player)
                message = f"The {(name + what).replace('_', ' ')} is {number} in step {clock.step + 1}"
                message += ": lower the learning rate, clip gradients, or look at the batch."
                raise NonFiniteError(message, step=clock.step + 1, batch=batch)
        metrics[f"{name}learning_rate"] = player.set_learning_rate(clock, first.rate)
        assert player.optimiser is not None
        player.optimiser.step()
        _clear(player)
    if any(part.next() is not None for part in parts[1:]):
        raise ValueError("one part of a batch has more losses than another")
    for player in players.values():
        if player.sharded is not None:
            player.sharded.put_away()
    return metrics


class _Part:
    """One part of a batch: its losses as they come."""

    def __init__(
        self, losses: Callable[[], Iterator[Loss]], place: Place | None, number: int, common: Parts,
        compute: Callable[..., Loss | None],
    ):  # fmt: skip
        self.losses, self.place, self.number, self.common, self.compute = losses, place, number, common, compute
        self.counted = float(place is None or place.counted)
        self.taken = 0
        self.random: list[Tensor] | None = None  # torch's own state when it was first begun
        self.begun: Iterator[Loss] | None = None

    def next(self) -> Loss | Waits | None:
        """The next loss, if it does not depend on parts that have not come as far."""
        if self.begun is None:
            self._begin()
        assert self.begun is not None
        found: Loss | Waits | None = self.compute(partial(_next, self.begun), self.share)
        if not isinstance(found, Waits):
            self.taken += 1
        elif self.taken:
            raise ValueError("what is joined over a batch belongs to the first loss of an objective")
        else:
            self.begun = None
        return found

    def _begin(self) -> None:
        self.share = None if self.place is None else Share(self.place, self.number, self.common)
        if self.common.number > 1:
            # Dropout drops the same when the part is computed once more.
            if self.random is None:
                self.random = capture_dropout()
            else:
                restore_dropout(self.random)
        self.begun = self.losses()


def _next(losses: Iterator[Loss]) -> Loss | Waits | None:
    """An answer in any case: layers whose weights are spread over processes want to end what they have begun."""
    try:
        return next(losses, None)
    except Waits:
        return Waits()  # without what it was raised in, which holds tensors


def _first_loss(parts: list[_Part], common: Parts) -> Loss | None:
    """The first part's next loss. As long as it waits for what is joined, all parts are brought as far as it is."""
    while isinstance(found := parts[0].next(), Waits):
        with torch.no_grad():
            for part in parts[1:]:
                part.next()
        common.join()
    return found


def _computed(
    compute: Callable[[], Any], share: Share | None, *, players: Players, autocast: str | None = None
) -> Any:  # fmt: skip
    """What is computed of one part, under autocast where that is wanted; gradients are the caller's."""

    def computed() -> Any:
        with devices.autocast(autocast), together.sharing(share):
            return compute()

    for player in players.values():
        if player.sharded is not None:
            computed = partial(player.sharded, computed)
    return computed()


def _accumulate(first: Loss, parts: list[_Part], player: Player, name: str) -> tuple[dict[str, float], float]:
    """Leaves the player with the (clipped) gradient of the mean loss; returns the means, and the norm unclipped."""
    parameters = player.parameters()
    if not parameters:
        raise ValueError(f"a loss is for player {name!r}, which has no optimiser")
    alone = len(parts) == 1 and distributed.world_size() == 1
    _clear(player)
    sums: dict[str, float] = {}
    total = 0.0
    for number, part in enumerate(parts):
        loss = first if number == 0 else part.next()
        if not isinstance(loss, Loss) or loss.player != name:
            raise ValueError(f"one part of a batch has a loss for player {name!r} where another has not")
        weight = 1.0 if alone else part.counted * loss.weight
        # What is spread has its gradient by way of the whole weights, which are not among the parameters.
        torch.autograd.backward(loss.value * weight, inputs=None if player.sharded else parameters)
        for key, value in {"loss": float(loss.value.detach()), **loss.metrics}.items():
            sums[key] = sums.get(key, 0.0) + (weight * value if weight else 0.0)
        total += weight
    if not alone:
        distributed.add_gradients(parameter for parameter in parameters if not together.is_share(parameter))
        total, *added = distributed.add([total, *sums.values()])
        sums = {key: value / total for key, value in zip(sums, added, strict=True)}
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= total
    return sums, clip_gradients(parameters, player.clip_norm)


def _clear(player: Player) -> None:
    for parameter in player.parameters():
        parameter.grad = None


def evaluate_objective(objective: Objective, batches: Source, *, generator: Generator) -> dict[str, float]:
    """The objective's losses and metrics over one epoch, Σ w·L / Σ w: exact over tokens where w counts tokens.

    Each process takes its share of each batch. It neither changes modes nor stops gradients: `evaluating` does.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for batch in batches.at(0, 0):
        for part, place in process_share(batch, rank=distributed.rank(), ranks=distributed.world_size(), parts=1):
            share = None if place is None or isinstance(objective, Game) else Share(place)
            counted = float(place is None or place.counted)
            losses = objective.losses(part, Clock(0, 0), generator=generator)
            while isinstance(loss := _computed(partial(_next, losses), share, players={}), Loss):
                weight = counted * loss.weight
                name = "" if loss.player == "model" else f"{loss.player}."
                for key, value in {"loss": float(loss.value.detach()), **loss.metrics}.items():
                    sums[name + key] = sums.get(name + key, 0.0) + (weight * value if weight else 0.0)
                    weights[name + key] = weights.get(name + key, 0.0) + weight
    totals = distributed.add([*sums.values(), *weights.values()])
    return {name: totals[at] / totals[at + len(sums)] for at, name in enumerate(sums)}
