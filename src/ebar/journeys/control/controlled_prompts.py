"""Many prompts: p(x|C) ∝ q(x|C)·exp⟨λ, φ(x)⟩ for every prompt C of a stream, however long, in bounded memory.

With one λ for all, what is asked is the mean over prompts of E_{p(·|C)}[φ], each normalised by its own Z(C) and never
pooled: pooled, prompts that make a feature likely would stand for those that do not. With a λ(C) of its own, each
prompt has the moment itself. With a suffix, P(x|C) = q(x, suffix | C), and Z(C) is the suffix's probability.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.energies.suffix import Suffix
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.journeys.control.constraints import Solved, UnderConstraints, solve
from ebar.journeys.control.continuing import encoded
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, measured_energy, propose
from ebar.samplers.guided import Guided
from ebar.samplers.importance import multinomial
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import LookAhead, guided, unguided
from ebar.types import Context, Estimate, Sequences

ROUNDS, CLOSE = 3, 0.5  # proposals that are made for ever better λ, until it moves by less than this


class Drawn(NamedTuple):
    """Draws for each row of a context, in float64."""

    x: Sequences  # context-major
    log_base: Float[Tensor, "rows draws"]  # log q/g, the suffix's probability included
    values: Float[Tensor, "rows draws features"]  # as the energy counts them
    strata: Tensor | None


@dataclass(frozen=True, kw_only=True)
class OfPrompt:
    """What was found for one prompt."""

    prompt: str
    log_z: Estimate
    moments: dict[str, Estimate]  # E_{p(·|C)}[φ]; NaN where nothing was found
    coefficients: list[float]
    effective_samples_per_draw: float
    texts: list[str]  # chosen among the draws by their weights
    draws: list[tuple[float, str]]  # all of them with their log-weights, where they are wanted

    @property
    def found(self) -> bool:
        """Whether any draw has what is wanted."""
        return self.log_z.value > -math.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class ControlledPrompts(UnderConstraints):
    """A model under constraints, for any prompt."""

    suffix: list[int]
    sample: list[str]  # prompts that λ and what looks ahead are found by
    per_prompt: bool

    @property
    def hard(self) -> Tensor:
        return torch.tensor([one.pointwise for one in self.constraints], dtype=torch.bool)

    @property
    def wanted(self) -> Float[Tensor, " features"]:
        return torch.tensor([one.counted_moment for one in self.constraints], dtype=torch.float64)

    @cached_property
    def fitted(self) -> tuple[Solved, Guided | None]:
        """One λ for all prompts, on the sampled ones, and the proposal that it was found with."""
        generator = self._generator("lambda")
        context = self.context(self.sample)
        found = self._solved(context, None, generator)
        if not (self.constraints.foreseen or self.rounds):
            return self._checked(found), None
        for _ in range(ROUNDS):
            proposal = self._proposal(found.coefficients, context, generator)
            again = self._solved(context, proposal, generator)
            moved = again.coefficients[~self.hard] - found.coefficients[~self.hard]
            found = again
            if not len(moved) or float(moved.abs().max()) < CLOSE:
                break
        return self._checked(found), proposal

    def stream(
        self, prompts: Iterable[str], *, texts: int = 3, weights: bool = False, first: int = 0
    ) -> Iterator[OfPrompt]:  # fmt: skip
        """What is found for each prompt, a few prompts at a time; `first`: how many came before, for their seeds."""
        solved, proposal = self.fitted
        waiting = iter(prompts)
        size = self.at_once
        number = first
        while batch := list(islice(waiting, size)):
            generator = self._generator(number // size)
            context = self.context(batch)
            coefficients = solved.coefficients.expand(len(batch), -1)
            if self.per_prompt and not bool(self.hard.all()):
                # On draws of their own, so that Z(C) is estimated at a λ(C) that knows nothing of its draws.
                pilot = self.draws_for(context, proposal, generator)
                coefficients = self._of_each(pilot, solved.coefficients)
            drawn = self.draws_for(context, proposal, generator)
            yield from self._read(batch, drawn, coefficients, texts, weights, generator)
            number += len(batch)

    @property
    def at_once(self) -> int:
        """Prompts that are computed together."""
        return max(1, self.rows // self.draws)

    def context(self, prompts: list[str]) -> Context:
        """Prompts as tokens; one that the model cannot read, with what is to come, is refused."""
        rows = [encoded(self.reading, prompt) for prompt in prompts]
        most, coming = getattr(self.model, "positions", None), self.model.space.length + len(self.suffix)
        for prompt, row in zip(prompts, rows, strict=True):
            if most is not None and self.model.read_before(len(row)) + coming - 1 > most:  # the last one is not read
                raise UserError(
                    f"The prompt {prompt[:40]!r} … has {len(row):,} tokens and {coming:,} are to come, and the model "
                    f"reads {most:,} at most: shorten it, or let less come."
                )
        lengths = torch.tensor([len(row) for row in rows])
        tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = torch.tensor(row, dtype=torch.long)
        device = device_of(self.model)
        return Context(Sequences(tokens.to(device), lengths.to(device)))

    @torch.no_grad()
    def draws_for(self, context: Context, proposal: Guided | None, generator: Generator) -> Drawn:
        """For each prompt, `draws` of the proposal, a tenth of them defensive, or of the model itself."""
        n, features = self.draws, self.constraints.counted
        strata = None
        if proposal is None:
            x, log_q = propose(self.model, n, context, generator)
            log_base = torch.zeros_like(log_q, dtype=torch.float64)
        else:
            defensive = round(LookAhead().defence * n)
            x, log_g, log_q = proposal.walk(n, context, defensive=defensive, generator=generator)
            log_base = log_q.double() - log_g.double()
            strata = (torch.arange(n) < defensive).long() if defensive else None
        if self.suffix:
            log_base = log_base - measured_energy(Suffix(self.model, self.suffix), x, context).double()
        shape = (context.rows, n)
        return Drawn(x, log_base.cpu().view(shape), features(x).double().cpu().view(*shape, -1), strata)

    def _solved(self, context: Context, proposal: Guided | None, generator: Generator) -> Solved:
        """From draws for each row, some rows at a time."""
        rows = torch.split(torch.arange(context.rows, device=context.given.lengths.device), self.at_once)
        parts = [self.draws_for(context.select(some), proposal, generator) for some in rows]
        values, log_base = (torch.cat([getattr(part, name) for part in parts]) for name in ("values", "log_base"))
        return solve(values, log_base, self.wanted, self.hard)

    def _checked(self, solved: Solved) -> Solved:
        if not bool(solved.found.any()):
            raise self.constraints.none_satisfies(self.draws * len(self.sample), "draws", self.constraints.foreseen)
        for one, moment in zip(self.constraints, solved.moments.tolist(), strict=True):
            if not one.pointwise and abs(moment - one.moment) > 0.01:
                raise UserError(
                    f"No λ makes {one.feature.name!r} true of {one.moment:g} of the texts of {len(self.sample)} "
                    f"prompts: the nearest that the draws come to is {moment:.3g}, so give more --draws."
                )
        return solved

    def _of_each(self, pilot: Drawn, shared: Float[Tensor, " features"]) -> Float[Tensor, "rows features"]:
        """λ(C), where the draws of C have what is wanted; elsewhere the λ of all."""
        rows = []
        for values, log_base in zip(pilot.values, pilot.log_base, strict=True):
            own = solve(values[None], log_base[None], self.wanted, self.hard)
            there = bool(own.found.all()) and float((own.moments - self.wanted)[~self.hard].abs().max()) < 0.01
            rows.append(own.coefficients if there else shared)
        return torch.stack(rows)

    def _proposal(self, coefficients: Float[Tensor, " features"], context: Context, generator: Generator) -> Guided:
        energy: Any = Linear(self.constraints.counted, coefficients.clone()).to(device_of(self.model))
        linear = Tilted(self.model, energy).requires_grad_(False)
        first = (
            guided(linear, draws=self.surrogate_draws, context=context, generator=generator)
            if self.constraints.foreseen
            else unguided(linear, context)
        )
        if not self.rounds:
            return first
        if self.suffix:
            linear = Tilted(self.model, Suffix(self.model, self.suffix, energy)).requires_grad_(False)
        learning = Learning(rounds=self.rounds, draws=self.round_draws)
        return learning.learn(linear, first, context, generator=generator)[0]

    def _read(
        self, prompts: list[str], drawn: Drawn, coefficients: Float[Tensor, "rows features"], texts: int, weights: bool,
        generator: Generator,
    ) -> Iterator[OfPrompt]:  # fmt: skip
        tilts = torch.where(drawn.values == 0, 0.0, drawn.values * coefficients[:, None]).sum(-1)
        log_weights = drawn.log_base + tilts
        sizes = effective_sample_size(log_weights) / self.draws
        log_zs = [one.estimate for one in log_mean(log_weights, strata=drawn.strata)]
        for row, prompt in enumerate(prompts):
            own = drawn.x.select(torch.arange(row * self.draws, (row + 1) * self.draws))
            found = log_zs[row].value > -math.inf
            chosen = multinomial(log_weights[row : row + 1], texts, generator)[0].tolist() if found and texts else []
            spelt = self.text(own) if weights else []
            yield OfPrompt(
                prompt=prompt,
                log_z=log_zs[row],
                moments=self._moments(drawn.values[row], log_weights[row], drawn.strata, found),
                coefficients=coefficients[row].tolist(),
                effective_samples_per_draw=float(sizes[row]),
                texts=self.text(own.select(torch.tensor(chosen, dtype=torch.long))) if chosen else [],
                draws=list(zip(log_weights[row].tolist(), spelt, strict=True)) if weights else [],
            )

    def _moments(
        self, values: Float[Tensor, "draws features"], log_weights: Float[Tensor, " draws"], strata: Tensor | None,
        found: bool,
    ) -> dict[str, Estimate]:  # fmt: skip
        moments: dict[str, Estimate] = {}
        for one, column in zip(self.constraints, values.T, strict=True):
            if one.pointwise and found:
                moments[one.feature.name] = Estimate.exact(one.moment)
                continue
            low, high = float(one.counted.low), float(one.counted.high)
            [moments[one.feature.name]] = weighted_mean(
                log_weights[None], column[None], low=low, high=high, name=one.feature.name, strata=strata
            )
        return moments

    def _generator(self, *numbers: int | str) -> Generator:
        return Generator(device=device_of(self.model)).manual_seed(folded(self.seed, "prompts", *numbers))
