"""What a look-ahead has missed, learnt from the model's own hidden state: h becomes h·exp c.

The automaton and an n-gram know where a feature stands, and nothing of what the text is about. The hidden state does.
c(hidden, v, time left) = z·(output vector of v) + a, with z and a from a small network, so that one product gives all
tokens. It is fitted by Poisson regression: where r is an unbiased, noisy figure of what e^c should be, the mean of
e^c − r·c is least where e^c = E[r | hidden, v]. However wrong c is, weights stay exact: it only moves the proposal.

Draws of a proposal with what the base thought on the way, kept to learn from: in this round and in later ones.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from ebar.bounds import Amount, Count, NonNegative, check
from ebar.samplers.guided_states import JointStates
from ebar.types import Sequences

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
    text: Int[Tensor, " examples"]  # which draw it is of

    def select(self, rows: Tensor) -> "Examples":
        return Examples(*(part[rows] for part in self))

    @staticmethod
    def join(parts: "list[Examples]") -> "Examples":
        """One after the other; texts of different parts are different."""
        first, texts = 0, []
        for part in parts:
            texts.append(part.text + first)
            first += int(part.text.max()) + 1 if len(part.text) else 0
        return Examples(*(torch.cat(column) for column in zip(*parts, strict=True)))._replace(text=torch.cat(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """How c is fitted to examples: Adam, and the epoch that foresees texts best that were not learnt from."""

    units: Count = 128
    """Of the network's two layers."""
    bound: Amount = 8.0
    """Largest |c|."""
    largest: Amount = 100.0
    """Ratios above this count as this, which biases c, never the weights."""
    learning_rate: Amount = 2e-3
    """Of Adam."""
    decay: NonNegative = 1e-3
    """Of the weights."""
    epochs: Count = 30
    """At most; learning ends after `patience` epochs that foresee the held-out texts no better."""
    patience: Count = 4
    """See epochs."""
    batch_size: Count = 512
    """Examples in a step."""
    held_out: float = 0.15
    """Share of the texts that only choose the epoch."""

    def __post_init__(self) -> None:
        check(self)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, not {self.held_out}")

    @torch.enable_grad()
    def fit(self, correction: Correction, examples: Examples, *, generator: Generator) -> Float[Tensor, ""]:
        """Moves c towards the examples and returns the held-out loss less that of c = 0: below 0 it has learnt."""
        held = self._held_out(examples.text, generator)
        learnt, judged = examples.select((~held).nonzero()[:, 0]), examples.select(held.nonzero()[:, 0])
        if len(learnt.token) == 0 or len(judged.token) == 0:
            return torch.zeros(())
        correction.standardise(learnt.hidden.float())
        optimiser = torch.optim.AdamW(correction.parameters(), lr=self.learning_rate, weight_decay=self.decay)
        best = (self.loss(correction, judged).detach(), _weights(correction))
        stale = 0
        for _ in range(self.epochs):
            order = torch.randperm(len(learnt.token), generator=generator, device=generator.device)
            for rows in torch.split(order.to(learnt.token.device), self.batch_size):
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(self.loss(correction, learnt.select(rows)))
                optimiser.step()
            loss = self.loss(correction, judged).detach()
            better = bool(loss < best[0])
            best, stale = ((loss, _weights(correction)), 0) if better else (best, stale + 1)
            if stale >= self.patience:
                break
        correction.load_state_dict(best[1])
        return best[0] - 1.0  # e^0 − r·0

    def loss(self, correction: Correction, examples: Examples) -> Float[Tensor, ""]:
        """Mean of e^c − r·c."""
        found = correction(examples.hidden, examples.left, examples.accepted)
        c = correction.of(found, examples.token)
        ratio = examples.log_ratio.exp().clamp(max=self.largest).to(c.dtype)
        return (c.exp() - ratio * c).mean()

    def _held_out(self, text: Int[Tensor, " examples"], generator: Generator) -> Bool[Tensor, " examples"]:
        count = int(text.max()) + 1 if len(text) else 0
        chosen = torch.rand(count, generator=generator, device=generator.device) < self.held_out
        return chosen.to(text.device)[text]


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in module.state_dict().items()}


LARGEST = 2**28  # bytes of hidden vectors that one round keeps: beyond, places are left out at random


class Kept(NamedTuple):
    """Places of texts that one proposal drew. What depends on the energy is not among them: it may move."""

    x: Sequences
    text: Int[Tensor, " places"]  # the row of x
    place: Int[Tensor, " places"]
    hidden: Float[Tensor, "places width"]  # before the token was chosen
    joint: Int[Tensor, " places"]  # where the automata stood then
    token: Int[Tensor, " places"]
    log_rest: Float[Tensor, " places"]  # Σ log q − log g of the tokens after this one, g being what drew them

    def examples(
        self, states: JointStates, log_ahead: Float[Tensor, "places states"], open: Bool[Tensor, "places states"],
        log_weight: Float[Tensor, " texts"],
    ) -> Examples:  # fmt: skip
        """What became of each place where something was open, beside what h foresaw; `log_weight`: −E of the texts.

        r = e^−E(x)·Π q/g over the tokens to come, divided by h. Its mean, given all up to this token, is
        E_q[e^−E]/h, whichever proposal drew the rest.
        """
        after = states.successor[self.joint, states.class_of[self.token]]
        matters = open[self.place + 1, after]
        if states.space.end is not None:
            matters = matters & (self.token != states.space.end)
        chosen = matters.nonzero()[:, 0]
        log_h = log_ahead[self.place + 1, after][chosen]
        # Where h is 0 nothing that follows is allowed, and the weight is 0 too.
        log_ratio = torch.where(log_h.isneginf(), -torch.inf, (log_weight[self.text] + self.log_rest)[chosen] - log_h)
        return Examples(
            self.hidden[chosen],
            1 - self.place[chosen] / states.space.length,
            states.accepted.T[self.joint[chosen]],
            self.token[chosen],
            log_ratio,
            self.text[chosen],
        )


class Trace:
    """Records a walk, block by block."""

    def __init__(self, generator: Generator):
        self.generator = generator
        self.blocks: list[Kept] = []
        self._places: list[tuple[Tensor, ...]] = []

    def add(
        self, alive: Int[Tensor, " rows"], hidden: Float[Tensor, "rows width"] | None, joint: Int[Tensor, " rows"],
        token: Int[Tensor, " rows"], log_ratio: Float[Tensor, " rows"], place: int,
    ) -> None:  # fmt: skip
        """One place of the rows that have not ended; `log_ratio` is log q − log g of the token drawn."""
        assert hidden is not None
        self._places.append((alive, torch.full_like(alive, place), hidden, joint, token, log_ratio.double()))

    def finish(self, x: Sequences) -> None:
        """The block is drawn."""
        text, place, hidden, joint, token, log_ratio = (torch.cat(part) for part in zip(*self._places, strict=True))
        self._places = []
        grid = torch.zeros(x.tokens.shape, dtype=torch.float64, device=token.device)
        grid[text, place] = log_ratio
        rest = (grid.flip(1).cumsum(1).flip(1) - grid)[text, place]
        kept = Kept(x, text, place, hidden, joint, token, rest)
        most = max(1, LARGEST // (4 * hidden.shape[1]))
        if len(text) > most:
            order = torch.randperm(len(text), generator=self.generator, device=self.generator.device)
            some = order[:most].sort().values.to(text.device)
            kept = Kept(x, *(part[some] for part in kept[1:]))
        self.blocks.append(kept)
