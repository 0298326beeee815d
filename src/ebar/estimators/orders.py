"""The log-probability of a text in the orders in which its tokens may come: the mean over orders, with an interval."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators.log_z import log_mean
from ebar.maths.jackknife import half_width
from ebar.maths.randomness import default_generator
from ebar.models.stepwise import ByChainRule
from ebar.models.tilted import reading_of_model, score
from ebar.types import Context, Distribution, Estimate, Sequences


class Orders(NamedTuple):
    """Permutations of the tokens to come, all of them or some drawn at random."""

    numbers: Int[Tensor, "orders coming"]
    all: bool

    @staticmethod
    def of(coming: int, most: int, generator: Generator) -> "Orders":
        """Each order once where there are at most so many, else that many independent ones."""
        if most < 1:
            raise UserError(f"At least one order is needed, not {most}.")
        if coming <= 12 and math.factorial(coming) <= most:
            return Orders(torch.tensor(list(itertools.permutations(range(coming)))).view(-1, coming), True)
        drawn = torch.rand(most, coming, dtype=torch.float64, generator=generator, device=generator.device)
        return Orders(drawn.argsort(1).cpu(), False)


@torch.no_grad()
def log_probs_by_order(
    model: Distribution, x: Int[Tensor, "rows coming"], context: Context, orders: Orders
) -> Float[Tensor, "orders rows"]:
    """log p(x | C) of each row, its tokens coming in each of the orders. The context has one row; its own order says
    where each token of x stands."""
    if context.rows != 1 or context.order is None:
        raise ValueError("one context with an order is needed")
    given = int(context.given.lengths)
    before, places = context.order[0, :given], context.order[0, given : given + x.shape[1]]
    numbers = orders.numbers.to(places.device)
    each = Context(context.given.repeat(len(numbers)), torch.cat([before.expand(len(numbers), -1), places[numbers]], 1))
    rows = x[:, numbers].transpose(0, 1).flatten(0, 1)
    lengths = torch.full((len(rows),), x.shape[1], device=rows.device)
    return score(model, Sequences(rows, lengths), each).double().view(len(numbers), len(x)).cpu()


def over_orders(
    log_probs: Float[Tensor, " orders"], *, exact: bool, mixture: bool = False, level: float = 0.95
) -> Estimate:
    """The mean over orders; with `mixture` the logarithm of the mean probability. Exact where these are all orders."""
    n = len(log_probs)
    if exact:
        total = torch.logsumexp(log_probs, 0) - math.log(n) if mixture else log_probs.mean()
        return Estimate.exact(float(total))
    if mixture:
        return log_mean(log_probs[None], level=level)[0].estimate
    value, width = float(log_probs.mean()), float(half_width(-log_probs / max(n - 1, 1), level))
    warning = "one order alone does not tell how much orders differ" if n == 1 else None
    return Estimate(value, value - width, value + width, float(n), warning, level)


def order_log_probs(
    model: ByChainRule,
    text: str | Sequence[int],
    *,
    given: Sequence[int] = (),
    orders: int = 64,
    mixture: bool = False,
    level: float = 0.95,
    generator: Generator | None = None,
) -> Estimate:
    """log p(text) of a model of any order, averaged over the orders in which its tokens may come; nats for all of it.

    `given` are the places of tokens that are known beforehand, and not scored. Where there are at most `orders` orders
    all are taken, and the number is exact; else the interval is over that many drawn at random, each as likely as any
    other. The mean of log p is what permutation language modelling maximises (Yang et al. 2019); with `mixture` it is
    log of the mean of p, the log-probability under a model that draws an order first. It is never below the mean.
    """
    distribution: Any = model
    if not isinstance(distribution, Distribution) or not distribution.space.any_order:
        raise UserError("This model reads from left to right only: take a model of any order, such as xlnet.")
    if isinstance(text, str):
        reading = reading_of_model(model)
        if reading is None or reading.encode is None:
            raise UserError("This model does not know how text becomes tokens: give tokens, or a model made for data.")
        text = reading.encode(text)
    tokens, known = [int(token) for token in text], sorted({int(place) for place in given})
    if known and not 0 <= known[0] <= known[-1] < len(tokens):
        raise UserError(f"The given places must lie in the text, which has places 0 to {len(tokens) - 1}.")
    coming = [place for place in range(len(tokens)) if place not in set(known)]
    if not coming:
        raise UserError("No token of the text is to come, so there is nothing to score: give fewer of them.")
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    whole = torch.tensor(tokens, device=device)
    generator = default_generator() if generator is None else generator
    chosen = Orders.of(len(coming), orders, generator)
    context = Context(
        Sequences(whole[known][None], torch.tensor([len(known)], device=device)),
        torch.tensor([known + coming], device=device),
    )
    found = log_probs_by_order(distribution, whole[coming][None], context, chosen)[:, 0]
    return over_orders(found, exact=chosen.all, mixture=mixture, level=level)
