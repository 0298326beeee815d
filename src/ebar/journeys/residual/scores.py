"""Energies of draws, on disk: the slow part of an evaluation, which an interrupted one need not repeat."""

import json
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.journeys.residual.negatives import HEADER, Negatives, part_path
from ebar.models.scoring import measured_energy
from ebar.progress import bar
from ebar.store.writing import replace, saving, sweep, to_json
from ebar.training.batches import moved
from ebar.training.distillation.fingerprint import fingerprint
from ebar.types import Context


@torch.no_grad()
def energies_of(
    folder: Path, energy: nn.Module, drawn: Negatives, context: Context | None
) -> Float[Tensor, "rows draws"]:
    """E(x, C) of every draw, in float64, prefix by prefix; those that are on disk already are not computed again."""
    device = str(next(energy.parameters()).device)
    wanted = {"energy": fingerprint(energy), "draws": json.loads((drawn.folder / HEADER).read_bytes())}
    _same(folder, wanted)
    found = torch.empty(len(drawn), drawn.draws, dtype=torch.float64)
    with bar("energies", len(drawn) * drawn.draws, "draws") as progress:
        for number in range(len(drawn.layout)):
            part = drawn.layout.part(number)
            path = part_path(folder, number)
            if not path.exists():
                rows = [_of_row(energy, drawn, context, row, part.draws, device) for row in part.contexts]
                with saving(str(path)):
                    replace(path, save({"energies": torch.stack(rows)}))
            found[part.contexts.start : part.contexts.stop, part.draws.start : part.draws.stop] = _read(path)
            progress.advance(len(part.contexts) * len(part.draws))
    return found


def _of_row(
    energy: nn.Module, drawn: Negatives, context: Context | None, row: int, draws: range, device: str
) -> Float[Tensor, " draws"]:
    """One prefix at a time: energies then do not depend on how draws are stored."""
    one, numbers = torch.tensor([row]), torch.arange(draws.start, draws.stop)
    own = None if context is None else context.select(one)
    return measured_energy(energy, *moved((drawn.fetch(one, draws=numbers), own), device)).double().cpu()


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
