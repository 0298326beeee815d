"""Distillation: π learns in every place what draws that look ahead would choose there, all tokens at once.

It learns from texts that look-ahead has drawn, by their weights, and from texts of its own, which are drawn for several
steps together: that is most of what drawing them costs. Its own texts also show its moments, which are brought to what
was asked for.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from ebar import together
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.features.feature import Features
from ebar.journeys.control.constraints import Constraints
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.maths.randomness import folded
from ebar.models.stepwise import teacher_forced
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.guided import Guided
from ebar.samplers.learning import open_places
from ebar.samplers.look_ahead import ScoredDraws
from ebar.types import Clock, Loss, Sequences

LARGEST = 30.0  # weight of a draw that looks ahead, in means; above, it counts as this (Ionides 2008)
TOGETHER = 8  # steps, for which π's own texts are drawn at once
NEWEST = 0.25  # of what is known of π's moments, the share that comes from its newest texts
PULL = 8.0  # of moments that are not yet what was asked for
EMPHASIS = 20.0  # on places that few of them reach with something left open, at most


class WeighedTexts(NamedTuple):
    """Draws with log P/g."""

    x: Sequences
    log_weights: Float[Tensor, " draws"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshDraws:
    """Batches of draws, none of which comes twice: an epoch is as many as are made together, from a seed of its own."""

    target: Tilted
    ahead: Guided | None  # None: draws of the base
    batch_size: int
    rows: int
    seed: int

    def __len__(self) -> int:
        return max(1, self.rows // self.batch_size)

    @torch.no_grad()
    def at(self, epoch: int, start: int) -> Iterator[WeighedTexts]:
        generator = Generator(device=device_of(self.target.base)).manual_seed(folded(self.seed, epoch))
        n = len(self) * self.batch_size
        if self.ahead is None:
            x, log_q = propose(self.target.base, n, None, generator)
            log_g = log_q
        else:
            x, log_g, log_q = self.ahead.walk(n, generator=generator)
        log_weights = log_q.double() - log_g.double() - measured_energy(self.target.energy, x).double()
        check_weights(log_weights[None])
        for number in range(start, len(self)):
            rows = slice(number * self.batch_size, (number + 1) * self.batch_size)
            yield WeighedTexts(x.select(rows), log_weights[rows])


class Own(NamedTuple):
    """Texts of π, how much each of their places counts, and φ."""

    x: Sequences
    emphasis: Float[Tensor, "texts length"]
    values: Float[Tensor, "texts features"]


class OwnTexts(nn.Module):
    """π's own texts of several steps, and its moments.

    Buffers: give it to a player without optimiser, and checkpoints have them.
    """

    tokens: Tensor
    lengths: Tensor
    emphasis: Tensor
    values: Tensor
    moments: Tensor
    made: Tensor

    def __init__(self, texts: int, length: int, features: int):
        super().__init__()
        self.register_buffer("tokens", torch.zeros(texts, length, dtype=torch.long))
        self.register_buffer("lengths", torch.full((texts,), length))
        self.register_buffer("emphasis", torch.ones(texts, length))
        self.register_buffer("values", torch.zeros(texts, features, dtype=torch.float64))
        self.register_buffer("moments", torch.zeros(2, features, dtype=torch.float64))  # means of φ and φ², smoothed
        self.register_buffer("made", torch.tensor(-1))  # before which step

    def draw(
        self, model: Any, features: Features, step: int, open: Callable[[Sequences], Bool[Tensor, "texts length"]],
        generator: Generator,
    ) -> None:  # fmt: skip
        """New ones, if those that are here are not of this step; `open`: in which places something was left open."""
        if len(self.lengths) == 0 or int(self.made) == step:
            return
        with together.sharing(None), torch.no_grad():  # all of them at once, and alike in all parts of a batch
            x, _ = propose(model, len(self.lengths), None, generator)
        self.tokens.zero_()[:, : x.tokens.shape[1]] = x.tokens
        self.lengths.copy_(x.lengths)
        self.values.copy_(features(x))
        now = torch.stack([self.values.mean(0), self.values.square().mean(0)])
        self.moments.lerp_(now, 1.0 if int(self.made) < 0 else NEWEST)
        texts = self.some(slice(None)).x
        self.emphasis.copy_(emphasis(texts.mask(), open(texts)))
        self.made.fill_(step)

    def some(self, texts: slice) -> Own:
        return Own(Sequences(self.tokens[texts], self.lengths[texts]), self.emphasis[texts], self.values[texts])


def emphasis(
    reached: Bool[Tensor, "texts length"], open: Bool[Tensor, "texts length"]
) -> Float[Tensor, "texts length"]:  # fmt: skip
    """1 where nothing is left open; elsewhere, of the texts that reach this place, how many there are for each that is
    open there, `EMPHASIS` at most.

    A text that has come far without what it must have is rare once most have it early, and it is where π fails: it has
    learnt that the word comes, and not that it is late. So each place counts alike, however few are left.
    """
    return torch.where(open, (reached.sum(0) / open.sum(0).clamp(min=1)).clamp(max=EMPHASIS), 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation:
    """Learns from draws and their weights. With g the proposal that looks ahead, which made them, and w = P/(g·Z),

        ∇KL(p‖π) = −E_g Σₜ { bₜ·Σᵥ g(v|x₍<t₎)·∇log π(v|x₍<t₎) + (w − bₜ)·∇log π(xₜ|x₍<t₎) }

    for every b that is known before xₜ is: here what the weight has come to, which is w once nothing is open. The
    better g foresees, the less is left to the second term; likelihood of the drawn tokens alone, b = 0, has more
    variance.

    Beside them are draws of π itself, `own` in each step. There the second term is 0: where π has gone and p would not
    have, it learns from g how to come back to what must be (Agarwal et al. 2024, arXiv:2306.13649), and b, which may be
    anything here, is `emphasis`. Trap: where g is not p, this part draws π to g. What shows most of it are the shares
    of texts that have a feature, which many places decide by a little each; so to these texts is added the gradient of

        ½·PULL·Σ (wanted − E_π φ)² / spread,    spread = E_π (φ − wanted)², as it is now

    which is 0 at p, as KL(p‖π) is.

    Draws of the base, without look-ahead, are learnt from by their weights alone. `memory` belongs to a player without
    optimiser.
    """

    shares: Constraints  # what some texts are to have; what all must have is left to g
    model: Any  # π
    ahead: Guided | None
    open: Bool[Tensor, "places states"] | None  # where what follows still matters to p, in states of `ahead`
    log_z: float  # of p, from draws of its own
    own: int = 0
    player: str = "model"
    memory: OwnTexts = field(init=False)

    def __post_init__(self) -> None:
        texts = 0 if self.ahead is None else self.own * TOGETHER
        memory = OwnTexts(texts, self.model.space.length, len(self.shares)).to(device_of(self.model))
        object.__setattr__(self, "memory", memory)

    def losses(self, batch: WeighedTexts, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        log_weights = batch.log_weights - self.log_z
        if self.ahead is None:
            log_policy = score(self.model, batch.x)
            value = -(log_weights.exp().to(log_policy) * log_policy).mean()
        else:
            own = self._own(len(log_weights), clock.step, generator)
            value = self._value(self.ahead, batch.x, _cut(log_weights), own)
        metrics = {"effective_sample_size": float(effective_sample_size(log_weights))}
        yield Loss(value, self.player, metrics, weight=float(len(log_weights)))

    def _own(self, n: int, step: int, generator: Generator) -> Own:
        """π's own texts of this step, or this part's share of them."""
        within, features = step % TOGETHER, self.shares.features
        together.once(lambda: self.memory.draw(self.model, features, step - within, self._open, generator))
        first, everywhere = together.place_of(n)
        start, end = (within * self.own + place * self.own // everywhere for place in (first, first + n))
        return self.memory.some(slice(start, end))

    def _open(self, x: Sequences) -> Bool[Tensor, "texts length"]:
        """Whether something was left open before each token."""
        assert self.ahead is not None
        assert self.open is not None
        joint, found, states = torch.zeros_like(x.lengths), [], self.ahead.states
        for place, column in enumerate(states.class_of[x.tokens].unbind(1)):
            found.append(self.open[place, joint])
            joint = states.successor[joint, column]
        return torch.stack(found, 1) & x.mask()

    def _pulls(self, own: Own) -> Float[Tensor, " texts"]:
        """How much likelier each text is to become, for the moments to be what was asked for."""
        mean, square = self.memory.moments
        short = mean.new_tensor([one.moment for one in self.shares]) - mean
        spread = square - mean.square() + short.square()
        pulls: Tensor = (own.values - mean) @ torch.where(spread > 0, short / spread, 0.0)
        return PULL * pulls

    def _value(
        self, ahead: Guided, x: Sequences, weights: Float[Tensor, " draws"], own: Own
    ) -> Float[Tensor, ""]:  # fmt: skip
        """For each draw of g; these alone estimate KL(p‖π) − KL(p‖g)."""
        n = len(weights)
        with torch.no_grad():
            x = Sequences.join([x, own.x])
            log_law, log_so_far = ahead.laws(x)
            so_far = _cut(log_so_far.double() - self.log_z)
            so_far[n:] = own.emphasis[:, : so_far.shape[1]]
            rest = weights[:, None] - so_far[:n]
        tokens = torch.where(x.mask(), x.tokens, 0)
        log_policy = torch.log_softmax(teacher_forced(self.model, tokens), -1)
        gap = torch.where(log_law.isneginf(), 0.0, log_law - log_policy)
        # Of π's own tokens, which g may not have, the gradient alone is of use.
        of_drawn = rest.to(gap) * gap[:n].gather(2, tokens[:n, :, None]).squeeze(2)
        of_own = log_policy[n:].gather(2, tokens[n:, :, None]).squeeze(2)
        pulled = self._pulls(own).to(gap)[:, None] * (of_own.detach() - of_own)
        each = so_far.to(gap) * (log_law.exp() * gap).sum(-1) + torch.cat([of_drawn, pulled])
        return torch.where(x.mask(), each, 0.0).sum(1).mean()


def _cut(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=math.log(LARGEST)).exp()


def distillation(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Any, ahead: Guided | None, drawn: ScoredDraws,
    *, rows: int, seed: int,
) -> tuple[Distillation, FreshDraws]:  # fmt: skip
    """From draws that look ahead or, if the model is to propose, of the model; Z is that of given draws."""
    if tuning.proposal == "policy":
        raise UserError("Distillation needs draws that find p from the start: use --proposal look_ahead or model.")
    log_z = float(log_mean_exp(drawn.log_weights))
    if log_z == -math.inf:
        count = len(drawn.log_weights)
        raise UserError(f"None of {count:,} draws is a text of p: give more --evaluation_draws, or fit with --rounds.")
    ahead = ahead if tuning.proposal == "look_ahead" else None
    open = None if ahead is None else open_places(ahead, target)
    given = tuning.draws if ahead is None else max(1, round((1 - tuning.own) * tuning.draws))
    return (
        Distillation(
            shares=Constraints(one for one in constraints if not one.pointwise),
            model=policy,
            ahead=ahead,
            open=open,
            log_z=log_z,
            own=tuning.draws - given,
        ),
        FreshDraws(target=target, ahead=ahead, batch_size=given, rows=rows, seed=seed),
    )
