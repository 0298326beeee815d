"""Weights of the original PyTorch implementation of Transformer-XL (Dai et al. 2019), as a model.

They are read from .safetensors or .npz under the names of its `state_dict`. Its own checkpoints are pickles, which can
run any code when they are read: whoever trusts one converts it first.

Weights of the authors' AWD-LSTM (Merity et al. 2018), and of networks that kept its names, as a model.

encoder.weight                       the word vectors
rnns.N.weight_ih_l0, bias_ih_l0 …    layer N, as torch names them; wrapped, with `module.` between
rnns.N.weight_hh_l0_raw              the recurrent weights as they are learnt: `weight_hh_l0` beside them is a copy
                                     of which the last training pass has dropped half
prior.weight, latent.0.*             of a mixture of softmaxes (Yang et al. 2018), where there is one
decoder.weight, decoder.bias         the output layer; tied, its weight may be missing
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ebar.backbones.awd_lstm import AwdLstm
from ebar.backbones.transformer_xl import TransformerXl
from ebar.errors import UserError
from ebar.heads.mixture import MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, assemble
from ebar.types import Space

Weights = Mapping[str, Tensor]


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Tensors by name; names in an .npz file may stand in a folder `weight/`, and then all others are left out."""
    path = Path(path)
    if path.suffix not in (".npz", ".safetensors"):
        raise UserError(f"{path} is no .safetensors or .npz file: convert the weights, never to be unpickled, first.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in file.files if name.startswith("weight/")] or file.files
            return {name.removeprefix("weight/"): torch.from_numpy(file[name]) for name in names}
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as {path.suffix}: {str(error).splitlines()[0]}.") from None


def transformer_xl_from_original(
    weights: Weights | Path | str, config: Mapping[str, Any], *, length: int | None = None, end: int | None = None,
    beginning: int | None = None,
) -> Autoregressive:  # fmt: skip
    """A model with these weights and their precision, in evaluation mode.

    `config` has the original's names: n_head, mem_len, cutoffs, div_val, clamp_len, same_length, pre_lnorm, and
    `tgt_len`, which is the length of the model's sequences unless `length` is given. Sizes are those of the weights.
    What is tied is what is equal, or stored once. The original has no beginning of a text: here it has the vector of
    the token `beginning` (that of `<eos>`, say), or zeros.
    """
    weights = read_weights(weights) if isinstance(weights, str | Path) else weights
    cutoffs = tuple(config.get("cutoffs") or ())
    weights = _folded({name.removeprefix("transformer."): value for name, value in weights.items()}, cutoffs)
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    untied = "r_w_bias" not in weights
    attention = weights["layers.0.dec_attn.qkv_net.weight"]
    tables = _numbered(weights, "word_emb.emb_layers.{}.weight")
    vocabulary = sum(len(table) for table in tables)
    clamp, memory, heads = int(config.get("clamp_len", -1)), int(config["mem_len"]), int(config["n_head"])
    backbone = {
        "layers": layers, "hidden": attention.shape[1], "heads": heads, "head_size": len(attention) // (3 * heads),
        "feedforward": len(weights["layers.0.pos_ff.CoreNet.0.weight"]), "memory": max(memory, 1),
        "recurrence": memory > 0, "clamp_length": clamp if clamp > 0 else None,
        "dropout": float(config.get("dropout", 0.0)), "attention_dropout": float(config.get("dropatt", 0.0)),
        "same_length": bool(config.get("same_length", False)), "untie_biases": untied, "cutoffs": cutoffs,
        "normalise": "before" if config.get("pre_lnorm", False) else "after",
        "divide": int(config.get("div_val", 1)) if cutoffs else 1,
    }  # fmt: skip
    space = Space(vocabulary, length or int(config["tgt_len"]), end)
    kind, options = _head(weights, tables, cutoffs)
    model = assemble(space, "transformer_xl", backbone, kind, options).to(attention.dtype).eval()
    with torch.no_grad():
        _fill_backbone(model.backbone, weights, beginning)  # type: ignore[arg-type]
        _fill_head(model, weights)
    return model


def _numbered(weights: Weights, name: str) -> list[Tensor]:
    found: list[Tensor] = []
    while name.format(len(found)) in weights:
        found.append(weights[name.format(len(found))])
    return found


def _folded(weights: dict[str, Tensor], cutoffs: tuple[int, ...]) -> dict[str, Tensor]:
    """Where all tokens have one table and it is projected, the projections are multiplied into it: the same numbers."""
    table, projection, out = "word_emb.emb_layers.0.weight", "word_emb.emb_projs.0", "crit.out_layers.0.weight"
    if projection not in weights or len(_numbered(weights, "word_emb.emb_layers.{}.weight")) > 1:
        return weights
    bounds = [0, *cutoffs, len(weights[table])]
    after = [weights.get(f"crit.out_projs.{i}", weights[projection]) for i in range(len(bounds) - 1)]
    rows = weights.get(out, weights[table])
    parts = [rows[low:high] @ own.t() for (low, high), own in zip(pairwise(bounds), after, strict=True)]
    folded = {table: weights[table] @ weights[projection].t(), out: torch.cat(parts)}
    if cutoffs:
        folded["crit.cluster_weight"] = weights["crit.cluster_weight"] @ after[0].t()
    kept = {name: value for name, value in weights.items() if "_projs." not in name}
    return {**kept, **folded}


def _same(weights: Weights, name: str, other: str) -> bool:
    """Whether the first is stored nowhere but as the second, or is equal to it."""
    return name not in weights or bool(torch.equal(weights[name], weights[other]))


def _head(weights: Weights, tables: list[Tensor], cutoffs: tuple[int, ...]) -> tuple[str, dict[str, Any]]:
    """The kind of head and its options."""
    clusters = range(len(tables))
    tied = all(_same(weights, f"crit.out_layers.{i}.weight", f"word_emb.emb_layers.{i}.weight") for i in clusters)
    if not cutoffs:
        return "softmax", {"tied": tied}
    options: dict[str, Any] = {"tied": tied}
    if "word_emb.emb_projs.0" in weights:
        ties = [_same(weights, f"crit.out_projs.{i}", f"word_emb.emb_projs.{i}") for i in clusters]
        options["tie_projections"] = tuple(ties)
    return "adaptive_softmax", options


def _fill_backbone(backbone: TransformerXl, weights: Weights, beginning: int | None) -> None:
    tables = _numbered(weights, "word_emb.emb_layers.{}.weight")
    if isinstance(backbone.inputs, nn.Parameter):
        backbone.inputs[:-1] = tables[0]
        backbone.inputs[-1] = 0.0 if beginning is None else tables[0][beginning]
    else:
        _copy(backbone.inputs.tables, tables)
        _copy(backbone.inputs.projections, _numbered(weights, "word_emb.emb_projs.{}"))
        backbone.inputs.beginning.zero_()
        if beginning is not None:
            backbone.inputs.beginning.copy_(backbone.inputs(torch.tensor(beginning)))
    for number in range(len(backbone.biases)):
        own = f"layers.{number}.dec_attn." if backbone.untied else ""
        backbone.biases[number].copy_(torch.stack([weights[f"{own}r_w_bias"], weights[f"{own}r_r_bias"]]))
    for number, layer in enumerate(backbone.layers):
        names = {
            "attention.into.weight": "dec_attn.qkv_net.weight", "attention.out.weight": "dec_attn.o_net.weight",
            "attention.position.weight": "dec_attn.r_net.weight", "attention_norm.weight": "dec_attn.layer_norm.weight",
            "attention_norm.bias": "dec_attn.layer_norm.bias", "wide.weight": "pos_ff.CoreNet.0.weight",
            "wide.bias": "pos_ff.CoreNet.0.bias", "narrow.weight": "pos_ff.CoreNet.3.weight",
            "narrow.bias": "pos_ff.CoreNet.3.bias", "feedforward_norm.weight": "pos_ff.layer_norm.weight",
            "feedforward_norm.bias": "pos_ff.layer_norm.bias",
        }  # fmt: skip
        layer.load_state_dict({ours: weights[f"layers.{number}.{theirs}"] for ours, theirs in names.items()})


def _fill_head(model: Autoregressive, weights: Weights) -> None:
    head: Any = model.head
    if hasattr(head, "cluster_weight"):
        if not head.tied:
            _copy(head.tables, _numbered(weights, "crit.out_layers.{}.weight"))
        for cluster, projection in head.projections.items():
            projection.copy_(weights[f"crit.out_projs.{cluster}"])
        head.bias.copy_(torch.cat(_numbered(weights, "crit.out_layers.{}.bias")))
        # Its cluster i is column −i of the first step: the last cluster comes first.
        head.cluster_weight.copy_(weights["crit.cluster_weight"].flip(0))
        head.cluster_bias.copy_(weights["crit.cluster_bias"].flip(0))
        return
    for parameter in head.parameters():
        if parameter.dim() == 1:
            parameter.copy_(weights["crit.out_layers.0.bias"])
        elif parameter is not model.backbone.embedding:  # type: ignore[attr-defined]
            name = "crit.out_layers.0.weight"
            parameter.copy_(weights[name if name in weights else "word_emb.emb_layers.0.weight"])


def _copy(ours: Any, theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        one.copy_(other)


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
