"""Weights of the authors' AWD-LSTM (Merity et al. 2018), and of networks that kept its names, as a model.

encoder.weight                       the word vectors
rnns.N.weight_ih_l0, bias_ih_l0 …    layer N, as torch names them; wrapped, with `module.` between
rnns.N.weight_hh_l0_raw              the recurrent weights as they are learnt: `weight_hh_l0` beside them is a copy
                                     of which the last training pass has dropped half
prior.weight, latent.0.*             of a mixture of softmaxes (Yang et al. 2018), where there is one
decoder.weight, decoder.bias         the output layer; tied, its weight may be missing
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebar.backbones.awd_lstm import AwdLstm
from ebar.errors import UserError
from ebar.heads.mixture import MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.original_weights import Weights, read_weights
from ebar.types import Space

PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def awd_lstm_from_original(
    weights: Weights | Path | str, *, length: int = 70, beginning: int | None = None, **dropouts: float
) -> Autoregressive:
    """A model with these weights and their precision, over windows of `length` tokens, in evaluation mode.

    Its head is a softmax, or a mixture of softmaxes where the weights have one; it is tied where the output layer is
    equal to the word vectors or stored nowhere else. The original has no vector for the beginning of a text: that of
    the token `beginning` (its end of a line, say) stands for it, or zero. `dropouts` are those of `AwdLstm`, which
    weights do not tell.
    """
    own = _by_plain_names(read_weights(weights) if isinstance(weights, str | Path) else weights)
    backbone = _backbone(own, beginning, dropouts)
    vectors = own["encoder.weight"]
    decoder = own.get("decoder.weight", vectors)
    tied = torch.equal(decoder, vectors)
    stored = {"linear.weight": backbone.embedding if tied else decoder, "linear.bias": _given(own, "decoder.bias")}
    if "prior.weight" in own:
        head: nn.Module = MixtureOfSoftmaxes(
            backbone.width, backbone.vocabulary, backbone.embedding, components=len(own["prior.weight"]),
            size=vectors.shape[1], tied=tied,
        )  # fmt: skip
        stored |= {
            "components.prior.weight": own["prior.weight"],
            "components.latent.weight": _given(own, "latent.0.weight"),
            "components.latent.bias": _given(own, "latent.0.bias"),
        }
    else:
        head = Softmax(backbone.width, backbone.vocabulary, backbone.embedding, tied=tied)
    filled: Any = _filled(head.to(vectors.dtype), stored)
    return Autoregressive(backbone, filled, Space(backbone.vocabulary, length)).eval()


def _backbone(weights: Weights, beginning: int | None, dropouts: Mapping[str, Any]) -> AwdLstm:
    """The word vectors and the layers; sizes are those of the weights."""
    vectors = _given(weights, "encoder.weight")
    numbers = sorted({int(found[1]) for name in weights if (found := re.match(r"rnns\.(\d+)\.", name))})
    if not numbers or numbers != list(range(len(numbers))):
        raise UserError(f"Layers are called rnns.0, rnns.1 and so on, and these weights have {numbers}.")
    layers = [{part: _given(weights, f"rnns.{number}.{part}") for part in PARTS} for number in numbers]
    widths = [layer["weight_hh_l0"].shape[1] for layer in layers]
    backbone = AwdLstm(
        len(vectors), layers=len(layers), hidden=widths[0], embedding=vectors.shape[1], last=widths[-1], **dropouts
    )
    first = torch.zeros_like(vectors[:1]) if beginning is None else vectors[beginning : beginning + 1]
    tensors = {"inputs": torch.cat([vectors, first])}
    tensors |= {f"layers.{number}.{part}": each for number, layer in enumerate(layers) for part, each in layer.items()}
    return _filled(backbone.to(vectors.dtype), tensors)  # type: ignore[return-value]


def _by_plain_names(weights: Weights) -> dict[str, Tensor]:
    """Of wrapped layers without the wrapper, recurrent weights as they are learnt."""
    plain = {name.replace(".module.", "."): tensor for name, tensor in weights.items()}
    learnt = {name.removesuffix("_raw"): tensor for name, tensor in plain.items() if name.endswith("_raw")}
    return {name: tensor for name, tensor in plain.items() if not name.endswith("_raw")} | learnt


def _given(weights: Weights, name: str) -> Tensor:
    if name not in weights:
        raise UserError(f"These weights have no {name}: they are not of an AWD-LSTM.")
    return weights[name]


def _filled(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise UserError(f"These weights do not fit together: {str(error).splitlines()[-1].strip()}.") from None
    return module
