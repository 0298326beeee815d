"""Models of the original PyTorch implementation of Transformer-XL, converted: its losses, and what it remembered."""

import ast
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ebar.backbones.transformer_xl import TransformerXl
from ebar.heads.head import target_log_probs
from ebar.models.original_weights import transformer_xl_from_original

FOLDER = os.environ.get("EBAR_ORACLES")
FILES = sorted(Path(FOLDER).glob("transformer_xl_*.npz")) if FOLDER else []

pytestmark = pytest.mark.skipif(not FOLDER, reason="EBAR_ORACLES does not name the folder of oracles")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@torch.no_grad()
def test_losses_and_memory_are_the_originals(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        found: dict[str, Any] = {name: file[name] for name in file.files if not name.startswith("weight/")}
    config = ast.literal_eval(str(found["config"]))
    model = transformer_xl_from_original(path, config)
    backbone: Any = model.backbone
    assert isinstance(backbone, TransformerXl)
    data = torch.from_numpy(found["data"]).t()
    memory = backbone.empty_memory(len(data))
    outputs: list[Tensor] = []
    for number, wanted in enumerate(torch.from_numpy(found["nll"])):
        low, high = number * config["tgt_len"], number * config["tgt_len"] + len(wanted)
        hidden, memory = backbone.read_segment(data[:, low:high], memory)
        outputs.append(hidden)
        nll = -target_log_probs(model.head, hidden, data[:, low + 1 : high + 1]).t()
        dense = -torch.log_softmax(model.head(hidden), -1).gather(2, data[:, low + 1 : high + 1, None])[:, :, 0].t()
        torch.testing.assert_close(nll, dense, rtol=0, atol=1e-9)
        if config["cutoffs"]:  # the original permutes tokens within a segment
            torch.testing.assert_close(nll.mean(), wanted.mean(), rtol=0, atol=1e-9)
            torch.testing.assert_close(nll.flatten().sort()[0], wanted.flatten().sort()[0], rtol=0, atol=1e-9)
        else:
            torch.testing.assert_close(nll, wanted, rtol=0, atol=1e-9)
    kept = [name for name in found if name.startswith("memory/")]
    # It remembers the output of the last layer as well, which nothing reads.
    ours = [*memory.hidden.unbind(1), torch.cat(outputs, 1)]
    assert len(kept) in (0, len(ours))
    for name in kept:
        wanted = torch.from_numpy(found[name]).transpose(0, 1)
        layer = ours[int(name.removeprefix("memory/"))]
        valid = min(wanted.shape[1], layer.shape[1])
        torch.testing.assert_close(layer[:, layer.shape[1] - valid :], wanted[:, -valid:], rtol=0, atol=1e-9)


def test_there_are_files_to_check() -> None:
    assert FILES
