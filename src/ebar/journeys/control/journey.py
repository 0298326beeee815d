"""Control of a language model: constraints on its text, draws that satisfy them, a model that has learnt them.

P(x) = q(x)·exp⟨λ, φ(x)⟩ is the nearest distribution to q with the wanted means of φ: a GAM whose base is a pretrained
model (GDC, Khalifa et al. 2021, arXiv:2012.11635). In a folder the stages are kept:

    lambda.json     λ, with intervals
    results.json    moments before and after, effective samples per draw, how far p is from q
    report.html     the same for people
    tune/           a model of its own, see `tuning`
"""

import copy
import json
import math
import shutil
import time
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
from torch import Generator, Tensor, nn

from ebar.automata.lift import Reading
from ebar.backbones.pretrained.reading import with_lora
from ebar.data.corpus import Corpus
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
from ebar.features.feature import Features, Followed
from ebar.journeys.control.constraints import Constraints, Wanted
from ebar.journeys.control.report import Checked, Tuned, write_fit_page
from ebar.journeys.control.tuning import Tuning, tune
from ebar.journeys.train import seed_of
from ebar.maths.importance import all_warnings
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.construction import save_pretrained
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import Tilted, measured_energy, reading_of_model
from ebar.models.truncated import Prompted, Truncated
from ebar.samplers.draw import draw, shares
from ebar.samplers.guided import Guided
from ebar.samplers.importance import Resampling, multinomial
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import LookAhead, ScoredDraws, draw_scored, guided, unguided
from ebar.store import Store, open_store
from ebar.store.writing import TEMPORARY, from_plain, once, replace_folder, saving, to_json
from ebar.training.moment_matching.matching import Fitted
from ebar.training.moment_matching.newton import Newton, UnsatisfiedError
from ebar.training.moment_matching.search import Pilot, Search
from ebar.types import Context, Distribution, Estimate, Sampler, Sequences, Stepwise, Weighted

PILOT = 1000  # draws of q, to see whether it shows what is wanted
SHOWN = 8  # texts of each kind


class Texts(list[str]):
    """Texts of a controlled model; `draws` are the weighted sequences that they spell."""

    def __init__(self, texts: list[str], draws: Weighted):
        super().__init__(texts)
        self.draws = draws

    def __str__(self) -> str:
        return "\n".join(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Controlled:
    """P(x) = q(x)·exp⟨λ, φ(x)⟩, q a language model and φ what is wanted of its text."""

    model: Any  # q without the prompt
    constraints: Constraints
    reading: Reading  # how features read the model's tokens
    prompt: str
    draws: int
    checks: int
    surrogate_draws: int
    rounds: int
    round_draws: int
    rows: int
    seed: int
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
        return any(isinstance(one.counted, Followed) for one in self.constraints)

    @cached_property
    def fitted(self) -> Fitted:
        """λ by Newton's method, read back where the folder has it."""

        def find() -> dict[str, Any]:
            generator = self._generator(stage.seed)
            fitted = self._match(generator)
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

    def text(self, x: Sequences) -> list[str]:
        """Each draw as text, as features read it; tokens that spell nothing are left out."""
        return [self.reading.text(x.prefix(row)) for row in range(len(x.lengths))]

    def sample(
        self, n: int = 10, *, sampler: Sampler | None = None, proposal: Distribution | None = None,
        generator: Generator | None = None,
    ) -> Texts:  # fmt: skip
        """n texts and their weights; by default looking ahead or, where that is not possible, by resampling.

        Trap: weights differ, so that the texts as they come are draws of p only as far as `draws.log_weights` are even.
        """
        if sampler is None and (self.foresees or self.rounds):
            sampler, proposal = LookAhead(batch_size=max(self.rows, 2)), proposal or self.ahead
        drawn = draw(sampler or Resampling(), self.p, n, proposal=proposal, generator=generator)
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
        """A model π of its own, brought to p by policy gradient; `options` are those of `Tuning`.

        Its folder is `tune` in that of the controlled model, unless another is given. A pretrained π is saved in it as
        transformers saves models, low-rank adapters merged; of another model its weights are.
        """
        tuning = Tuning(**{"seed": self.seed, **options})
        place = Path(folder) if folder is not None else None if self.folder is None else self.folder / "tune"
        if tuning.proposal == "look_ahead" and self.ahead is None:
            raise UserError(
                "No automaton follows what is wanted, so nothing looks ahead: use --proposal model or policy."
            )
        policy = self.policy(tuning)
        tuned = tune(
            self.p, self.continues(policy), self.constraints, tuning, place, ahead=self.ahead, text=self.text,
            rows=self.rows,
        )  # fmt: skip
        if place is not None:
            _save(policy, place / "model")
        return replace(tuned, model=policy)

    def policy(self, tuning: Tuning) -> Any:
        """A copy of q in which adapters or all weights learn; adapters are drawn from the seed."""
        q = self.model
        if not isinstance(q, Pretrained):
            return copy.deepcopy(q).requires_grad_(True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(folded(tuning.seed, "adapters"))
            network = copy.deepcopy(q.network)
            if tuning.lora_rank is None:
                return q.with_network(network.requires_grad_(True))
            return q.with_network(with_lora(network.requires_grad_(False), rank=tuning.lora_rank))

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

    def _match(self, generator: Generator) -> Fitted:
        """λ: −∞ for what is forbidden and, where there is more, Newton's method for the rest.

        On draws of q and, where q seldom or never shows what is wanted, of a look-ahead proposal as well.
        """
        began = time.monotonic()
        counted = self.constraints.counted
        wanted = torch.tensor([one.counted_moment for one in self.constraints], dtype=torch.float64)
        hard = torch.tensor([one.pointwise for one in self.constraints])
        search = Search(
            draws=min(PILOT, self.draws // 2, self.rows), surrogate_draws=self.surrogate_draws, batch_size=self.rows
        )
        pilot = search.pilot(self.q, counted, wanted, hard, generator=generator)
        if bool(hard.all()):
            return _forbidding(pilot, time.monotonic() - began)
        ahead = search.proposal(pilot, generator=generator)
        method = Newton(draws=self.draws, hard=True, proposal="base", batch_size=self.rows)
        try:
            fitted = method.fit(self.q, counted, moments=wanted, proposal=ahead, generator=generator)
        except UnsatisfiedError:
            raise self.constraints.none_satisfies(self.draws, "draws", self.foresees) from None
        for one, moment in zip(self.constraints, fitted.model_moments, strict=True):
            # Of what all draws have, or none, nothing is known of λ: 0 would be a wrong answer.
            if one.pointwise or 1e-12 < moment.value < 1 - 1e-12:
                continue
            which, other = ("None", "commoner") if moment.value < 0.5 else ("Every one", "rarer")
            other = f"a {other} word" if isinstance(one.counted, Followed) else f"something {other}"
            raise UserError(
                f"{which} of the {fitted.draws:,} draws has {one.feature.name!r}: give more --draws, or {other}."
            )
        return fitted

    def _seek(self, target: Tilted, generator: Generator) -> None:
        """Where the first draws have no weight: whether others have, looking ahead if that is possible."""
        ahead = self._ahead(target)
        for size in shares(self.draws, None, self.rows):
            found = draw_scored(
                target, size, ahead=ahead, features=self.features, rows=self.rows, generator=generator
            )  # fmt: skip
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


def control(
    model: Stepwise,
    constraints: Wanted,
    *,
    data: Corpus | None = None,
    prompt: str = "",
    reads_prompt: bool = False,
    length: int | None = None,
    draws: int = 10_000,
    checks: int = 4000,
    surrogate_draws: int = 4000,
    rounds: int = 0,
    round_draws: int = 1000,
    rows: int = 1024,
    seed: int | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
) -> Controlled:
    """λ with which each feature has its moment over all text; 1 means in every single text, 0 in none.

    A model that is pretrained or was made for data knows what its tokens spell; for another, give its corpus as `data`.
    Draws continue the `prompt`, and features read it too if `reads_prompt`; they have `length` tokens in place of the
    model's own. λ is found on `draws`, `rows` of them at a time, what looks ahead is fitted to `surrogate_draws` and
    learns from the model's hidden states in `rounds` of `round_draws`, and `check` uses `checks`. In a folder, what was
    found is read back; without a seed, one is drawn from torch's state.
    """
    reading = reading_of_model(model) if data is None else data.reading
    if reading is None:
        raise UserError("This model does not say what its tokens spell: give data=, its corpus.")
    model = _of_length(model, length or model.space.length)
    reading = reading.going_on_from(prompt, model.space.length, reads_prompt=reads_prompt)
    place = None if folder is None else Path(folder)
    seed = seed_of(place) if seed is None else seed
    asked = {
        "prompt": prompt, "reads_prompt": reads_prompt, "draws": draws, "checks": checks,
        "surrogate_draws": surrogate_draws, "rounds": rounds, "round_draws": round_draws, "rows": rows, "seed": seed,
    }  # fmt: skip
    pairs = list(constraints.items() if isinstance(constraints, Mapping) else constraints)
    made = Controlled(
        model=model, constraints=Constraints.of(pairs, reading), reading=reading, prompt=prompt, draws=draws,
        checks=checks, surrogate_draws=surrogate_draws, rounds=rounds, round_draws=round_draws, rows=rows, seed=seed,
        folder=place,
        description=description or {"model": model, "constraints": pairs, **asked},
    )  # fmt: skip
    made.fitted  # noqa: B018 — found now
    return made


def continued_from(model: Any, prompt: str, reading: Reading, length: int | None = None) -> Any:
    """The model over texts of `length` tokens that go on from the prompt, where there is one."""
    model = model if length is None else _of_length(model, length)
    if not prompt:
        return model
    if reading.encode is None:
        raise UserError("Nothing is known of how this model's tokens encode a prompt: give data=, its corpus.")
    tokens = torch.tensor([reading.encode(prompt)], device=device_of(model))
    return Prompted(model, Context(Sequences(tokens, torch.tensor([tokens.shape[1]], device=tokens.device))))


def _of_length(model: Any, length: int) -> Any:
    """The model over texts of `length` tokens, an end included where it has one."""
    space = model.space
    if length == space.length:
        return model
    if isinstance(model, Pretrained):
        return model.with_network(model.network, length=length)
    if length > space.length:
        raise UserError(f"The model makes texts of {space.length} tokens at most, and {length} are asked for.")
    return Truncated(model, length=length)


def _flat(drawn: ScoredDraws | Weighted) -> Float[Tensor, " draws"]:
    return drawn.log_weights.flatten().double().cpu()


def _forbidding(pilot: Pilot, seconds: float) -> Fitted:
    """P = q·1[…] where every constraint is pointwise: there is no λ to find."""
    count = len(pilot.features)
    never = torch.full((count,), -math.inf, dtype=torch.float64)
    return Fitted(
        method="forbidding",
        names=tuple(pilot.features.names),
        coefficients=never,
        covariance=None,
        data_moments=(0.0,) * count,
        model_moments=(Estimate.exact(0.0),) * count,
        base_moments=tuple(means_by_name(pilot.values, pilot.features).values()),
        distance=0.0,
        effective_sample_size=float(effective_sample_size(pilot.log_weights)),
        log_z=log_mean(pilot.log_weights[None])[0].estimate,
        draws=len(pilot.log_weights),
        seconds=seconds,
        intervals=tuple(Estimate.exact(value) for value in never.tolist()),
    )


def _budgets(drawn: ScoredDraws, figures: dict[str, Estimate], within: float) -> dict[str, Budget | str]:
    """For log Z, and for the moment of each column of the features."""
    columns = [None, *drawn.values.T]
    return {
        name: budget_or_reason(
            one, mean_influence(drawn.log_weights, column), len(drawn.log_weights), within=within
        )
        for (name, one), column in zip(figures.items(), columns, strict=True)
    }  # fmt: skip


def _save(policy: nn.Module, folder: Path) -> None:
    """π, complete or not at all: a pretrained one as transformers saves models, of another its weights."""
    if not isinstance(policy, Pretrained):
        # A copy of each: tied weights have two names and one memory, which safetensors refuses.
        state = policy.state_dict().items()
        weights = {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in state}
        with saving(str(folder)):
            replace_folder(folder, {"model.safetensors": to_bytes(weights)})
        return
    temporary = folder.with_name(TEMPORARY + folder.name)
    with saving(str(folder)):
        shutil.rmtree(temporary, ignore_errors=True)
        save_pretrained(policy, temporary)
        files = {path.name: path.read_bytes() for path in temporary.iterdir() if path.is_file()}
        shutil.rmtree(temporary)
        replace_folder(folder, files)
