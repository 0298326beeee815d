"""Weights spread over processes, for a model that one has no room for: torch's `fully_shard` (FSDP2).

Each process keeps its share of every weight, of its gradient and of what the optimiser remembers of it. Weights are
whole only while something is computed with them: those of a Transformer's layer for the time of its call, all others
for the time of a step. With `replicate` above 1 there are so many groups of `shard` processes, each with all weights
among them (hybrid sharding). Gradients are summed over all processes, as they are without sharding.

Checkpoints of weights that are spread over processes: each writes its own shares, and any number of them reads.

    checkpoints/step-000000100/
      shard-00001-model-00001-of-00001.safetensors   what the first process has: weights, optimisers, random states
      shard-00002-model-00001-of-00001.safetensors   what the second has
      shares.json                                    which tensors are numbers
      state.json, SHA256SUMS                         as in any other checkpoint

Where a share lies in its tensor is in the file's own header (torch's `HuggingFaceStorageWriter`). All is written to a
temporary folder, which one process renames when all have written.
"""

import copy
import hashlib
import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ebar import together
from ebar.backbones.transformer_layer import TransformerLayer
from ebar.errors import UserError
from ebar.store.writing import TEMPORARY, publish_folder, saving, to_json, write
from ebar.training.distributed import barrier, same_everywhere

Found = TypeVar("Found")


class Sharded(nn.Module):
    """A module whose weights are spread over processes. What is computed with them is computed in a call of this one.

    It has no weights of its own: `module` goes on to be what it is, with the names that its weights have. `blank` is a
    copy of it, made before, whose weights are empty.
    """

    def __init__(self, module: nn.Module, blank: nn.Module):
        super().__init__()
        self.module = module
        self._blank = (blank,)  # no part of this module

    def plain(self) -> nn.Module:
        """The module with whole weights in each process, to use as any other; all processes must call it."""
        (blank,) = self._blank
        given = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        for name, own in (*blank.named_parameters(), *blank.named_buffers()):
            own.data = whole(given[name]).detach().clone()
        return blank.train(self.module.training)

    def forward(self, compute: Callable[[], Found]) -> Found:
        """What is computed, and its gradient, with weights that are whole."""
        return compute()

    def put_away(self) -> None:
        """Weights that are whole are shares again."""
        for part in self.modules():
            if together.is_spread(part):
                cast(Any, part).reshard()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, the module can be called, without gradients; a Transformer's layers are gathered one by one."""
        cast(Any, self).unshard()
        try:
            yield
        finally:
            self.put_away()


def check_degrees(replicate: int | None, shard: int) -> tuple[int, int]:
    """How many copies of the weights there are, and over how many processes each is spread."""
    processes = together.world_size()
    copies = processes // shard if replicate is None else replicate
    if replicate is None and processes % shard:
        raise UserError(
            f"training.shard {shard} must divide the number of processes, {processes}: choose another, or launch as "
            "many with torchrun."
        )
    if copies * shard != processes:
        raise UserError(
            f"training.shard {shard} × training.replicate {copies} must be the number of processes, {processes}: "
            "choose degrees that make it up, or launch as many with torchrun."
        )
    return copies, shard


def spread_weights(module: nn.Module, *, replicate: int | None = None, shard: int) -> Sharded | None:
    """The weights of rank 0, spread over `shard` processes; None where one process has them all.

    Optimisers are made afterwards, of the parameters that the module has then.
    """
    copies, shard = check_degrees(replicate, shard)
    if shard == 1:
        return None
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    # A layer's memory is a view of what it computed, and nobody writes to it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    same_everywhere([module])
    empty = {id(one): nn.Parameter(one.new_empty(0), one.requires_grad) for one in module.parameters()}
    blank = copy.deepcopy(module, empty)
    kind = next(module.parameters()).device.type
    mesh = init_device_mesh(kind, (copies, shard), mesh_dim_names=("replicate", "shard"))
    mesh = mesh["shard"] if copies == 1 else mesh
    for layer in module.modules():
        if isinstance(layer, TransformerLayer) and layer.cross is None:
            fully_shard(layer, mesh=mesh)
    shell = Sharded(module, blank)
    fully_shard(shell, mesh=mesh)
    for part in shell.modules():
        if isinstance(part, FSDPModule):
            # A mean over tokens needs Σ sums / Σ counts, which the loop divides by; gloo knows no other sum.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    return shell


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, of which this process may have a share; all processes must call it."""
    return cast(Any, tensor).full_tensor() if together.is_share(tensor) else tensor


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's share of a whole tensor, as it has one of another; without a share of that, all of it."""
    if not together.is_share(like) or together.is_share(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    model = cast(Any, like)
    return distribute_tensor(tensor.to(like.device), model.device_mesh, model.placements, src_data_rank=None)


def clip_gradients(parameters: Sequence[nn.Parameter], most: float | None) -> float:
    """Scales gradients down to at most this Euclidean norm, and returns the norm that they had."""
    shares = [one for one in parameters if together.is_share(one)]
    others = [one for one in parameters if not together.is_share(one)] if shares else list(parameters)
    norm = get_total_norm([one.grad for one in others if one.grad is not None])
    if shares:
        spread = whole(get_total_norm([one.grad for one in shares if one.grad is not None]))
        norm = torch.tensor(math.hypot(float(norm), float(spread)), dtype=spread.dtype, device=spread.device)
    if most is not None:
        for some in filter(None, (others, shares)):
            clip_grads_with_norm_(some, most, norm)
    return float(norm)


SHARES = "shares.json"
SUMS = "SHA256SUMS"
Room = Callable[[str, torch.Size, torch.dtype], Tensor]  # for a tensor of this name that is to be read


def write_shares(folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """A folder that appears complete or not at all. All processes must call it; on the disk when it returns."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    half = folder.with_name(TEMPORARY + folder.name)
    # Files have no tensors without dimensions that could be read in part.
    numbers = sorted(name for name, tensor in tensors.items() if tensor.dim() == 0)
    content = {name: tensor[None] if tensor.dim() == 0 else tensor.detach() for name, tensor in tensors.items()}
    with saving(f"the checkpoint {folder}"):
        if together.rank() == 0:
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
        barrier()
        try:
            save(content, storage_writer=HuggingFaceStorageWriter(str(half), save_distributed=True))
        except CheckpointException as error:  # what befell one process is told to all
            raise next((cause for cause, _ in error.failures.values() if isinstance(cause, OSError)), error) from error
        barrier()
        if together.rank() == 0:
            write(half / SHARES, to_json({"numbers": numbers}))
            write(half / "state.json", to_json(dict(state), indent=1))
            names = sorted(path.name for path in half.iterdir())
            write(half / SUMS, "".join(f"{digest(half / name)}  {name}\n" for name in names).encode())
            publish_folder(half, folder)
    barrier()


def digest(path: Path) -> str:
    """Of a file that may be larger than memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_shares(folder: Path, room: Room | None = None) -> dict[str, Tensor]:
    """The tensors of a folder, whole or, where `room` has that for a share of one, this process's share."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    found: dict[str, Tensor] = {}
    for name, entry in reader.read_metadata().state_dict_metadata.items():
        size, dtype = entry.size, entry.properties.dtype  # type: ignore[union-attr]
        found[name] = torch.empty(size, dtype=dtype) if room is None else room(name, size, dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each process reads for itself
        load(found, storage_reader=reader, no_dist=True)
    numbers = json.loads((folder / SHARES).read_bytes())["numbers"]
    return found | {name: found[name][0] for name in numbers}
