"""`ebar gam`: the data, the features, and how each stage is done.

Fit an autoregressive model r, find how much each of your features must count for P = r·exp⟨λ, φ⟩ to have the data's
moments, draw from P, and train π on the draws. Run it again to go on where it was stopped.

Example:
    ebar gam --name motif --data.motif 10001011111000 --data.size 500 --ft 1001111
    ebar gam --name mine --data.kind lines --data.train sequences.txt --features 'expression:(01){3}'
    ebar gam --name pairs --data.kind parallel --data.train pairs.tsv --backbone.kind encoder_decoder \
        --features 'agrees:nicht|kein=>not|no'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ebar.bounds import Count
from ebar.build.terms import Term, terms_of
from ebar.config.reader import Chosen, Manual, choice, list_option
from ebar.config.train import ModelConfig
from ebar.errors import UserError
from ebar.journeys.gam.settings import BasePhase, ContinuationPhase, Distillation, Phase, RefinementPhase, StudentPhase
from ebar.samplers import SAMPLERS
from ebar.training.moment_matching import MATCHING

MANUAL = Manual.of(__doc__, defaults={"name": "gam"})


@dataclass(frozen=True, kw_only=True)
class GamConfig(ModelConfig):
    """Everything that decides the result."""

    features: tuple[Term, ...] = list_option(
        "KIND:ARGUMENT", lambda: "what P_λ is to get right: as in ebar sample --tilt, but without coefficients"
    )
    ft: str | None = None
    """In place of features: 7 bits, which of m, m+0, m/2, d0 … d3 of a language's motif m."""
    base: Phase = field(default_factory=BasePhase)
    matching: Chosen = choice(MATCHING, "newton")
    regime: Literal["two_stage", "cyclical"] = "two_stage"
    """λ once and then samples, or both in turns while π learns."""
    rounds: Count = 1
    """Of λ, samples and π; from the second on, π takes the place of r, refined on the data alone."""
    fresh: bool = False
    """Whether π begins with random weights, not with r's."""
    distillation: Distillation = field(default_factory=Distillation)
    sampler: Chosen = choice(SAMPLERS, "quasi_rejection")
    student: Phase = field(default_factory=StudentPhase)
    student_backbone: Mapping[str, Any] = field(default_factory=dict)
    """Options in which a fresh π's backbone differs from r's, such as '{hidden: 64}'."""
    continuation: Phase = field(default_factory=ContinuationPhase)
    refinement: Phase = field(default_factory=RefinementPhase)
    maximal_length: Count | None = None
    """Tokens of the longest sequence that the models can make, its end included; by default the longest of the data."""
    checks: Count = 10_000
    """Draws of P_λ, for its log Z and for KL(p‖π)."""
    exact: bool = False
    """Cross-entropies over the whole language too, where it is known and finite."""

    def __post_init__(self) -> None:
        """Bits become the features that they name; what cannot be is said before any work."""
        if self.ft is not None:
            if self.features:
                raise UserError("Give --features or --ft, not both.")
            motif = self.data.options.get("motif")
            if motif is None:
                raise UserError("--ft names features of a language's motif, and these data have none: give --features.")
            object.__setattr__(self, "features", tuple(terms_of(motif, self.ft)))
            object.__setattr__(self, "ft", None)
        if not self.features:
            raise UserError("A GAM needs features: give --features, or --ft for a language with a motif.")
        if twice := sorted({term for term in self.features if self.features.count(term) > 1}):
            raise UserError(f"Features are given twice: {', '.join(twice)}.")
        if self.student_backbone and not self.fresh:
            raise UserError(
                "A π that begins with r's weights has r's backbone: ask for a fresh one to give it another."
            )
