"""Sequence models that carry an energy: P(x|C) = q(x|C)·exp(−E(x, C)).

What users write most is here by name, `ebar.Tilted`, and imported when first asked for: `import ebar` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ebar.automata import (
        Dfa as Dfa,
    )
    from ebar.automata import (
        ProbabilisticAutomaton as ProbabilisticAutomaton,
    )
    from ebar.automata import (
        compile_expression as compile_expression,
    )
    from ebar.automata import (
        lift as lift,
    )
    from ebar.backbones.encoder_decoder import EncoderDecoder as EncoderDecoder
    from ebar.backbones.gated_pixelcnn import GatedPixelCnn as GatedPixelCnn
    from ebar.backbones.lstm import Lstm as Lstm
    from ebar.backbones.pixelcnn import PixelCnn as PixelCnn
    from ebar.backbones.transformer import Transformer as Transformer
    from ebar.data.bpe import Bpe as Bpe
    from ebar.data.languages import Language as Language
    from ebar.data.tokenisers import Alphabet as Alphabet
    from ebar.energies.conditional import ConditionalLinear as ConditionalLinear
    from ebar.energies.linear import Linear as Linear
    from ebar.energies.own_logits import OwnLogits as OwnLogits
    from ebar.errors import UserError as UserError
    from ebar.estimators.divergences import divergence as divergence
    from ebar.estimators.log_z import log_z as log_z
    from ebar.estimators.moments import moments as moments
    from ebar.evaluation.bits_per_dimension import bits_per_dimension as bits_per_dimension
    from ebar.evaluation.cross_entropy import cross_entropy as cross_entropy
    from ebar.evaluation.exact_cross_entropy import exact_cross_entropy as exact_cross_entropy
    from ebar.evaluation.exposure_bias import exposure_bias as exposure_bias
    from ebar.evaluation.frequencies import frequencies as frequencies
    from ebar.evaluation.moments import moment_distance as moment_distance
    from ebar.evaluation.moments import true_moments as true_moments
    from ebar.evaluation.translation import bleu as bleu
    from ebar.features.accepted import Accepted as Accepted
    from ebar.features.expression import Expression as Expression
    from ebar.features.feature import Features as Features
    from ebar.features.length import Length as Length
    from ebar.features.motif import Motif as Motif
    from ebar.features.ngram_count import NgramCount as NgramCount
    from ebar.features.predicate import Predicate as Predicate
    from ebar.features.starts_with import StartsWith as StartsWith
    from ebar.heads.softmax import Softmax as Softmax
    from ebar.models.autoregressive import Autoregressive as Autoregressive
    from ebar.models.from_logits import FromLogits as FromLogits
    from ebar.models.tabular import Tabular as Tabular
    from ebar.models.tilted import Tilted as Tilted
    from ebar.objectives.conditional_moments import ConditionalMoments as ConditionalMoments
    from ebar.objectives.earm import Earm as Earm
    from ebar.objectives.maximum_likelihood import MaximumLikelihood as MaximumLikelihood
    from ebar.objectives.policy_gradient import PolicyGradient as PolicyGradient
    from ebar.objectives.scheduled_sampling import ScheduledSampling as ScheduledSampling
    from ebar.samplers.ancestral import Ancestral as Ancestral
    from ebar.samplers.annealed import Annealed as Annealed
    from ebar.samplers.beam import beam_search as beam_search
    from ebar.samplers.draw import draw as draw
    from ebar.samplers.energy_resampling import energy_resampling as energy_resampling
    from ebar.samplers.files import load_draws as load_draws
    from ebar.samplers.files import save_draws as save_draws
    from ebar.samplers.importance import Importance as Importance
    from ebar.samplers.look_ahead import LookAhead as LookAhead
    from ebar.samplers.look_ahead import guided as guided
    from ebar.samplers.metropolis import Metropolis as Metropolis
    from ebar.samplers.quasi_rejection import QuasiRejection as QuasiRejection
    from ebar.samplers.rejection import Rejection as Rejection
    from ebar.samplers.resampling import Resampling as Resampling
    from ebar.samplers.smc import Smc as Smc
    from ebar.training.batches import Batches as Batches
    from ebar.training.budgeted import Budgeted as Budgeted
    from ebar.training.distillation.distil import distil as distil
    from ebar.training.distillation.distilled import Distilled as Distilled
    from ebar.training.loop import fit as fit
    from ebar.training.moment_matching import match_moments as match_moments
    from ebar.training.moment_matching.first_order import ImportanceMoments as ImportanceMoments
    from ebar.training.moment_matching.first_order import RejectionMoments as RejectionMoments
    from ebar.training.moment_matching.fitted import Fitted as Fitted
    from ebar.training.moment_matching.newton import Newton as Newton
    from ebar.training.optimisers import Adam as Adam
    from ebar.training.optimisers import AdamW as AdamW
    from ebar.training.optimisers import Asgd as Asgd
    from ebar.training.optimisers import Sgd as Sgd
    from ebar.training.players import Player as Player
    from ebar.types import (
        Context as Context,
    )
    from ebar.types import (
        Estimate as Estimate,
    )
    from ebar.types import (
        Sequences as Sequences,
    )
    from ebar.types import (
        Space as Space,
    )
    from ebar.types import (
        Weighted as Weighted,
    )

# Name → where it lives: the same as above, for when the program runs.
_PLACES = {
    "Accepted": "ebar.features.accepted",
    "Adam": "ebar.training.optimisers",
    "AdamW": "ebar.training.optimisers",
    "Alphabet": "ebar.data.tokenisers",
    "Ancestral": "ebar.samplers.ancestral",
    "Annealed": "ebar.samplers.annealed",
    "Asgd": "ebar.training.optimisers",
    "Autoregressive": "ebar.models.autoregressive",
    "Batches": "ebar.training.batches",
    "beam_search": "ebar.samplers.beam",
    "bits_per_dimension": "ebar.evaluation.bits_per_dimension",
    "bleu": "ebar.evaluation.translation",
    "Bpe": "ebar.data.bpe",
    "Budgeted": "ebar.training.budgeted",
    "compile_expression": "ebar.automata",
    "ConditionalLinear": "ebar.energies.conditional",
    "ConditionalMoments": "ebar.objectives.conditional_moments",
    "Context": "ebar.types",
    "cross_entropy": "ebar.evaluation.cross_entropy",
    "Dfa": "ebar.automata",
    "distil": "ebar.training.distillation.distil",
    "Distilled": "ebar.training.distillation.distilled",
    "divergence": "ebar.estimators.divergences",
    "draw": "ebar.samplers.draw",
    "Earm": "ebar.objectives.earm",
    "EncoderDecoder": "ebar.backbones.encoder_decoder",
    "energy_resampling": "ebar.samplers.energy_resampling",
    "Estimate": "ebar.types",
    "exact_cross_entropy": "ebar.evaluation.exact_cross_entropy",
    "exposure_bias": "ebar.evaluation.exposure_bias",
    "Expression": "ebar.features.expression",
    "Features": "ebar.features.feature",
    "fit": "ebar.training.loop",
    "Fitted": "ebar.training.moment_matching.fitted",
    "frequencies": "ebar.evaluation.frequencies",
    "FromLogits": "ebar.models.from_logits",
    "GatedPixelCnn": "ebar.backbones.gated_pixelcnn",
    "guided": "ebar.samplers.look_ahead",
    "Importance": "ebar.samplers.importance",
    "ImportanceMoments": "ebar.training.moment_matching.first_order",
    "Language": "ebar.data.languages",
    "Length": "ebar.features.length",
    "lift": "ebar.automata",
    "Linear": "ebar.energies.linear",
    "load_draws": "ebar.samplers.files",
    "log_z": "ebar.estimators.log_z",
    "LookAhead": "ebar.samplers.look_ahead",
    "Lstm": "ebar.backbones.lstm",
    "match_moments": "ebar.training.moment_matching",
    "MaximumLikelihood": "ebar.objectives.maximum_likelihood",
    "Metropolis": "ebar.samplers.metropolis",
    "moment_distance": "ebar.evaluation.moments",
    "moments": "ebar.estimators.moments",
    "Motif": "ebar.features.motif",
    "Newton": "ebar.training.moment_matching.newton",
    "NgramCount": "ebar.features.ngram_count",
    "OwnLogits": "ebar.energies.own_logits",
    "PixelCnn": "ebar.backbones.pixelcnn",
    "Player": "ebar.training.players",
    "PolicyGradient": "ebar.objectives.policy_gradient",
    "Predicate": "ebar.features.predicate",
    "ProbabilisticAutomaton": "ebar.automata",
    "QuasiRejection": "ebar.samplers.quasi_rejection",
    "Rejection": "ebar.samplers.rejection",
    "RejectionMoments": "ebar.training.moment_matching.first_order",
    "Resampling": "ebar.samplers.resampling",
    "save_draws": "ebar.samplers.files",
    "ScheduledSampling": "ebar.objectives.scheduled_sampling",
    "Sequences": "ebar.types",
    "Sgd": "ebar.training.optimisers",
    "Smc": "ebar.samplers.smc",
    "Softmax": "ebar.heads.softmax",
    "Space": "ebar.types",
    "StartsWith": "ebar.features.starts_with",
    "Tabular": "ebar.models.tabular",
    "Tilted": "ebar.models.tilted",
    "Transformer": "ebar.backbones.transformer",
    "true_moments": "ebar.evaluation.moments",
    "UserError": "ebar.errors",
    "Weighted": "ebar.types",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'ebar' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
