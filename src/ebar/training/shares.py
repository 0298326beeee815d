"""Checkpoints of weights that are spread over processes: each writes its own shares, and any number of them reads.

    checkpoints/step-000000100/
      shard-00001-model-00001-of-00001.safetensors   what the first process has: weights, optimisers, random states
      shard-00002-model-00001-of-00001.safetensors   what the second has
      shares.json                                    which tensors are numbers
      state.json, SHA256SUMS                         as in any other checkpoint

Where a share lies in its tensor is in the file's own header (torch's `HuggingFaceStorageWriter`). All is written to a
temporary folder, which one process renames when all have written.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebar import together
from ebar.store.writing import TEMPORARY, publish_folder, saving, to_json, write
from ebar.training.distributed import barrier
from ebar.training.players import Players

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


def room_for(players: Players) -> Room:
    """Room for the shares that these processes have of their players' weights, and of what goes with each weight."""
    weights = {
        f"weights/{name}/{key}": value
        for name, one in players.items()
        for key, value in one.module.state_dict().items()
    }
    numbered = {
        (name, str(number)): weight for name, one in players.items() for number, weight in enumerate(one.parameters())
    }

    def room(name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
        like = weights.get(name)
        if name.startswith("training/"):
            _, *where = name.removeprefix("training/").split(".", 3)
            like = numbered.get((where[0], where[1])) if len(where) > 1 else None
        if like is not None and together.is_share(like) and like.shape == size:
            return torch.empty_like(like, dtype=dtype)
        return torch.empty(size, dtype=dtype)

    return room
