"""What `ebar gam` is told: the data, a hunch about features, and how each of the stages is to be done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveInt

from ebar.backbones import BACKBONES
from ebar.build.terms import absolute, terms_of
from ebar.config.options import add_kind, chosen_kind, group, parser
from ebar.config.run import Chosen
from ebar.data.kinds import DATA
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.journeys.gam.settings import BasePhase, ContinuationPhase, Distillation, Phase, RefinementPhase, StudentPhase
from ebar.samplers import SAMPLERS
from ebar.training.moment_matching import MATCHING, Schedule


@dataclass(frozen=True, kw_only=True)
class Gam:
    """Everything that decides the result."""

    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    data: Chosen
    features: tuple[str, ...]  # terms KIND:ARGUMENT, ! in front where absence counts
    backbone: Chosen
    head: Chosen = field(default_factory=lambda: Chosen(kind="softmax", options={}))
    base: Phase = field(default_factory=BasePhase)
    matching: Chosen = field(default_factory=lambda: Chosen(kind="newton", options={}))
    regime: Literal["two_stage", "cyclical"] = "two_stage"
    rounds: int = 1  # of λ, distillation and π; from the second on π takes r's place, refined on D
    fresh: bool = False  # whether the first π begins with random weights, not with r's
    distillation: Distillation = field(default_factory=Distillation)
    sampler: Chosen = field(default_factory=lambda: Chosen(kind="quasi_rejection", options={}))
    student: Phase = field(default_factory=StudentPhase)
    student_backbone: Mapping[str, Any] = field(default_factory=dict)  # where a fresh π's differs from r's
    continuation: Phase = field(default_factory=ContinuationPhase)
    refinement: Phase = field(default_factory=RefinementPhase)
    checks: int = 10_000  # draws for log Z and KL
    exact: bool = False  # cross-entropies over the whole language too, where it is known and finite


# Key → table, the default, and the arguments that `build` provides.
CHOICES: dict[str, tuple[Mapping[str, Any], str, tuple[str, ...]]] = {
    "data": (DATA, "language", ()),
    "backbone": (BACKBONES, "lstm", ("vocabulary",)),
    "head": (HEADS, "softmax", ("vocabulary", "width")),
    "matching": (MATCHING, "newton", ("schedule",)),  # declared by itself, where a method has one
    "sampler": (SAMPLERS, "quasi_rejection", ()),
}
SCHEDULED = ("rs", "snis")  # kinds of matching with a schedule of steps
PHASES: dict[str, type[Phase] | type[Distillation]] = {
    "base": BasePhase,
    "distillation": Distillation,
    "student": StudentPhase,
    "continuation": ContinuationPhase,
    "refinement": RefinementPhase,
}


def gam_parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """The options of a journey; those of a table's entry are declared once the entry is known."""
    options = parser(words, command, purpose, example)
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--features", nargs="+", type=str, default=[], metavar="KIND:ARGUMENT",
        help="what P_λ is to get right: as in ebar sample --tilt, but without coefficients")  # fmt: skip
    options.add_argument("--ft", type=str | None, default=None,
        help="in place of features: 7 bits, which of m, m+0, m/2, d0 … d3 of a language's motif m")  # fmt: skip
    options.add_argument("--rounds", type=PositiveInt, default=1,
        help="of λ, samples and π; from the second on, π takes the place of r, refined on the data alone")  # fmt: skip
    options.add_argument("--regime", choices=["two_stage", "cyclical"], default="two_stage",
        help="λ once and then samples, or both in turns while π learns")  # fmt: skip
    options.add_argument("--fresh", action="store_true", help="π begins with random weights, not with r's")
    options.add_argument("--student_backbone", type=dict[str, Any], default={},
        help="options in which a fresh π's backbone differs from r's, such as '{hidden: 64}'")  # fmt: skip
    options.add_argument("--checks", type=PositiveInt, default=10_000,
        help="draws of P_λ, for its log Z and for KL(p‖π)")  # fmt: skip
    options.add_argument("--exact", action="store_true",
        help="cross-entropies over the whole language too, where it is known and finite")  # fmt: skip
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of data, weights, order, dropout and draws")
    options.add_argument("--device", type=str, default="cpu", help="where to compute, such as cpu or cuda")
    options.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="of the weights")
    for key, (table, default, provided) in CHOICES.items():
        add_kind(options, words, key, table, default, skip=provided)
    if chosen_kind(words, "matching", "newton", MATCHING) in SCHEDULED:
        options.add_class_arguments(Schedule, "matching.schedule", instantiate=False)
    for key, phase in PHASES.items():
        options.add_class_arguments(phase, key)
    return options


def as_gam(arguments: Namespace) -> Gam:
    """Parsed options as the frozen configuration."""
    chosen: dict[str, Any] = {}
    for key in CHOICES:
        options = group(arguments, key)
        chosen[key] = Chosen(kind=options.pop("kind"), options=options)
    chosen["matching"] = _matching(chosen["matching"])
    chosen["sampler"] = _sampler(chosen["sampler"])
    phases: dict[str, Any] = {key: phase(**group(arguments, key)) for key, phase in PHASES.items()}
    if arguments.distillation.validation < 1:
        raise UserError(f"distillation.validation must be 1 or more, not {arguments.distillation.validation}.")
    plain = {key: arguments[key] for key in ("seed", "device", "dtype", "regime", "rounds", "fresh", "checks", "exact")}
    return Gam(
        **plain, **chosen, **phases, features=_terms(arguments, chosen["data"]),
        student_backbone=dict(arguments.student_backbone),
    )  # fmt: skip


def _terms(arguments: Namespace, data: Chosen) -> tuple[str, ...]:
    if arguments.ft is None:
        return tuple(map(absolute, arguments.features))
    if arguments.features:
        raise UserError("Give --features or --ft, not both.")
    motif = data.options.get("motif")
    if motif is None:
        raise UserError("--ft names features of a language's motif, and these data have none: give --features.")
    return tuple(terms_of(motif, arguments.ft))


def _matching(chosen: Chosen) -> Chosen:
    options = dict(chosen.options)
    for name, value in [*options.items(), *options.get("schedule", {}).items()]:
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise UserError(f"matching.{name} must be 1 or more, not {value}.")
    if "schedule" in options:
        options["schedule"] = Schedule(**options["schedule"])
    return Chosen(kind=chosen.kind, options=options)


def _sampler(chosen: Chosen) -> Chosen:
    """Lists of a file or a flag are tuples of a sampler."""
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in chosen.options.items()}
    return Chosen(kind=chosen.kind, options=listed)
