"""Weights of the original PyTorch implementation of Transformer-XL (Dai et al. 2019), as a model.

They are read from .safetensors or .npz under the names of its `state_dict`. Its own checkpoints are pickles, which can
run any code when they are read: whoever trusts one converts it first.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ebar.backbones.transformer_xl import TransformerXl
from ebar.errors import UserError
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
