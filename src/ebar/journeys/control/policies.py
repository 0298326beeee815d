"""π: a copy of q that learns, and how it is saved."""

import copy
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import nn

from ebar.backbones.pretrained.reading import with_lora
from ebar.maths.randomness import folded
from ebar.models.construction import save_pretrained
from ebar.models.pretrained import Pretrained
from ebar.store.writing import TEMPORARY, replace_folder, saving


def policy_of(q: Any, *, lora_rank: int | None, seed: int) -> Any:
    """A copy of q in which adapters or all weights learn; adapters are drawn from the seed."""
    if not isinstance(q, Pretrained):
        return copy.deepcopy(q).requires_grad_(True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(folded(seed, "adapters"))
        network = copy.deepcopy(q.network)
        if lora_rank is None:
            return q.with_network(network.requires_grad_(True))
        return q.with_network(with_lora(network.requires_grad_(False), rank=lora_rank))


def save_policy(policy: nn.Module, folder: Path) -> None:
    """π, complete or not at all: a pretrained one as transformers saves models, of another its weights."""
    if not isinstance(policy, Pretrained):
        # A copy of each: tied weights have two names and one memory, which safetensors refuses.
        state = policy.state_dict().items()
        weights = {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in state}
        with saving(str(folder)):
            replace_folder(folder, {"model.safetensors": to_bytes(weights)})
        return
    temporary = folder.with_name(TEMPORARY + folder.name)
    with saving(str(folder)):
        shutil.rmtree(temporary, ignore_errors=True)
        save_pretrained(policy, temporary)
        files = {path.name: path.read_bytes() for path in temporary.iterdir() if path.is_file()}
        shutil.rmtree(temporary)
        replace_folder(folder, files)
