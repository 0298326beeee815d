"""Whatever measures does so without dropout, and leaves every module in the mode it found it in.

A public function or method of estimators, evaluation or samplers has a line here: in `MEASURES`, where it gives the
same digits in training mode as in evaluation mode, or in `DOES_NOT_MEASURE`, where it asks no model, energy or feature.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.automata.lift import Reading
from ebar.backbones.awd_lstm import AwdLstm
from ebar.backbones.xlnet import XlNet
from ebar.data.languages import Language
from ebar.energies.linear import Linear
from ebar.estimators import (
    divergences,
    draws,
    exact,
    last_step,
    log_z,
    orders,
    per_step,
)
from ebar.estimators import moments as moment_estimates
from ebar.estimators.draws import Support
from ebar.evaluation import (
    cache_pointer,
    context_length,
    cross_entropy,
    decision_regions,
    dynamic,
    exact_cross_entropy,
    exposure_bias,
    few_labels,
    grid,
    linear_probe,
    next_words,
    rank,
    ranking,
    segments,
    token_search,
)
from ebar.evaluation import moments as means
from ebar.features.feature import Features
from ebar.features.regular import Expression, Motif
from ebar.features.rules import RegularRule
from ebar.heads.softmax import Softmax
from ebar.maths.enumeration import all_sequences
from ebar.models.classifiers import MlpClassifier
from ebar.models.construction import Autoregressive
from ebar.models.generators import SoftplusGenerator
from ebar.models.points import standard_normal
from ebar.models.stepwise import teacher_forced
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS, beam, joint, look_ahead, metropolis, point_moves, smc
from ebar.samplers import draw as drawing
from ebar.samplers.correction import Regression
from ebar.samplers.draw import begin, walkers_at
from ebar.samplers.guided import Guided
from ebar.samplers.joint import energy_resampling
from ebar.samplers.learning import Learning
from ebar.samplers.masked import Masked
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.shards import Workers
from ebar.types import Context, Estimate, Sequences, Space
from tests.models.examples import ENDING, FIXED, lstm, three_contexts

PLANE = standard_normal(2)
GRID = grid.Grid(torch.zeros(2).double(), torch.ones(2).double(), 4)
LONG = Space(3, 20, 2)  # too many sequences to enumerate


class NoisyEnergy(nn.Module):
    """A network with dropout over counts of tokens and over the context's first token."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).double()

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        counts = torch.stack([((x.tokens == token) & x.mask()).sum(1) for token in range(3)], 1).double()
        given = torch.zeros(len(counts), 1).double()
        if context is not None:
            given = context.given.tokens[:, :1].double().repeat_interleave(len(counts) // context.rows, 0)
        return self.layers(torch.cat([counts, given], 1)).squeeze(1)  # type: ignore[no-any-return]


class NoisyFeature(nn.Module):
    """A classifier with dropout, as a feature."""

    name, low, high = "noisy", 0.0, 1.0

    def __init__(self) -> None:
        super().__init__()
        self.energy = NoisyEnergy()

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        return torch.sigmoid(self.energy(x))


class NoisyPoints(nn.Module):
    """A network with dropout over points, as an energy and as a feature."""

    name, low, high = "noisy points", -100.0, 100.0

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).double()

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor:
        return self.layers(x).squeeze(1)  # type: ignore[no-any-return]


class Plain:
    """An energy that is no module and holds one."""

    def __init__(self, energy: NoisyEnergy):
        self.energy = energy

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        return self.energy(x, context)  # type: ignore[no-any-return]


FEW_ROUNDS = Learning(rounds=1, draws=20, regression=Regression(units=4, steps=4))


class World:
    """Everything that has dropout, and what is measured with it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.base, self.other = lstm(ENDING, dropout=0.5), lstm(ENDING, dropout=0.5, embedding=4)
        self.fixed, self.long = lstm(FIXED, dropout=0.5), lstm(LONG, dropout=0.5)
        self.energy, feature = NoisyEnergy(), NoisyFeature()
        self.carrying = Autoregressive(AwdLstm(3, layers=2, hidden=5, embedding=4), Softmax(4, 3), FIXED).double()
        self.any_order = Autoregressive(
            XlNet(3, layers=1, hidden=4, heads=2, dropout=0.5), Softmax(4, 3), FIXED
        ).double()  # fmt: skip
        self.points = NoisyPoints()
        self.classifier = MlpClassifier(shape=(1, 2, 2), classes=3, widths=(5,))
        self.maker = SoftplusGenerator(shape=(1, 2, 2), latent=2, widths=(4,))
        self.images = torch.rand(8, 1, 2, 2, generator=self.generator())
        networks = [self.base, self.other, self.fixed, self.long, self.carrying, self.any_order, self.classifier,
                    self.maker]  # fmt: skip
        self.modules = [*networks, self.energy, feature, self.points]
        self.set_mode(False)
        self.features = Features([Motif(motif="01", alphabet="01", end=2), feature])
        self.p = Tilted(self.base, Plain(self.energy))
        self.long_p = Tilted(self.long, lambda x, context=None: self.energy(x, context))
        self.gam = Tilted(self.base, Linear(self.features, torch.tensor([1.0, -0.5]).double()))
        self.language = Language(motif="01", length=4).distribution()
        self.context, self.one = three_contexts(), three_contexts().select(torch.tensor([1]))
        self.everything = all_sequences(ENDING)
        self.x = self.base.sample(1, self.context, generator=self.generator())
        self.guided = look_ahead.guided(self.gam, draws=20, generator=self.generator())
        rule = RegularRule(Expression("01|1"), Reading(alphabet="01", end=2))
        self.masked = Masked(self.base, rule)
        self.stems = torch.tensor([[0], [1]])
        after, self.after = self.base.advance(self.stems, self.base.start(2)[1])
        self.logits = after[:, 0].detach()
        self.scene = self.setting(self.other, self.context)
        self.walkers = begin(self.scene, 4)

    def setting(self, proposal: Any = None, context: Context | None = None, target: Any = None) -> drawing.Setting:
        return drawing.Setting(self.p if target is None else target, proposal, context, self.generator())

    def points_setting(self) -> drawing.Setting[Tensor]:
        return drawing.Setting(Tilted(PLANE.double(), self.points), None, None, self.generator())

    def moved_points(self, move: Any) -> Any:
        return move(begin(self.points_setting(), 4), self.points_setting())

    def set_mode(self, training: bool) -> None:
        """In training all modules but one, whose own mode is to be left alone."""
        for module in self.modules:
            module.train(training)
        self.base.head.train(False)

    def modes(self) -> list[tuple[bool, float | None]]:
        parts = [part for module in self.modules for part in module.modules()]
        return [(part.training, getattr(part, "dropout", None)) for part in parts]

    def generator(self) -> Generator:
        return Generator().manual_seed(7)

    def moved(self, move: Any) -> Any:
        return move(self.walkers, self.scene._replace(generator=self.generator()))

    def prefixes(self) -> smc.Prefixes:
        x = Sequences(self.stems, torch.ones(2, dtype=torch.long))
        return smc.Prefixes(self.p, self.base, x, None, torch.zeros(2).double(), self.after)

    def sampler(self, name: str) -> Any:
        sizes: dict[str, dict[str, Any]] = {
            "metropolis": {"chains": 4, "burn_in": 3, "thin": 1},
            "smc": {"particles": 4},
            "annealed": {"particles": 4},
            "look_ahead": {"surrogate_draws": 20},
        }
        sampler: Any = SAMPLERS[name]
        return sampler(**sizes.get(name, {}))

    def target(self, name: str) -> Any:
        return {"ancestral": self.base, "look_ahead": self.gam, "rejection": self.gam}.get(name, self.p)

    def proposal(self, name: str) -> Any:
        return None if name in ("ancestral", "look_ahead", "rejection") else self.other


def stream(name: str, w: World) -> list[Any]:
    """With a proposal of its own, so that the base is scored, and in several contexts."""
    return list(
        w.sampler(name).stream(w.target(name), 6, proposal=w.proposal(name), context=w.context, generator=w.generator())
    )


MEASURES: dict[str, Callable[[World], Any]] = {
    "evaluation.decision_regions.decision_regions": lambda w: decision_regions.decision_regions(
        lambda x: w.classifier.logits(x.float().view(-1, 1, 1, 2).expand(-1, -1, 2, -1)), GRID
    ),
    "evaluation.few_labels.class_logits": lambda w: few_labels.class_logits(w.classifier, w.images),
    "evaluation.few_labels.density_centile": lambda w: few_labels.density_centile(w.classifier, w.images, 30.0),
    "evaluation.few_labels.few_label_figures": lambda w: few_labels.few_label_figures(
        w.classifier, w.images, torch.arange(8) % 3, maker=w.maker, samples=9
    ),
    "evaluation.few_labels.log_densities": lambda w: few_labels.log_densities(w.classifier, w.images),
    "estimators.divergences.divergence": lambda w: [
        divergences.divergence("kl", w.p, w.other, context=w.context),
        divergences.divergence("kl", w.p, w.p, proposal=w.other, context=w.context, draws=20, generator=w.generator()),
        divergences.divergence("jensen_shannon", w.long, w.long_p, draws=20, generator=w.generator()),
    ],
    "estimators.draws.read_units": lambda w: draws.read_units(
        drawing.draw(w.sampler("importance"), w.gam, 10, generator=w.generator()), features=w.features, target=w.gam
    ),
    "estimators.draws.read_portion": lambda w: draws.read_portion(
        drawing.draw(w.sampler("importance"), w.gam, 10, generator=w.generator()), features=w.features, target=w.gam
    ).values,
    "estimators.divergences.draw_share": lambda w: divergences.draw_share(
        [w.base, w.other], (w.p, w.other), 20, context=w.context, generator=w.generator()
    ).log_first,
    "estimators.divergences.known_divergence": lambda w: divergences.known_divergence("kl", w.p, w.other, w.context),
    "estimators.divergences.entropy": lambda w: [
        divergences.entropy(w.p, context=w.context),
        divergences.entropy(w.long_p, draws=20, generator=w.generator()),
    ],
    "estimators.orders.order_log_probs": lambda w: orders.order_log_probs(
        w.any_order, [0, 2, 1, 1], given=[1], orders=4, generator=w.generator()
    ),
    "estimators.orders.log_probs_by_order": lambda w: orders.log_probs_by_order(
        w.any_order, torch.tensor([[0, 1]]),
        Context(Sequences(torch.tensor([[2]]), torch.tensor([1])), torch.tensor([[1, 0, 2]])),
        orders.Orders.of(2, 2, w.generator()),
    ),
    "estimators.exact.table": lambda w: exact.table(
        lambda x: w.energy(x), ENDING, device=torch.device("cpu")
    ),
    "estimators.exact.log_scores": lambda w: exact.log_scores(w.p, w.context),
    "estimators.exact.log_z": lambda w: exact.log_z(w.p, w.context),
    "estimators.exact.log_probabilities": lambda w: exact.log_probabilities(w.p, w.context),
    "estimators.exact.moments": lambda w: exact.moments(w.gam, w.features, w.context),
    "estimators.exact.divergence": lambda w: exact.divergence("kl", w.p, w.other, w.context),
    "estimators.exact.entropy": lambda w: exact.entropy(w.p, w.context),
    "estimators.per_step.future_energies": lambda w: per_step.future_energies(
        w.base, w.energy, w.stems, w.logits, w.after, None, 3, generator=w.generator()
    ),
    "estimators.per_step.Closing.energies": lambda w: per_step.Closing(w.energy, ENDING).energies(
        torch.tensor([0, 1, 1]), torch.arange(3), w.one
    ),
    "estimators.last_step.last_step": lambda w: last_step.last_step(w.fixed, w.energy, fixed(w), w.context),
    "estimators.log_z.log_z": lambda w: log_z.log_z(
        drawing.draw(w.sampler("importance"), w.gam, 10, generator=w.generator()), target=w.gam
    ),
    "estimators.moments.moments": lambda w: moment_estimates.moments(
        drawing.draw(w.sampler("importance"), w.gam, 10, generator=w.generator()), w.features, target=w.gam
    ),
    "estimators.per_step.per_step": lambda w: per_step.per_step(
        w.base, w.energy, w.x, w.context, n=3, generator=w.generator()
    ),
    "estimators.per_step.Closing.log_mean": lambda w: per_step.Closing(w.energy, ENDING).log_mean(
        torch.tensor([0, 1, 1]), torch.zeros(3).double(), w.one
    ),
    "estimators.divergences.draw_comparison": lambda w: divergences.draw_comparison(
        [w.base, w.other], (w.p, w.other), 20, context=w.context, generator=w.generator()
    ),
    "estimators.divergences.comparison_of": lambda w: divergences.comparison_of(
        drawing.draw(w.sampler("importance"), w.p, 10, generator=w.generator()), w.p, w.other
    ),
    "estimators.draws.Support.see": lambda w: seen(w),
    "evaluation.cross_entropy.bits_per_dimension": lambda w: cross_entropy.bits_per_dimension(
        w.base, w.x, context=w.context
    ),
    "evaluation.cross_entropy.bits_difference": lambda w: cross_entropy.bits_difference(
        w.base, w.other, w.x, context=w.context
    ),
    "evaluation.cross_entropy.cross_entropy": lambda w: [
        cross_entropy.cross_entropy(w.base, w.x, context=w.context),
        cross_entropy.cross_entropy(w.p, w.x, log_z=Estimate.exact(0.5)),
    ],
    "evaluation.cross_entropy.cross_entropy_difference": lambda w: cross_entropy.cross_entropy_difference(
        w.base, w.other, w.x, context=w.context
    ),
    "evaluation.cross_entropy.negative_log_scores": lambda w: cross_entropy.negative_log_scores(w.p, w.x, w.context),
    "evaluation.exact_cross_entropy.exact_cross_entropy": lambda w: exact_cross_entropy.exact_cross_entropy(
        w.language, w.base, context=w.one
    ),
    "evaluation.exposure_bias.exposure_bias": lambda w: [
        exposure_bias.exposure_bias(w.base, w.other, w.everything),
        exposure_bias.exposure_bias(
            w.base, w.other, w.everything, begins=torch.ones(w.base.space.vocabulary, dtype=torch.bool)
        ),
    ],
    "evaluation.exposure_bias.after_own_prefix": lambda w: exposure_bias.after_own_prefix(w.base, w.x, w.context),
    "evaluation.moments.frequencies": lambda w: means.frequencies(fresh(w.x), w.features),
    "evaluation.next_words.next_words": lambda w: next_words.next_words(
        w.base, w.energy, w.one, candidates=2, n=3, generator=w.generator()
    ),
    "evaluation.segments.segment_cost": lambda w: segments.segment_cost(
        lstm(FIXED, dropout=0.5), torch.arange(24) % 3, segment=5, columns=2
    ),
    "evaluation.cache_pointer.cache_pointer_cost": lambda w: cache_pointer.cache_pointer_cost(
        w.carrying, torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 1]), segment=4
    ),
    "evaluation.cross_entropy.stream_cost": lambda w: cross_entropy.stream_cost(
        w.fixed, torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 1])
    ),
    "evaluation.dynamic.dynamic_evaluation": lambda w: dynamic.dynamic_evaluation(
        w.fixed, torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 1]), learning_rate=0.1, segment=2, blocks=3
    ),
    "evaluation.dynamic.gradient_statistics": lambda w: dynamic.gradient_statistics(
        w.fixed, torch.tensor([0, 1, 2, 0, 0, 1, 2, 2, 1]), rows=2, segment=2
    ),
    "evaluation.context_length.context_losses": lambda w: context_length.context_losses(
        w.fixed, torch.tensor([0, 1, 2, 0, 0, 1]), [1, 2], torch.tensor([3, 5])
    ),
    "evaluation.rank.log_probability_matrix": lambda w: rank.log_probability_matrix(w.fixed, short(w)),
    "evaluation.rank.pairwise_divergence": lambda w: rank.pairwise_divergence(w.fixed, short(w)),
    "evaluation.token_search.scores_of": lambda w: token_search.scores_of(w.energy, w.base, w.x, w.context),
    "evaluation.token_search.search": lambda w: token_search.search(
        w.energy, w.base, w.x, w.context, how=token_search.TokenSearch(steps=2, candidates=2), generator=w.generator()
    ),
    "evaluation.linear_probe.fixed_features": lambda w: linear_probe.fixed_features(w.classifier.features, w.images),
    "evaluation.linear_probe.linear_probe": lambda w: linear_probe.linear_probe(
        w.classifier.features, *(linear_probe.Labelled(w.images, torch.arange(8) % 3) for _ in range(2)), epochs=2,
        batch=4, generator=w.generator(),
    ),
    "evaluation.ranking.rank_by_energy": lambda w: ranking.rank_by_energy(w.points, torch.ones(5, 2).double()),
    "evaluation.grid.density_on_grid": lambda w: grid.density_on_grid(w.points_setting().target, GRID),
    "evaluation.grid.energy_on_grid": lambda w: grid.energy_on_grid(w.points, GRID),
    "evaluation.grid.grid_moments": lambda w: grid.grid_moments(GRID, torch.zeros(16).double(), [w.points]),
    "samplers.point_moves.log_score_slope": lambda w: point_moves.log_score_slope(
        w.points_setting(), torch.ones(3, 2).double()
    ),
    "samplers.point_moves.random_walk": lambda w: w.moved_points(partial(point_moves.random_walk, step_size=1.0)),
    "samplers.point_moves.langevin": lambda w: w.moved_points(partial(point_moves.langevin, step_size=1.0)),
    "samplers.point_moves.unadjusted_langevin": lambda w: w.moved_points(
        partial(point_moves.unadjusted_langevin, step_size=1.0)
    ),
    "samplers.point_moves.PointMove.__call__": lambda w: w.moved_points(point_moves.PointMove("langevin", None)),
    "samplers.beam.beam_search": lambda w: beam.beam_search(w.base, w.context, width=2, best=2),
    "samplers.beam.decode_contexts": lambda w: beam.decode_contexts(w.base, w.context, width=2),
    "samplers.draw.log_weights": lambda w: [
        drawing.log_weights(target, w.other, w.x, torch.zeros(3).double(), w.context)
        for target in (w.p, w.base, w.gam)
    ],
    "samplers.draw.Setting.propose": lambda w: w.setting(w.other, w.context).propose(2),
    "samplers.draw.Setting.log_weights": lambda w: w.setting(w.other, w.context).log_weights(
        w.x, torch.zeros(3).double()
    ),
    "samplers.draw.stream": lambda w: list(
        drawing.stream(w.sampler("smc"), w.p, 8, proposal=w.other, generator=w.generator())
    ),
    "samplers.draw.BatchSampler.stream": lambda w: list(
        w.sampler("smc").stream(w.p, 8, proposal=w.other, generator=w.generator())
    ),
    "samplers.joint.generate": lambda w: joint.generate(w.base, w.energy, w.one, generator=w.generator()),
    "samplers.joint.generate_each": lambda w: list(
        joint.generate_each(w.base, w.energy, [w.one], generator=w.generator(), workers=Workers())
    ),
    "samplers.look_ahead.draw_scored": lambda w: look_ahead.draw_scored(
        w.gam, 6, ahead=w.guided, features=w.features, rows=4, generator=w.generator()
    ),
    "samplers.draw.draw": lambda w: [
        drawing.draw(w.sampler("smc"), w.p, 8, proposal=w.other, generator=w.generator()),
        drawing.draw(w.sampler("metropolis"), w.p, 8, proposal=w.other, generator=w.generator()),
        drawing.draw(w.sampler("importance"), w.p, 8, proposal=w.other, generator=w.generator(), workers=Workers()),
    ],
    "samplers.joint.energy_resampling": lambda w: [
        energy_resampling(w.base, w.context, candidates=3, proposal=w.other, generator=w.generator()),
        energy_resampling(w.base, w.context, candidates=3, distinct=True, generator=w.generator()),
    ],
    "samplers.beam.greedy": lambda w: beam.greedy(w.base, w.context),
    "samplers.guided_walk.Walking.log_prob": lambda w: [
        w.guided.log_prob(w.x, w.context), w.masked.log_prob(w.x, w.context)
    ],
    "samplers.guided_walk.Walking.sample": lambda w: [
        w.guided.sample(3, w.context, generator=w.generator()), w.masked.sample(3, w.context, generator=w.generator())
    ],
    "samplers.guided.Guided.laws": lambda w: w.guided.laws(w.x),
    "samplers.guided.Guided.sample_with_log_prob": lambda w: w.guided.sample_with_log_prob(
        3, w.context, generator=w.generator()
    ),
    "samplers.guided.Guided.walk": lambda w: w.guided.walk(3, w.context, generator=w.generator()),
    "samplers.masked.Masked.walk": lambda w: w.masked.walk(3, w.context, generator=w.generator()),
    "samplers.look_ahead.guided": lambda w: ahead(
        look_ahead.guided(w.gam, draws=20, context=w.context, generator=w.generator())
    ),
    "samplers.look_ahead.guided_for": lambda w: ahead(
        look_ahead.guided_for(w.sampler("importance"), w.gam, 20, draws=20, generator=w.generator())
    ),
    "samplers.look_ahead.unguided": lambda w: ahead(look_ahead.unguided(w.gam, w.context)),
    "samplers.look_ahead.learnt": lambda w: rounds_of(
        look_ahead.learnt(w.gam, learning=FEW_ROUNDS, draws=20, context=w.context, generator=w.generator())
    ),
    "samplers.learning.Learning.learn": lambda w: rounds_of(
        FEW_ROUNDS.learn(w.gam, w.guided, generator=w.generator())
    ),
    "samplers.look_ahead.LookAhead.proposal": lambda w: ahead(
        w.sampler("look_ahead").proposal(w.gam, generator=w.generator())
    ),
    "samplers.metropolis.Metropolis.attempted": lambda w: list(
        Metropolis(chains=4, burn_in=3).attempted(w.setting(w.other), 6)
    ),
    "samplers.rejection.CountingSampler.attempts": lambda w: list(
        Metropolis(chains=4, burn_in=3).attempts(w.p, 6, proposal=w.other, generator=w.generator())
    ),
    "samplers.draw.walkers_at": lambda w: walkers_at(w.scene, w.x, torch.zeros(3).double()),
    "samplers.draw.begin": lambda w: begin(w.scene._replace(generator=w.generator()), 3),
    "samplers.metropolis.independent_move": lambda w: w.moved(metropolis.independent_move),
    "samplers.metropolis.suffix": lambda w: w.moved(metropolis.suffix),
    "samplers.metropolis.token": lambda w: w.moved(metropolis.token),
    "samplers.metropolis.step": lambda w: metropolis.step(
        w.walkers, metropolis.suffix, w.scene._replace(generator=w.generator())
    ),
    "samplers.rejection.QuasiRejection.ceiling": lambda w: QuasiRejection().ceiling(w.setting(w.other)),
    "samplers.rejection.QuasiRejection.attempted": lambda w: list(
        QuasiRejection().attempted(w.setting(w.other), 4)
    ),
    "samplers.metropolis.redraw": lambda w: metropolis.redraw(
        w.base, w.walkers.x, w.walkers.x.mask(), w.context, keep_length=False, generator=w.generator()
    ),
    "samplers.rejection.Rejection.attempted": lambda w: list(
        Rejection().attempted(w.setting(target=w.gam), 4)
    ),
    "samplers.smc.energy": lambda w: smc.energy(w.prefixes()),
} | {
    f"{sampler.__module__.removeprefix('ebar.')}.{sampler.__name__}.batches": partial(stream, name)
    for name, sampler in SAMPLERS.items()
}  # fmt: skip

# Functions of numbers, texts, spaces, automata and random numbers.
DOES_NOT_MEASURE = {
    "estimators.divergences": "compared kl_from_model kl_to_model sampled source_of sources_for",
    "estimators.effective_samples": "budget budget_or_reason effective_samples "
    "effective_samples_of_base mean_influence same_draws",
    "estimators.draws": "Support.warnings Support.widen check_draws few_groups log_totals units_of",
    "estimators.orders": "Orders.of over_orders",
    "estimators.exact": "common_space device_of is_enumerable",
    "estimators.joint_perplexity": "cost_difference doubt interval joint_perplexity",
    "estimators.log_z": "certified_log_z certified_perplexity check_inside from_batches log_mean log_z_of",
    "estimators.moments": "feature_means means_by_name moments_of weighted_mean",
    "estimators.per_step": "Steps.places check_own check_rows futures_doubt mean_between Closing.sequences one_row",
    # A segment is read in the model's own mode: whoever measures by segments is above.
    "evaluation.accuracy": "accuracy accuracy_by_subset error_rate",
    "evaluation.answers": "answer_f1 answer_scores exact_match matches normalised_answer overlap",
    "evaluation.correlation": "matthews_correlation pearson_correlation spearman_correlation",
    "evaluation.retrieval": "expected_reciprocal_rank ndcg",
    "evaluation.reading": "at_beginning check_stream segment_log_probs",
    "evaluation.blocks": "block_mean",
    "evaluation.means": "few plain_mean plain_share",
    "evaluation.dynamic": "from_old_scaling",
    "evaluation.diversity": "bleu_of distinct self_bleu items_of ngrams repeated_tokens unique_difference "
    "unique_ratios",
    "evaluation.energy_distributions": "energy_distributions",
    "evaluation.entropy_gradient": "entropy_gradient_quality",
    "evaluation.exact_cross_entropy": "count_prefixes per_token tilted_cross_entropy",
    "evaluation.exposure_bias": "win_rate words_of",
    "evaluation.few_labels": "fake_share true_share",
    "evaluation.decision_regions": "Regions.boundary Regions.boundary_in_fake",
    "evaluation.finite_semi_supervised": "FeatureSpace.conditions FeatureSpace.correct FeatureSpace.discriminators "
    "FeatureSpace.separated cover error_rate fake_class_maximum fake_class_objective supervised_maximum "
    "supervised_objective twin",
    "evaluation.moments": "frequency mean_length moment_distance true_moment true_moments",
    "evaluation.next_words": "NextWords.others NextWords.under_base NextWords.under_joint Strata.share",
    "evaluation.cross_entropy": "StreamCost.bits_per StreamCost.perplexity_per cost_of_windows",
    "evaluation.segments": "in_columns cost_by_blocks at_evaluation",
    "evaluation.context_length": "relative_effective_context_lengths relative_gain",
    "evaluation.dependencies": "count_dependencies count_pairs covered dependencies seen_by_targets",
    "evaluation.dialogue": "answer_bleu",
    "evaluation.speed": "speed",  # whatever work it is given
    "evaluation.grid": "Grid.areas Grid.axes Grid.box Grid.nearest Grid.nodes discriminator_on_grid grid_around "
    "grid_kl grid_log_z histogram pairwise_kl",
    "evaluation.classifier_score": "classifier_score",
    "evaluation.best_of_n": "exact_best expected_best kl_bound n_for",
    "evaluation.ranking": "Ranking.first Ranking.last distance_to_mean rank_correlation share_of",
    "evaluation.rank": "Spectrum.above Spectrum.share_below numerical_rank singular_values spaced_contexts",
    "evaluation.ratings": "Key.to_json blind coin_p_value exact_share pairs_needed read_key read_ratings sign_test "
    "sign_test_power compare_verdicts paired_difference verdict",
    "evaluation.token_search": "Scores.log_q_per_token Scores.mean_energy Scores.taken_for_real Searched.rows "
    "random_tokens",
    "evaluation.translation": "bleu bleu_by_length bleu_counts bleu_difference bleu_of_counts check_pairs "
    "meteor missing_for_meteor resampled_sums rouge",
    "samplers.annealed": "next_rung",
    "samplers.beam": "Beams.first alike by_source restored length_normalised_score limits",
    "samplers.draw": "BatchSampler.batches group_size numbered proposal_for shares "
    "Bounded.log_bound Foresighted.expected_log_weight RatioBounded.log_ratio_bound Walkers.select",
    "samplers.files": "load_draws save_draws",
    # One step at a time is in the model's own mode, as for every stepwise model: whoever measures by steps is above.
    "samplers.guided": "Guided.advance Guided.expected_log_weight Guided.log_ratio_bound Guided.plain Guided.start "
    "Guided.tilted Guided.corrected Guided.masking GuidedState.select",
    "samplers.guided_walk": "Steering.correct Steering.corrected Steering.found Steering.guide Steering.steer "
    "normalised walk_block",
    "samplers.masked": "Masked.advance Masked.expected_log_weight Masked.start MaskedState.select",
    # What is learnt has no dropout; what it learns from was measured on the way.
    "samplers.correction": "Correction.all Correction.forward Correction.of Correction.standardise Examples.join "
    "Examples.select Kept.examples Regression.fit Regression.loss Trace.add Trace.finish",
    "samplers.learning": "Learning.restore open_places",
    "samplers.gaps": "Outlook.allowed Outlook.followed foreseen gaps_of without_forbidden",
    "samplers.guided_states": "JointStates.open JointStates.others_bound JointStates.scores joint_states no_states",
    "samplers.joint": "chosen_by_energy",
    "samplers.look_ahead": "check_look_ahead foresees",
    "samplers.metropolis": "chain_groups integrated_autocorrelation_time moves_in",
    "samplers.point_moves": "PointMove.adapt",
    "samplers.rejection": "Rejection.bound CountingSampler.attempted coin weighed",
    "samplers.importance": "at_offsets flat_indices in_groups multinomial repeated resampled systematic "
    "particle_systems",
    "samplers.smc": "Cloud.select base_to_follow none potential twist_for",
    "samplers.surrogate": "log_expected_weights log_following log_largest_ratio NGram.fit Surrogate.fit Tally.add "
    "Tally.empty Uniform.fit",
    "samplers.trade_off": "acceptance kl_from_target log_beta_for total_variation_from_target trade_off",
}


def fixed(w: World) -> Sequences:
    return Sequences(torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2], [2, 0, 0, 1]]), torch.full((3,), 4))


def short(w: World) -> Sequences:
    return Sequences(torch.tensor([[0, 1], [1, 1], [2, 0]]), torch.tensor([2, 1, 2]))


def fresh(x: Sequences) -> Sequences:
    """Features remember what they said of the very same tensors."""
    return Sequences(x.tokens.clone(), x.lengths)


def seen(w: World) -> Any:
    support = Support(w.gam)
    support.see(fresh(w.everything), 1)
    return [support.smallest, support.largest]


def rounds_of(learnt: tuple[Guided, list[Any]]) -> list[Any]:
    """What each round has shown but the time it took, and where the best proposal goes."""
    proposal, rounds = learnt
    return [one.effective for one in rounds] + ahead(proposal)


def ahead(proposal: Guided) -> list[Tensor]:
    return [proposal.log_ahead, proposal.log_final]


def digits(found: Any) -> Iterator[Any]:
    """Every number in what was found."""
    if isinstance(found, Tensor):
        yield from found.detach().double().flatten().tolist()
    elif isinstance(found, dict):
        yield from digits(list(found.values()))
    elif isinstance(found, Iterable) and not isinstance(found, str):
        for part in found:
            yield from digits(part)
    else:
        yield found


def public_callables() -> set[str]:
    names = set()
    for package in ("estimators", "evaluation", "samplers"):
        root = importlib.import_module(f"ebar.{package}")
        for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            module = importlib.import_module(info.name)
            own = {name: thing for name, thing in vars(module).items() if _public(name, thing, info.name)}
            place = info.name.removeprefix("ebar.")
            names |= {f"{place}.{name}" for name, thing in own.items() if inspect.isfunction(thing)}
            for name, thing in own.items():
                if inspect.isclass(thing):
                    names |= {f"{place}.{name}.{method}" for method in _methods(thing)}
    return names


def _public(name: str, thing: Any, module: str) -> bool:
    return not name.startswith("_") and getattr(thing, "__module__", None) == module


def _methods(thing: type) -> list[str]:
    """Constructors store what they are given; a class that can be called measures by that."""
    kinds = (staticmethod, classmethod)
    found = [name for name, part in vars(thing).items() if inspect.isfunction(part) or isinstance(part, kinds)]
    return [name for name in found if name == "__call__" or not name.startswith("_")]


def listed() -> set[str]:
    return {f"{module}.{name}" for module, names in DOES_NOT_MEASURE.items() for name in names.split()}


def test_every_public_callable_is_said_to_measure_or_not_to():
    assert public_callables() - set(MEASURES) - listed() == set(), "give each a line in one of the two tables"
    assert (set(MEASURES) | listed()) - public_callables() == set(), "these are no more"
    assert set(MEASURES) & listed() == set()


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_the_world_does_have_dropout(world):
    world.set_mode(False)
    quiet = teacher_forced(world.base, world.everything.tokens), world.energy(world.everything)
    world.set_mode(True)
    loud = teacher_forced(world.base, world.everything.tokens), world.energy(world.everything)
    for one, other in zip(quiet, loud, strict=True):
        assert not torch.allclose(one, other)


@pytest.mark.parametrize("name", MEASURES)
def test_what_measures_gives_the_same_digits_in_training_mode_and_leaves_modes_alone(name, world):
    measure = MEASURES[name]
    world.set_mode(False)
    wanted = list(digits(measure(world)))
    assert any(isinstance(number, float) for number in wanted)
    world.set_mode(True)
    modes = world.modes()
    found = list(digits(measure(world)))
    assert world.modes() == modes
    assert [str(number) for number in found] == [str(number) for number in wanted]


def test_modes_come_back_when_an_energy_raises(world):
    def broken(x: Sequences, context: Context | None = None) -> Tensor:
        assert not world.base.training
        raise ZeroDivisionError

    world.set_mode(True)
    modes = world.modes()
    with pytest.raises(ZeroDivisionError):
        exact.log_z(Tilted(world.base, broken), world.context)
    with pytest.raises(ZeroDivisionError):
        drawing.draw(world.sampler("smc"), Tilted(world.base, broken), 8, generator=world.generator())
    assert world.modes() == modes
