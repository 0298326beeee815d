"""Energies of a pool's draws, on disk beside them: the slow half of an evaluation, gone on with when it was killed."""

import json
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.journeys.residual.pool import HEADER, Pool, part_path
from ebar.models.scoring import measured_energy
from ebar.progress import bar
from ebar.store.writing import replace, saving, sweep, to_json
from ebar.training.batches import moved
from ebar.training.distillation.fingerprint import fingerprint
from ebar.types import Context


@torch.no_grad()
def pool_energies(folder: Path, energy: nn.Module, pool: Pool, context: Context) -> Float[Tensor, "rows draws"]:
    """E(x, C) of every draw, in float64; those that are on disk already are not computed again."""
    device = str(next(energy.parameters()).device)
    wanted = {"energy": fingerprint(energy), "pool": json.loads((pool.folder / HEADER).read_bytes())}
    _same(folder, wanted)
    found = torch.empty(len(pool), pool.draws, dtype=torch.float64)
    with bar("energies", len(pool) * pool.draws, "draws") as progress:
        for number in range(len(pool.layout)):
            part = pool.layout.part(number)
            path = part_path(folder, number)
            if not path.exists():
                _, x = pool.part(number)
                rows = torch.arange(part.contexts.start, part.contexts.stop)
                values = measured_energy(energy, *moved((x, context.select(rows)), device)).double().cpu()
                with saving(str(path)):
                    replace(path, save({"energies": values.view(len(part.contexts), len(part.draws)).contiguous()}))
            found[part.contexts.start : part.contexts.stop, part.draws.start : part.draws.stop] = _read(path)
            progress.advance(len(part.contexts) * len(part.draws))
    return found


def _same(folder: Path, wanted: dict[str, object]) -> None:
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    path = folder / HEADER
    if not path.exists():
        with saving(str(path)):
            replace(path, to_json(wanted, indent=1))
    elif json.loads(path.read_bytes()) != wanted:
        raise UserError(f"{folder} holds energies of other draws, or of another energy: delete it, or choose another.")


def _read(path: Path) -> Float[Tensor, "contexts draws"]:
    try:
        return load(path.read_bytes())["energies"]
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete it, and run the same command again.") from None
