"""What must come after x: P(x|C) = q(x, suffix | C), so that Z(C) is the probability of the suffix in its place.

A reward of texts as an energy: p ∝ q·e^(r/β) is the π that maximises E_π[r] − β·KL(π‖q).

The most there is to be had is β·log Z, and KL(p‖q) = E_p[r]/β − log Z.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.features.functions import TextScore
from ebar.types import Context, Energy, Sequences, State, Stepwise, context_rows, draws_per_context

ELEMENTS = 2**24  # logits computed at a time


class Suffix(nn.Module):
    """E(x, C) = −log q(suffix | C, x), to which the energies `beside` it are added.

    The tilted model p(x|C) ∝ q(x|C)·q(suffix|C, x) is q's own law of what stands between prompt and suffix. The suffix
    is given in tokens: spelt with other tokens it is another. x has a fixed number of tokens: after an end nothing
    can come.
    """

    def __init__(self, model: Stepwise, suffix: list[int], *beside: Energy):
        super().__init__()
        if model.space.end is not None:
            raise UserError("A suffix comes after texts of a fixed number of tokens: let them have no end.")
        if not suffix:
            raise UserError("A suffix has one token or more: leave it out where nothing must follow.")
        self.model, self.beside = model, beside
        self.tokens: Tensor
        self.register_buffer("tokens", torch.tensor(suffix))

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        batch, count = len(x.lengths), len(self.tokens)
        draws = draws_per_context(batch, context)
        first, state = self.model.start(context_rows(context), context)  # each context is read once
        length = int(x.lengths.max()) if batch else 0
        if bool((x.lengths != length).any()):
            raise ValueError("a suffix comes after texts of one length")
        whole = torch.cat([x.tokens[:, :length], self.tokens.to(x.tokens).expand(batch, -1)], 1)  # no padding between
        size = max(1, ELEMENTS // (whole.shape[1] * self.model.space.vocabulary))
        parts = [
            self._log_prob(whole[rows], first[rows // draws], state.select(rows // draws), count)
            for rows in torch.split(torch.arange(batch, device=first.device), size)
        ]
        energy = -torch.cat(parts) if parts else first.new_zeros(0)
        for other in self.beside:
            energy = energy + other(x, context)
        return energy

    def _log_prob(
        self, whole: Int[Tensor, "rows length"], first: Float[Tensor, "rows vocabulary"], state: State, count: int
    ) -> Float[Tensor, " rows"]:
        logits = first[:, None]
        if whole.shape[1] > 1:
            logits = torch.cat([logits, self.model.advance(whole[:, :-1], state)[0]], 1)
        log_probs = torch.log_softmax(logits[:, -count:].double(), -1)
        return log_probs.gather(2, whole[:, -count:, None]).sum((1, 2))


class Reward:
    """E(x) = −r(x)/β, for a function of a list of texts that gives a number for each.

    A reward of −∞ forbids a text; NaN and +∞ are refused, as there is no p then. The function is given the text that
    the model's tokens spell, after what the reading has `before`.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[float]], beta: float, reading: Reading):
        if not (beta > 0 and math.isfinite(beta)):
            raise UserError(f"beta is what a nat of KL costs in reward, a number above 0, not {beta:g}.")
        self.beta = beta
        self.score = TextScore(function, low=-math.inf, high=math.inf).bind(reading)

    def rewards(self, x: Sequences) -> Float[Tensor, " batch"]:
        """r of each text, in float64."""
        values = self.score(x)
        wrong = (values.isnan() | values.isposinf()).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise UserError(
                f"The reward of {self.score.decode(x.prefix(row)) if self.score.decode else row!r} is "
                f"{float(values[row])}: let the function give a number, or −inf for what must not be."
            )
        return values

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return -self.rewards(x) / self.beta
