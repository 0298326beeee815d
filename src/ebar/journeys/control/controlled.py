"""A controlled language model: its λ, its draws, and what they say of it.

In a folder the stages are kept:

    lambda.json     λ, with intervals
    results.json    moments before and after, effective samples per draw, how far p is from q
    report.html     the same for people
    tune/           a model of its own, see `tuning`
"""

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.effective_samples import (
    Budget,
    EffectiveSamples,
    budget_or_reason,
    effective_samples,
    effective_samples_of_base,
    mean_influence,
    same_draws,
)
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Features
from ebar.journeys.control.constraints import UnderConstraints, find_coefficients
from ebar.journeys.control.continuing import Texts, continued_from, policy_of, save_policy
from ebar.journeys.control.report import Checked, Tuned, write_fit_page
from ebar.journeys.control.teaching import kept
from ebar.journeys.control.tuning import WAYS, Tuning, tune
from ebar.maths.importance import all_warnings
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, measured_energy
from ebar.samplers.draw import draw, shares
from ebar.samplers.guided import Guided
from ebar.samplers.importance import Resampling, multinomial
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import LookAhead, ScoredDraws, draw_scored, guided, unguided
from ebar.shards import Workers
from ebar.store.store import Store, open_store
from ebar.store.writing import from_plain, once, saving, to_json
from ebar.store.writing import replace as put
from ebar.training.moment_matching.matching import Fitted
from ebar.types import Distribution, Estimate, Sampler, Weighted

SHOWN = 8  # texts of each kind


@dataclass(frozen=True, kw_only=True, eq=False)
class Controlled(UnderConstraints):
    """P(x) = q(x)·exp⟨λ, φ(x)⟩, q a language model and φ what is wanted of its text."""

    prompt: str
    checks: int
    folder: Path | None
    description: str | Mapping[str, Any] = field(repr=False)

    def continues(self, model: Any) -> Any:
        """A model with q's tokens, which continues the prompt where there is one."""
        return continued_from(model, self.prompt, self.reading)

    @cached_property
    def q(self) -> Any:
        return self.continues(self.model)

    @cached_property
    def features(self) -> Features:
        return self.constraints.features

    @property
    def foresees(self) -> bool:
        """Whether an automaton follows any of the features, so that looking ahead is possible."""
        return self.constraints.foreseen

    @cached_property
    def fitted(self) -> Fitted:
        """λ by Newton's method, read back where the folder has it."""

        def find() -> dict[str, Any]:
            generator = self._generator(stage.seed)
            fitted = find_coefficients(
                self.q, self.constraints, draws=self.draws, surrogate_draws=self.surrogate_draws, rows=self.rows,
                generator=generator,
            )  # fmt: skip
            if fitted.effective_sample_size == 0:
                self._seek(self._tilted(fitted), generator)
            return fitted.to_dict()

        with self._store() as store, store.stage("lambda") as stage:
            return Fitted.from_dict(once(store.folder / "lambda.json", find))

    @cached_property
    def p(self) -> Tilted:
        """P itself, whose parameters are fixed."""
        return self._tilted(self.fitted)

    @cached_property
    def ahead(self) -> Guided | None:
        """q steered towards P, made from the seed; None where no automaton follows any feature and nothing is learnt.

        What was learnt in rounds is kept in the folder `look_ahead`, with what each round has shown.
        """
        if not self.rounds:
            return self._ahead(self.p)
        with self._store() as store:
            return self._learnt(store)

    def sample(
        self, n: int = 10, *, sampler: Sampler | None = None, proposal: Distribution | None = None,
        generator: Generator | None = None, workers: Workers | None = None,
    ) -> Texts:  # fmt: skip
        """n texts and their weights; by default looking ahead or, where that is not possible, by resampling. With
        `workers`, they are drawn in shards by them.

        Trap: weights differ, so that the texts as they come are draws of p only as far as `draws.log_weights` are even.
        """
        if sampler is None and (self.foresees or self.rounds):
            sampler, proposal = LookAhead(batch_size=max(self.rows, 2)), proposal or self.ahead
        drawn = draw(sampler or Resampling(), self.p, n, proposal=proposal, generator=generator, workers=workers)
        return Texts(self.text(drawn.x), drawn)

    def scored(self, n: int, generator: Generator, *, ahead: Guided | None = None) -> ScoredDraws:
        """Draws of q, or of the proposal that looks ahead, with all their log-probabilities and features."""
        return draw_scored(self.p, n, ahead=ahead, features=self.features, rows=self.rows, generator=generator)

    def effective_samples(
        self, drawn: ScoredDraws | Weighted, *, beside: ScoredDraws | Weighted | None = None, which: str = ""
    ) -> EffectiveSamples:
        """Per draw. Draws of q that do not show all that p has cannot tell: then the draws `beside` them do."""
        missing = self.constraints.unseen(self._values(drawn))
        groups = drawn.groups if isinstance(drawn, Weighted) else None
        own = effective_samples(_flat(drawn), same_draws(drawn.x), groups=groups, unseen=missing)
        if missing is None or beside is None:
            return own
        found = effective_samples_of_base(_flat(beside), self._over_base(beside))
        warning = all_warnings(f"{missing}; so this is from {which}", found.warning)
        return EffectiveSamples(*found._replace(warning=warning), own.draws, own.distinct)

    def check(self, *, within: float | None = None) -> Checked:
        """Moments and effective samples per draw on fresh draws; `within`: how many draws give such a half-width."""
        made_from = {"within": within, "lambda": self.fitted.coefficients.tolist()}
        with self._store() as store, store.stage("check", made_from, rebuild=True) as stage:
            path = store.folder / "results.json"
            if stage.done and path.exists():
                tree = json.loads(path.read_bytes())
                found: Checked = from_plain(Checked, {name: one for name, one in tree.items() if name != "lambda"})
                return found
            if self.rounds and "ahead" not in vars(self):
                vars(self)["ahead"] = self._learnt(store)  # in this store, which is open
            checked = self._check(within, self._generator(stage.seed))
            store.write(path.name, to_json({"lambda": self.fitted, **vars(checked)}, indent=1))
            if self.folder is not None:
                write_fit_page(self.folder, self.constraints, self.fitted, checked)
        return checked

    def tune(self, folder: Path | str | None = None, **options: Any) -> Tuned:
        """A model π of its own, brought to p; `options` are those of `Tuning`. Of both methods, that of the one that
        arrives or, where both do or none, the nearer to p.

        Its folder is `tune` in that of the controlled model, unless another is given. A pretrained π is saved in it as
        transformers saves models, low-rank adapters merged; of another model its weights are.
        """
        tuning = Tuning(**{"seed": self.seed, **options}).chosen()
        place = Path(folder) if folder is not None else None if self.folder is None else self.folder / "tune"
        if tuning.proposal == "look_ahead" and self.ahead is None:
            raise UserError(
                "No automaton follows what is wanted, so nothing looks ahead: use --proposal model or policy."
            )
        if tuning.method != "both":
            return self._tuned(tuning, place)
        found: list[Tuned] = []
        for way in WAYS:
            own = None if place is None else place / way
            found.append(self._tuned(replace(tuning, method=way), own))  # type: ignore[arg-type]
        ends = {number: one.end for number, one in enumerate(found)}
        best = replace(
            found[kept(ends, self.constraints, tuning.tolerance)], ways={one.method: one.way for one in found}
        )
        if place is not None:
            save_policy(best.model, place / "model")
            with saving(str(place)):
                put(place / "results.json", to_json(best.to_dict(), indent=1))
        return best

    def _tuned(self, tuning: Tuning, place: Path | None) -> Tuned:
        return tune(
            self.p, self.policy(tuning), self.constraints, tuning, place, continues=self.continues, ahead=self.ahead,
            text=self.text, rows=self.rows,
        )  # fmt: skip

    def policy(self, tuning: Tuning) -> Any:
        """A copy of q in which adapters or all weights learn; adapters are drawn from the seed."""
        return policy_of(self.model, lora_rank=tuning.lora_rank, seed=tuning.seed)

    def _generator(self, seed: int) -> Generator:
        return Generator(device=device_of(self.model)).manual_seed(seed)

    def _store(self) -> AbstractContextManager[Store]:
        advice = f"choose another --name, or delete {self.folder}"
        return open_store(self.folder, description=self.description, seed=self.seed, take_over=True, advice=advice)

    def _tilted(self, fitted: Fitted) -> Tilted:
        energy = Linear(self.constraints.counted, fitted.coefficients.clone()).to(device_of(self.model))
        return Tilted(self.q, energy).eval().requires_grad_(False)

    def _ahead(self, target: Tilted) -> Guided | None:
        if not self.foresees:
            return None
        generator = self._generator(folded(self.seed, "look-ahead"))
        return guided(target, draws=self.surrogate_draws, generator=generator)

    def _learnt(self, store: Store) -> Guided:
        """Looking ahead with what the rounds have taught; as it began where that draws best."""
        first = self._ahead(self.p) or unguided(self.p)
        learning = Learning(rounds=self.rounds, draws=self.round_draws)
        made_from = {"rounds": self.rounds, "draws": self.round_draws, "lambda": self.fitted.coefficients.tolist()}
        with store.stage("look_ahead", made_from, rebuild=True) as stage:
            if not stage.done:
                found, rounds = learning.learn(self.p, first, generator=self._generator(stage.seed))
                stage.write("rounds.json", to_json([one._asdict() for one in rounds], indent=1))
                weights = {} if found.correction is None else found.correction.state_dict()
                stage.write("correction.safetensors", to_bytes(weights))
            kept = from_bytes(stage.read("correction.safetensors"))
        device = device_of(self.model)
        return learning.restore(self.p, first, {name: one.to(device) for name, one in kept.items()}) if kept else first

    def _values(self, drawn: ScoredDraws | Weighted) -> Float[Tensor, "draws features"]:
        return drawn.values if isinstance(drawn, ScoredDraws) else self.features(drawn.x).double().cpu()

    def _over_base(self, drawn: ScoredDraws | Weighted) -> Float[Tensor, " draws"]:
        """log P/q."""
        if isinstance(drawn, ScoredDraws):
            return drawn.log_weights + drawn.log_g - drawn.log_q
        return -measured_energy(self.p.energy, drawn.x).double().cpu()

    def _seek(self, target: Tilted, generator: Generator) -> None:
        """Where the first draws have no weight: whether others have, looking ahead if that is possible."""
        ahead = self._ahead(target)
        for size in shares(self.draws, None, self.rows):
            found = draw_scored(target, size, ahead=ahead, features=self.features, rows=self.rows, generator=generator)
            if bool((found.log_weights > -math.inf).any()):
                return
        raise self.constraints.none_satisfies(self.draws, "draws", self.foresees)

    def _check(self, within: float | None, generator: Generator) -> Checked:
        ahead = self.ahead
        plain = self.scored(self.checks, generator)
        drawn = plain if ahead is None else self.scored(self.checks, generator, ahead=ahead)
        if not bool((drawn.log_weights > -math.inf).any()):
            raise self.constraints.none_satisfies(self.checks, "checks", self.foresees)
        beside = None if ahead is None else drawn
        gains = {"the model": self.effective_samples(plain, beside=beside, which="draws that look ahead")}
        if ahead is not None:
            gains["looking ahead"] = self.effective_samples(drawn)
        moments, log_z = self.constraints.moments(drawn), log_mean(drawn.log_weights[None])[0].estimate
        chosen = multinomial(drawn.log_weights[None].to(generator.device), SHOWN, generator)[0]
        return Checked(
            before=means_by_name(plain.values, self.features),
            steered=None if ahead is None else means_by_name(drawn.unforced, self.features),
            after=moments,
            effective_samples_per_draw=gains,
            log_z=log_z,
            kl_of_p_from_model=kl_to_model(drawn.log_weights, drawn.log_g, drawn.log_q),
            texts={
                "the model": self.text(plain.x.select(torch.arange(min(SHOWN, self.checks)))),
                "controlled": self.text(drawn.x.select(chosen.to(drawn.x.tokens.device))),
            },
            budgets=None if within is None else _budgets(drawn, {"log Z": log_z, **moments}, within),
        )


def _flat(drawn: ScoredDraws | Weighted) -> Float[Tensor, " draws"]:
    return drawn.log_weights.flatten().double().cpu()


def _budgets(drawn: ScoredDraws, figures: dict[str, Estimate], within: float) -> dict[str, Budget | str]:
    """For log Z, and for the moment of each column of the features."""
    columns = [None, *drawn.values.T]
    return {
        name: budget_or_reason(one, mean_influence(drawn.log_weights, column), len(drawn.log_weights), within=within)
        for (name, one), column in zip(figures.items(), columns, strict=True)
    }
