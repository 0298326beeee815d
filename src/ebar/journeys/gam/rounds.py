"""One round of a GAM: λ, draws of P_λ, and the model trained on them."""

from collections.abc import Mapping
from dataclasses import dataclass

from ebar.features.feature import Features
from ebar.models.tilted import Tilted
from ebar.training.distillation import Distilled
from ebar.training.moment_matching.matching import Fitted
from ebar.training.train import History
from ebar.types import Sequences, Stepwise


@dataclass(frozen=True, kw_only=True)
class GamRound:
    """What a round began with and what it made."""

    base: Stepwise  # what it began with: r, from the second round on π refined on the data
    teacher: Stepwise  # the model that λ was fitted to: the base or, in cyclical training, the last copy of π
    fitted: Fitted
    distilled: Distilled  # how the draws were made, and how near they are to P_λ
    draws: Sequences  # of P_λ
    student: Stepwise  # π
    histories: Mapping[str, History]  # of its trainings: "π" and, where another round follows, "π refined on the data"

    def tilted(self, features: Features) -> Tilted:
        """P_λ."""
        return self.fitted.tilted(self.teacher, features)
