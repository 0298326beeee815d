"""What is learnt, and how: an objective turns a batch into losses, each for one player."""

from typing import Any

from ebar.objectives.activation_regularisation import ActivationRegularised as ActivationRegularised
from ebar.objectives.auxiliary_losses import AuxiliaryLosses as AuxiliaryLosses
from ebar.objectives.earm import Earm as Earm
from ebar.objectives.policy_gradient import PolicyGradient as PolicyGradient
from ebar.objectives.policy_gradient import Rounds as Rounds
from ebar.objectives.pretraining import Pretraining as Pretraining
from ebar.objectives.scheduled_sampling import MaximumLikelihood as MaximumLikelihood
from ebar.objectives.scheduled_sampling import ScheduledSampling as ScheduledSampling
from ebar.tables import Table

# A line here puts an objective in the configuration, the command line and the contract tests.
# PolicyGradient has none: it needs a target, which no command has yet.
OBJECTIVES: Table[Any] = Table(
    "objective",
    {
        "maximum_likelihood": MaximumLikelihood,
        "activation_regularised": ActivationRegularised,
        "scheduled_sampling": ScheduledSampling,
        "earm": Earm,
        "auxiliary_losses": AuxiliaryLosses,
        "pretraining": Pretraining,
    },
    given=("model", "player"),
)
