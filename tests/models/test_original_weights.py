"""Weights under the original's names that no file of numbers has: what is folded, tied or refused."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.models.original_weights import read_weights, transformer_xl_from_original

SIZES = {"n_head": 2, "mem_len": 3, "tgt_len": 4, "cutoffs": [], "div_val": 1}


def original(*, cutoffs: tuple[int, ...] = (), divide: int = 1, embed: int = 6, tied: bool = True) -> dict[str, Tensor]:
    """Nine tokens, width 6, two heads of size 2: heads × size is not the width."""
    generator = Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    bounds = [0, *cutoffs, 9]
    shapes = [(9, embed)] if divide == 1 else [(b - a, embed // divide**i) for i, (a, b) in enumerate(pairwise(bounds))]
    weights = {"r_w_bias": draw(2, 2), "r_r_bias": draw(2, 2), "pos_emb.inv_freq": draw(3)}
    for i, (rows, size) in enumerate(shapes):
        weights[f"word_emb.emb_layers.{i}.weight"] = draw(rows, size)
        weights[f"crit.out_layers.{i}.bias"] = draw(rows)
        table = weights[f"word_emb.emb_layers.{i}.weight"]
        weights[f"crit.out_layers.{i}.weight"] = table.clone() if tied else draw(rows, size)
    if divide > 1 or embed != 6:
        for i, (_, size) in enumerate(shapes):
            weights[f"word_emb.emb_projs.{i}"] = draw(6, size)
        for i in range(len(bounds) - 1):
            weights[f"crit.out_projs.{i}"] = draw(6, shapes[min(i, len(shapes) - 1)][1])
    if cutoffs:
        weights |= {"crit.cluster_weight": draw(len(cutoffs), embed), "crit.cluster_bias": draw(len(cutoffs))}
    for layer in range(2):
        shapes_of: dict[str, tuple[int, ...]] = {
            "dec_attn.qkv_net.weight": (12, 6), "dec_attn.o_net.weight": (6, 4), "dec_attn.r_net.weight": (4, 6),
            "dec_attn.layer_norm.weight": (6,), "dec_attn.layer_norm.bias": (6,), "pos_ff.CoreNet.0.weight": (8, 6),
            "pos_ff.CoreNet.0.bias": (8,), "pos_ff.CoreNet.3.weight": (6, 8), "pos_ff.CoreNet.3.bias": (6,),
            "pos_ff.layer_norm.weight": (6,), "pos_ff.layer_norm.bias": (6,),
        }  # fmt: skip
        weights |= {f"layers.{layer}.{name}": draw(*shape) for name, shape in shapes_of.items()}
    return weights


def first_step(weights: dict[str, Tensor], hidden: Tensor, cutoffs: tuple[int, ...]) -> Tensor:
    """The original's log-probabilities of its first step, from its weights alone: tokens, then clusters reversed."""
    size = cutoffs[0] if cutoffs else 9
    rows, bias = weights["crit.out_layers.0.weight"][:size], weights["crit.out_layers.0.bias"][:size]
    if cutoffs:
        rows, bias = torch.cat([rows, weights["crit.cluster_weight"]]), torch.cat([bias, weights["crit.cluster_bias"]])
    if "crit.out_projs.0" in weights:
        hidden = hidden @ weights["crit.out_projs.0"]
    return torch.log_softmax(hidden @ rows.t() + bias, -1)


@pytest.mark.parametrize("cutoffs", [(), (3, 5)])
@pytest.mark.parametrize(("divide", "embed"), [(1, 6), (1, 4), (2, 6)])
@torch.no_grad()
def test_the_first_step_is_the_originals(cutoffs, divide, embed, generator):
    weights = original(cutoffs=cutoffs, divide=divide, embed=embed, tied=False)
    model = transformer_xl_from_original(weights, {**SIZES, "cutoffs": list(cutoffs), "div_val": divide})
    hidden = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    wanted, found = first_step(weights, hidden, cutoffs), torch.log_softmax(model.head(hidden), -1)
    if not cutoffs:
        torch.testing.assert_close(found, wanted)
        return
    torch.testing.assert_close(found[:, :3], wanted[:, :3])
    for cluster, (low, high) in enumerate(pairwise([*cutoffs, 9]), start=1):
        torch.testing.assert_close(found[:, low:high].logsumexp(1), wanted[:, -cluster])


@torch.no_grad()
def test_projected_input_vectors_are_the_originals():
    several: tuple[dict[str, Any], ...] = ({"embed": 4}, {"cutoffs": (3, 5), "divide": 2})
    for options in several:
        weights = original(**options)
        config = {**SIZES, "cutoffs": list(options.get("cutoffs", ())), "div_val": options.get("divide", 1)}
        backbone: Any = transformer_xl_from_original(weights, config, beginning=4).backbone
        vectors = backbone.embed(torch.arange(10)[None])[0] / 6**0.5
        table, projection = ("0", 4) if "embed" in options else ("1", 1)
        rows = weights[f"word_emb.emb_layers.{table}.weight"] @ weights[f"word_emb.emb_projs.{table}"].t()
        torch.testing.assert_close(vectors[4], rows[projection])
        torch.testing.assert_close(vectors[9], vectors[4])  # the beginning


def test_what_is_equal_is_tied():
    weights = original(cutoffs=(3, 5), divide=2)
    weights["crit.out_projs.1"] = weights["word_emb.emb_projs.1"].clone()
    del weights["crit.out_layers.2.weight"]  # stored once
    head: Any = transformer_xl_from_original(weights, {**SIZES, "cutoffs": [3, 5], "div_val": 2}).head
    assert head.tied
    assert head.tie_projections == (False, True, False)
    weights["crit.out_layers.0.weight"] += 1
    weights["crit.out_layers.2.weight"] = weights["word_emb.emb_layers.2.weight"]
    assert not transformer_xl_from_original(weights, {**SIZES, "cutoffs": [3, 5], "div_val": 2}).head.tied  # type: ignore[attr-defined]


def test_files_are_read_and_pickles_are_not(tmp_path):
    weights = original(tied=False)
    save_file(weights, tmp_path / "weights.safetensors")
    arrays: dict[str, Any] = {f"weight/{name}": value.numpy() for name, value in weights.items()}
    np.savez(tmp_path / "weights.npz", **arrays, data=np.zeros(1))
    for name in ("weights.safetensors", "weights.npz"):
        found = read_weights(tmp_path / name)
        assert set(found) == set(weights)
        assert all(torch.equal(found[key], value) for key, value in weights.items())
    assert transformer_xl_from_original(tmp_path / "weights.npz", SIZES, length=7).space.length == 7
    with pytest.raises(UserError, match="convert the weights"):
        read_weights(tmp_path / "model.pt")
