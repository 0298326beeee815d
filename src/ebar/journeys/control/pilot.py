"""The learning rate that a pilot finds best: a few steps with each, as tuning makes them, on texts of their own."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.samplers.look_ahead import ScoredDraws
from ebar.training.batches import Source
from ebar.training.optimisers import Cosine
from ebar.types import Clock, Objective

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # tried in this order, until one is worse than the best before it
STEPS = 30  # with each of them


def searched_rate(
    policy: nn.Module, make: Callable[[], tuple[Objective, Source]], drawn: ScoredDraws, *, rows: int, seed: int,
    clip: float | None, rates: Sequence[float] = RATES, steps: int = STEPS,
) -> float:  # fmt: skip
    """The learning rate with which a few steps bring π nearest to p, from the same weights each time.

    The steps are those of an objective and a source that `make` makes anew, and the rate rises and falls over them as
    it will: at a rate that stays, so few steps would always favour one that is too low to get far. How near π is, is
    the mean of −log π under p, on given draws. The smallest rate where none helps. π is left as it was.
    """
    learns = [weight for weight in policy.parameters() if weight.requires_grad]
    first = [weight.detach().clone() for weight in learns]
    shares = torch.softmax(drawn.log_weights, 0)
    model: Any = policy

    @torch.no_grad()
    def distance() -> float:
        places = torch.split(torch.arange(len(shares)), rows)
        log_policy = torch.cat([model.log_prob(drawn.x.select(part)).double().cpu() for part in places])
        return float(-torch.where(shares > 0, shares * log_policy, 0.0).sum())

    if not bool((drawn.log_weights > -math.inf).any()):
        return min(rates)
    best, found = distance(), min(rates)
    for rate in sorted(rates):
        reached = distance() if _learnt(learns, *make(), rate, steps, clip, seed) else math.inf
        with torch.no_grad():
            for weight, was in zip(learns, first, strict=True):
                weight.copy_(was)
                weight.grad = None
        if reached < best:
            best, found = reached, rate
        elif rate > found:
            break
    return found


def _learnt(
    learns: list[nn.Parameter], objective: Objective, source: Source, rate: float, steps: int, clip: float | None,
    seed: int,
) -> bool:  # fmt: skip
    """Whether all steps could be made; a rate that is too high may end in numbers that are none."""
    optimiser, schedule = torch.optim.Adam(learns, lr=rate), Cosine(steps=steps, warmup=steps // 5)
    generator = Generator(device=learns[0].device).manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of draws that are worth little: tuning itself will say so
        for step, batch in zip(range(steps), _endless(source), strict=False):
            try:
                for loss in objective.losses(batch, Clock(step, 0), generator=generator):
                    if not math.isfinite(float(loss.value.detach())):
                        return False
                    optimiser.zero_grad()
                    torch.autograd.backward(loss.value, inputs=learns)
            except UserError:  # a policy that was thrown far off makes what p cannot weigh, or nothing that p wants
                return False
            if clip is not None:
                nn.utils.clip_grad_norm_(learns, clip)
            for group in optimiser.param_groups:
                group["lr"] = rate * schedule.factor(Clock(step, 0))
            optimiser.step()
    return True


def _endless(source: Source) -> Iterator[Any]:
    epoch = 0
    while True:
        yield from source.at(epoch, 0)
        epoch += 1
