"""What a look-ahead has missed, learnt from the model's own hidden state: h becomes h·exp c.

The automaton and an n-gram know where a feature stands, and nothing of what the text is about. The hidden state does.
c(hidden, v, time left) = z·(output vector of v) + a, with z and a from a small network, so that one product gives all
tokens. It is fitted by Poisson regression: where r is a noisy figure of what e^c should be, the mean of e^c − r·c is
least where e^c = E[r | hidden, v]. However wrong c is, weights stay exact: it only moves the proposal.

r is a mixture of two figures of what a text is worth from a place on: what became of it, which is unbiased and has
much variance, and what the proposal that drew it foresaw one token later, which has little. Temporal differences,
Sutton 1988.

Draws of a proposal with what the base thought on the way, kept to learn from: in this round and in later ones.
"""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from ebar.bounds import Amount, Count, NonNegative, at_least, check
from ebar.samplers.guided_states import JointStates
from ebar.types import Sequences

RISING = 0.15  # of the steps of a fit: the rate goes up, and then down to 0
FORGOTTEN = 1e-6  # a deviation below this: the number is the same in all examples


class Correction(nn.Module):
    """c, between −`bound` and `bound`, and 0 before it has learnt anything.

    `output`: one vector for each token, which stay as they are. What the network reads besides the hidden vector: the
    share of the places that are left, and φ of the followed features, were the text to stop here.
    """

    def __init__(
        self, output: Float[Tensor, "vocabulary size"], width: int, features: int, *, units: int = 128,
        bound: float = 8.0, generator: Generator,
    ):  # fmt: skip
        super().__init__()
        vectors = output.detach().float()
        spread = vectors.std().clamp(min=FORGOTTEN) * math.sqrt(vectors.shape[1])
        self.register_buffer("vectors", (vectors - vectors.mean(0)) / spread, persistent=False)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.bound = bound
        layers = [_linear(width + 1 + features, units, generator), _linear(units, units, generator)]
        last = _linear(units, vectors.shape[1] + 1, None)
        self.network = nn.Sequential(layers[0], nn.SiLU(), layers[1], nn.SiLU(), last)
        self.to(output.device)

    vectors: Tensor
    mean: Tensor
    deviation: Tensor

    def standardise(self, hidden: Float[Tensor, "examples width"]) -> None:
        """Takes mean and deviation of the hidden vectors from examples."""
        self.mean.copy_(hidden.mean(0))
        self.deviation.copy_(hidden.std(0).nan_to_num(nan=1.0).clamp(min=FORGOTTEN))

    def forward(
        self, hidden: Float[Tensor, "*batch width"], left: Float[Tensor, "*batch"],
        accepted: Float[Tensor, "*batch features"],
    ) -> Float[Tensor, "*batch size_and_one"]:  # fmt: skip
        """z and a, from which `all` and `of` make c."""
        known = [((hidden.float() - self.mean) / self.deviation).clamp(-10, 10), left[..., None].float()]
        found: Tensor = self.network(torch.cat([*known, accepted.float()], -1))
        return found

    def all(self, found: Float[Tensor, "*batch size_and_one"]) -> Float[Tensor, "*batch vocabulary"]:
        """c of every token."""
        return self._bounded(found[..., :-1] @ self.vectors.T + found[..., -1:])

    def of(
        self, found: Float[Tensor, "*batch size_and_one"], tokens: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:  # fmt: skip
        """c of one token in each row."""
        return self._bounded((found[..., :-1] * self.vectors[tokens]).sum(-1) + found[..., -1])

    def _bounded(self, c: Tensor) -> Tensor:
        return self.bound * torch.tanh(c / self.bound)


def _linear(inputs: int, outputs: int, generator: Generator | None) -> nn.Linear:
    """A layer whose weights come from the generator, or are 0 without one; torch's own state stays as it was."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    nn.init.zeros_(layer.bias)
    if generator is None:
        nn.init.zeros_(layer.weight)
    else:
        weights = torch.randn(layer.weight.shape, generator=generator, device=generator.device)
        layer.weight.data.copy_(weights / math.sqrt(inputs))
    return layer


class Examples(NamedTuple):
    """Places of drawn texts where something was left open, and what became of them."""

    hidden: Float[Tensor, "examples width"]
    left: Float[Tensor, " examples"]
    accepted: Float[Tensor, "examples features"]
    token: Int[Tensor, " examples"]
    log_ratio: Float[Tensor, " examples"]  # log r: the future weight over what h foresaw

    def select(self, rows: Tensor) -> "Examples":
        return Examples(*(part[rows] for part in self))

    @staticmethod
    def join(parts: "list[Examples]") -> "Examples":
        return Examples(*(torch.cat(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """How c is fitted to examples: a number of steps of Adam, whose rate rises at first and then falls to 0.

    Trap: what noise is left in c costs effective samples in every place of a text, so many steps, or a rate that does
    not fall, do harm.
    """

    units: Count = 128
    """Of the network's two layers."""
    bound: Amount = 8.0
    """Largest |c|."""
    largest: Amount = 100.0
    """Ratios above this count as this, which biases c, never the weights."""
    learning_rate: Amount = 4e-3
    """Of Adam, at its highest."""
    decay: NonNegative = 1e-3
    """Of the weights."""
    steps: Annotated[int, at_least(2)] = 400
    """Of Adam, at most."""
    epochs: Count = 6
    """At most: times that it goes over the examples."""
    batch_size: Count = 1024
    """Examples in a step, at most; a fiftieth of all if that is less."""

    def __post_init__(self) -> None:
        check(self)

    @torch.enable_grad()
    def fit(self, correction: Correction, examples: Examples, *, generator: Generator) -> None:
        """Moves c, which is 0 before, towards the examples; without any it stays 0."""
        count = len(examples.token)
        if count == 0:
            return
        correction.standardise(examples.hidden.float())
        size = min(self.batch_size, max(1, count // 50))
        steps = max(2, min(self.steps, self.epochs * count // size))
        optimiser = torch.optim.AdamW(correction.parameters(), lr=self.learning_rate, weight_decay=self.decay)
        rates = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, self.learning_rate, total_steps=steps, pct_start=RISING, cycle_momentum=False
        )
        order = torch.empty(0, dtype=torch.long, device=generator.device)
        for _ in range(steps):
            if len(order) == 0:
                order = torch.randperm(count, generator=generator, device=generator.device)
            rows, order = order[:size], order[size:]
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(self.loss(correction, examples.select(rows.to(examples.token.device))))
            optimiser.step()
            rates.step()

    def loss(self, correction: Correction, examples: Examples) -> Float[Tensor, ""]:
        """Mean of e^c − r·c."""
        found = correction(examples.hidden, examples.left, examples.accepted)
        c = correction.of(found, examples.token)
        ratio = examples.log_ratio.exp().clamp(max=self.largest).to(c.dtype)
        return (c.exp() - ratio * c).mean()


LARGEST = 2**28  # bytes of hidden vectors that one round keeps: beyond, places are left out at random


class Kept(NamedTuple):
    """Places of texts that one proposal drew, and what each text is worth after each of its tokens.

    The future weight of the place t is e^−E(x)·Π_{s>t} q/g, g being what drew the rest. Its mean, given all up to
    this token, is E_q[e^−E], whichever proposal drew. So is that of N, the sum over the next token v of q(v)·h·e^c,
    where the proposal foresees rightly. Where a share α of each next step is taken from N, the figure is

        Σₙ (1 − α)ⁿ·Π_{t<s≤t+n} (q/g)·α·N_{t+n+1}  +  (1 − α)^left·Π_{s>t} (q/g)·e^−E,

    whose first part is `log_foreseen`, and whose second is `log_rest` but for the energy.
    """

    x: Sequences
    text: Int[Tensor, " places"]  # the row of x
    place: Int[Tensor, " places"]
    hidden: Float[Tensor, "places width"]  # before the token was chosen
    joint: Int[Tensor, " places"]  # where the automata stood then
    token: Int[Tensor, " places"]
    log_foreseen: Float[Tensor, " places"]
    log_rest: Float[Tensor, " places"]

    def examples(
        self, states: JointStates, log_ahead: Float[Tensor, "places states"], open: Bool[Tensor, "places states"],
        log_weight: Float[Tensor, " texts"],
    ) -> Examples:  # fmt: skip
        """What became of each place where something was open, beside what h foresaw; `log_weight`: −E of the texts."""
        after = states.successor[self.joint, states.class_of[self.token]]
        matters = open[self.place + 1, after]
        if states.space.end is not None:
            matters = matters & (self.token != states.space.end)
        chosen = matters.nonzero()[:, 0]
        log_h = log_ahead[self.place + 1, after][chosen]
        log_future = torch.logaddexp(self.log_foreseen, log_weight[self.text] + self.log_rest)[chosen]
        # Where h is 0 nothing that follows is allowed, and the weight is 0 too.
        log_ratio = torch.where(log_h.isneginf(), -torch.inf, log_future - log_h)
        return Examples(
            self.hidden[chosen],
            1 - self.place[chosen] / states.space.length,
            states.accepted.T[self.joint[chosen]],
            self.token[chosen],
            log_ratio,
        )


class Trace:
    """Records a walk, block by block. `foresight` is α of `Kept`; 0: nothing is taken from what was foreseen."""

    def __init__(self, generator: Generator, *, foresight: float = 0.0):
        self.generator = generator
        self.foresight = foresight
        self.blocks: list[Kept] = []
        self._places: list[tuple[Tensor, ...]] = []

    def add(
        self, alive: Int[Tensor, " rows"], hidden: Float[Tensor, "rows width"] | None, joint: Int[Tensor, " rows"],
        token: Int[Tensor, " rows"], log_ratio: Float[Tensor, " rows"], log_n: Float[Tensor, " rows"], place: int,
    ) -> None:  # fmt: skip
        """One place of the rows that have not ended.

        `log_ratio` is log q − log g of the token drawn, `log_n` what the proposal foresaw before it was drawn.
        """
        assert hidden is not None
        at = torch.full_like(alive, place)
        self._places.append((alive, at, hidden, joint, token, log_ratio.double(), log_n.double()))

    def finish(self, x: Sequences) -> None:
        """The block is drawn."""
        text, place, hidden, joint, token, log_ratio, log_n = (
            torch.cat(part) for part in zip(*self._places, strict=True)
        )  # fmt: skip
        self._places = []
        ratios, ns = torch.zeros(2, *x.tokens.shape, dtype=torch.float64, device=token.device)
        ratios[text, place], ns[text, place] = log_ratio, log_n
        foreseen, rest = (grid[text, place] for grid in _futures(ratios, ns, x.lengths, self.foresight))
        kept = Kept(x, text, place, hidden, joint, token, foreseen, rest)
        most = max(1, LARGEST // (4 * hidden.shape[1]))
        if len(text) > most:
            order = torch.randperm(len(text), generator=self.generator, device=self.generator.device)
            some = order[:most].sort().values.to(text.device)
            kept = Kept(x, *(part[some] for part in kept[1:]))
        self.blocks.append(kept)


def _futures(
    log_ratio: Float[Tensor, "texts length"], log_n: Float[Tensor, "texts length"], lengths: Int[Tensor, " texts"],
    foresight: float,
) -> tuple[Float[Tensor, "texts length"], Float[Tensor, "texts length"]]:  # fmt: skip
    """`log_foreseen` and `log_rest` of all places, from the last to the first."""
    log_taken = math.log(foresight) if foresight else -math.inf
    log_left = math.log1p(-foresight) if foresight < 1 else -math.inf
    foreseen, rest = torch.full_like(log_n, -math.inf), torch.zeros_like(log_n)
    for place in reversed(range(log_n.shape[1] - 1)):
        onward = log_left + log_ratio[:, place + 1]
        follows = place + 1 < lengths
        taken = torch.logaddexp(log_taken + log_n[:, place + 1], onward + foreseen[:, place + 1])
        foreseen[:, place] = torch.where(follows, taken, -math.inf)
        rest[:, place] = torch.where(follows, onward + rest[:, place + 1], 0.0)
    return foreseen, rest
