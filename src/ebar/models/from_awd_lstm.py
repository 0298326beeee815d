"""Weights of the authors' AWD-LSTM (Merity et al. 2018), and of networks that kept its names, as a model of ours.

    encoder.weight                       the word vectors
    rnns.N.weight_ih_l0, bias_ih_l0 …    layer N, as torch names them; wrapped, with `module.` between
    rnns.N.weight_hh_l0_raw              the recurrent weights as they are learnt: `weight_hh_l0` beside them is a copy
                                         of which the last training pass has dropped half
    decoder.weight, decoder.bias         the softmax; tied, its weight may be missing

Files are .safetensors or .npz, never a pickle: save a `state_dict` of the authors' with safetensors first.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ebar.backbones.awd_lstm import AwdLstm
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.types import Space

PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def from_awd_lstm(
    source: Path | str | Mapping[str, Tensor], *, length: int = 70, beginning: int | None = None, **dropouts: float
) -> Autoregressive:
    """A network of the authors' with its softmax, over windows of `length` tokens, in evaluation mode.

    Theirs has no vector for the beginning of a text: the vector of token `beginning` (their end of a line, say) stands
    for it, or zero. `dropouts` are those of `AwdLstm`, which weights do not tell.
    """
    weights = _read(source)
    backbone = awd_lstm_backbone(weights, beginning=beginning, **dropouts)
    if "prior.weight" in weights:
        raise UserError("These weights are of a mixture of softmaxes: read the backbone alone (awd_lstm_backbone).")
    head = Softmax(backbone.width, backbone.vocabulary)
    weight = weights.get("decoder.weight", weights["encoder.weight"])
    _copy(head, {"linear.weight": weight, "linear.bias": _given(weights, "decoder.bias")})
    return Autoregressive(backbone, head.to(weight.dtype), Space(backbone.vocabulary, length)).eval()


def awd_lstm_backbone(
    source: Path | str | Mapping[str, Tensor], *, beginning: int | None = None, **dropouts: Any
) -> AwdLstm:
    """The word vectors and the layers alone, in evaluation mode; sizes are those of the weights."""
    weights = _read(source)
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
    return _copy(backbone.to(vectors.dtype), tensors).eval()  # type: ignore[no-any-return]


def _read(source: Path | str | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By the plain names: of wrapped layers without the wrapper, recurrent weights as they are learnt."""
    found = dict(source) if isinstance(source, Mapping) else _read_file(Path(source))
    plain = {name.replace(".module.", "."): tensor for name, tensor in found.items()}
    learnt = {name.removesuffix("_raw"): tensor for name, tensor in plain.items() if name.endswith("_raw")}
    return {name: tensor for name, tensor in plain.items() if not name.endswith("_raw")} | learnt


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    name: torch.from_numpy(arrays[name]) for name in arrays.files if arrays[name].dtype.kind in "fiu"
                }
        return load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as .safetensors or .npz: {str(error).splitlines()[0]}.") from None


def _given(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise UserError(f"These weights have no {name}: they are not of an AWD-LSTM.")
    return weights[name]


def _copy(module: Any, tensors: Mapping[str, Tensor]) -> Any:
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise UserError(f"These weights do not fit together: {str(error).splitlines()[-1].strip()}.") from None
    return module
