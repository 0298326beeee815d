"""The laws of `ebar.testing` over every table: a line added to a table is tested here."""

import inspect
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones import BACKBONES
from ebar.backbones.lstm import Lstm
from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.heads import HEADS
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, FromLogits, assemble
from ebar.models.continued import Continued, begin
from ebar.models.ngram import NGram
from ebar.models.points import UniformBox, biased_gaussians, four_gaussians, spirals, standard_normal
from ebar.models.rolling import lengthened
from ebar.models.tabular import Tabular
from ebar.models.tilted import LocallyResidual, Tilted
from ebar.objectives import OBJECTIVES
from ebar.samplers import SAMPLERS
from ebar.samplers.look_ahead import guided
from ebar.testing import (
    check_backbone,
    check_distribution,
    check_head,
    check_objective,
    check_point_distribution,
    check_sampler,
    check_stepwise,
)
from ebar.testing.samplers import small_target
from ebar.types import Clock, Context, Sequences, Space
from tests.models.carrying import carrying_model
from tests.models.test_from_logits import Network

VOCABULARY, LENGTH = 3, 6
IMAGE = {"image_height": 2, "image_width": 3, "channels": 1}
# Small sizes, and no dropout where a law compares passes in training mode; an entry that is not here has its defaults.
BACKBONE_OPTIONS: dict[str, dict[str, Any]] = {
    "lstm": {"layers": 2, "hidden": 6, "dropout": 0.0},
    "awd_lstm": {"layers": 3, "hidden": 6, "embedding": 4, "last": 5},
    "transformer": {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0},
    "transformer_xl": {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "memory": 3},
    "encoder_decoder": {"layers": 1, "encoder_layers": 1, "hidden": 8, "heads": 2, "dropout": 0.0},
    "local_xl": {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "chunk": 2},
    "xlnet": {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "convolution": {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "kernel_size": [2, 3], "kernel_dropout": 0.0},
    "pixelcnn": {"features": 4, "layers": 1},
    "gated_pixelcnn": {"features": 4, "layers": 1},
}
SAMPLER_OPTIONS: dict[str, dict[str, Any]] = {
    "metropolis": {"chains": 64, "burn_in": 20, "thin": 2},
    "smc": {"particles": 8},
    "annealed": {"particles": 8},
    "quasi_rejection": {"log_beta": 2.0},
}
OBJECTIVE_OPTIONS: dict[str, dict[str, Any]] = {
    "scheduled_sampling": {"k": 0.5, "slope": 0.0},
    "auxiliary_losses": {"steps": 20},
}
# Over their batch, or with draws for the whole of it: pieces are no sum.
NORMALISES = {"earm", "scheduled_sampling", "activation_regularised"}


def backbone_called(name: str, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    given = {"vocabulary": VOCABULARY} | {key: value for key, value in IMAGE.items() if "pixelcnn" in name}
    backbone = BACKBONES.make(name, BACKBONE_OPTIONS.get(name, {}), **given)
    with torch.no_grad():  # away from their first values, so that the past matters
        for parameter in backbone.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn(parameter.shape))
    return backbone.double().eval()


def prefixes(name: str) -> Context | None:
    """What a backbone can be given: sources of unequal length, the same number of pixels for all, any prefix."""
    if "pixelcnn" in name:
        return Context(Sequences(torch.tensor([[0, 1], [2, 1]]), torch.tensor([2, 2])))
    return Context(Sequences(torch.tensor([[0, 99, 99], [1, 0, 2]]), torch.tensor([1, 3])))


def model_called(name: str) -> Autoregressive:
    backbone = backbone_called(name)
    space = Space(VOCABULARY, LENGTH) if "pixelcnn" in name else Space(VOCABULARY, LENGTH, end=2)
    model = Autoregressive(backbone, Softmax(backbone.width, VOCABULARY), space).double().eval()
    with torch.no_grad():
        model.head.linear.weight.mul_(10)  # type: ignore[attr-defined]
    return model


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
def test_backbones(name: str, conditional: bool) -> None:
    context = prefixes(name) if conditional else None
    length = LENGTH - (0 if context is None or "pixelcnn" not in name else 2)
    if name == "encoder_decoder" and context is None:
        pytest.skip("a decoder needs a source")
    check_backbone(backbone_called(name), vocabulary=VOCABULARY, length=length - 1, context=context)


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
def test_models_of_every_backbone(name: str, conditional: bool) -> None:
    if name == "encoder_decoder" and not conditional:
        pytest.skip("a decoder needs a source")
    check_stepwise(model_called(name), prefixes(name) if conditional else None)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("name", HEADS)
def test_heads(name: str, tied: bool) -> None:
    torch.manual_seed(0)
    options, given = {}, {}
    if tied:
        if "tied" not in inspect.signature(HEADS[name]).parameters:
            pytest.skip("this head has nothing to tie")
        options, given = {"tied": True}, {"embedding": torch.nn.Parameter(torch.randn(VOCABULARY + 1, 5))}
    check_head(HEADS.make(name, options, width=5, vocabulary=VOCABULARY, **given), width=5, vocabulary=VOCABULARY)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", BACKBONES)
def test_models_of_every_backbone_and_head(name: str, head: str) -> None:
    space = Space(VOCABULARY, LENGTH) if "pixelcnn" in name else Space(VOCABULARY, LENGTH, end=2)
    conditional = name == "encoder_decoder"
    shape = IMAGE if "pixelcnn" in name else {}
    torch.manual_seed(3)
    model = assemble(space, name, BACKBONE_OPTIONS.get(name, {}), head, shape=shape, sources=conditional)
    with torch.no_grad():  # away from their first values
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn(parameter.shape))
    check_stepwise(model.double().eval(), prefixes(name) if conditional else None)


ENDING = Space(VOCABULARY, 5, end=2)


def tabular(conditions: int = 1) -> Tabular:
    return Tabular.random(ENDING, conditions=conditions, generator=Generator().manual_seed(1))


def motif_tilt() -> Tilted:
    energy = Linear(Features([Motif(motif="11", alphabet="01", end=2)]), torch.tensor([1.5]).double())
    return Tilted(tabular(), energy)


def other_models() -> dict[str, Any]:
    torch.manual_seed(2)
    network = FromLogits(Network(), Space(3, 4, end=2), beginning=3).double()
    lstm, unending = model_called("lstm"), carrying_model("transformer_xl", Space(3, 4))
    return {
        "tabular": tabular(),
        "from_logits": network,
        "truncated": tabular().truncated(temperature=1.3, top_k=2),
        "locally_residual": LocallyResidual(lstm, model_called("lstm")),
        "continued": Continued(unending, begin(unending, 1)),
        "unending": lengthened(unending, 7),
        "rolling": lengthened(carrying_model("transformer", Space(3, 4)), 7),
        "ngram": NGram.fit(torch.arange(40).pow(2) % 3, Space(3, 4), order=3),
    }


@pytest.mark.parametrize("name", other_models())
def test_models_of_every_other_kind(name: str) -> None:
    check_stepwise(other_models()[name])


def test_a_proposal_that_looks_ahead_is_a_distribution() -> None:
    check_distribution(guided(motif_tilt(), draws=200, generator=Generator().manual_seed(0)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name: str) -> None:
    made: Any = SAMPLERS.make(name, SAMPLER_OPTIONS.get(name, {}))
    if name == "ancestral":  # draws from a target that is not tilted
        check_sampler(made, lambda space: small_target(space).base)
    elif name == "look_ahead":
        check_sampler(made, _followed)
    else:
        check_sampler(made)


def _followed(space: Space) -> Tilted:
    """Tilted by a feature that an automaton follows."""
    alphabet = "".join(str(token) for token in range(space.vocabulary))
    feature = Motif(motif="11", alphabet=alphabet, end=space.end)
    return Tilted(small_target(space).base, Linear(Features([feature]), torch.tensor([0.8]).double()))


@pytest.mark.parametrize(
    "name", sorted(set(OBJECTIVES) - {"pretraining"})
)  # it has inputs of its own: tests/objectives
def test_objectives(name: str) -> None:
    torch.manual_seed(0)
    layered = name == "auxiliary_losses"
    backbone: Any = (
        BACKBONES.make("transformer", {"hidden": 6, "heads": 2, "layers": 2, "dropout": 0.0}, vocabulary=VOCABULARY)
        if layered
        else Lstm(VOCABULARY, layers=1, hidden=6, dropout=0.0)
    )
    model = Autoregressive(backbone, Softmax(6, VOCABULARY), ENDING).double().train()
    objective = OBJECTIVES.make(name, OBJECTIVE_OPTIONS.get(name, {}), model=model)
    batch = tabular().sample(9, generator=Generator().manual_seed(4))
    check_objective(objective, batch, [model], clock=Clock(step=3, epoch=1), additive=name not in NORMALISES)


POINTS = {
    "four gaussians": four_gaussians(),
    "biased gaussians": biased_gaussians().double(),
    "spirals": spirals(),
    "a box": UniformBox(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 2.5])),
    "five dimensions": standard_normal(5),
    "images": UniformBox(torch.zeros(1, 4, 4), torch.ones(1, 4, 4)),
}


@pytest.mark.parametrize("model", POINTS.values(), ids=POINTS)
def test_distributions_of_points(model: Any) -> None:
    check_point_distribution(model)
