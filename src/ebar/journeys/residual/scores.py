"""Energies of draws, on disk: the slow part of an evaluation, which an interrupted one need not repeat."""

from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from ebar.journeys.residual.negatives import Negatives, part_path
from ebar.models.scoring import measured_energy
from ebar.progress import bar
from ebar.store.stages import description_of, open_stage
from ebar.training.batches import moved
from ebar.types import Context


@torch.no_grad()
def energies_of(
    folder: Path, energy: nn.Module, drawn: Negatives, context: Context | None
) -> Float[Tensor, "rows draws"]:
    """E(x, C) of every draw, in float64, prefix by prefix; those that are on disk already are not computed again."""
    device = str(next(energy.parameters()).device)
    found = torch.empty(len(drawn), drawn.draws, dtype=torch.float64)
    made = {"energy": energy, "draws": description_of(drawn.folder)}
    with open_stage(folder, made) as stage, bar("energies", len(drawn) * drawn.draws, "draws") as progress:
        for number in range(len(drawn.layout)):
            part = drawn.layout.part(number)
            name = part_path(folder, number).name
            if not stage.has(name):
                rows = [_of_row(energy, drawn, context, row, part.draws, device) for row in part.contexts]
                stage.write(name, save({"energies": torch.stack(rows)}))
            values = stage.tensors(name, "energies")["energies"]
            found[part.contexts.start : part.contexts.stop, part.draws.start : part.draws.stop] = values
            progress.advance(len(part.contexts) * len(part.draws))
    return found


def _of_row(
    energy: nn.Module, drawn: Negatives, context: Context | None, row: int, draws: range, device: str
) -> Float[Tensor, " draws"]:
    """One prefix at a time: energies then do not depend on how draws are stored."""
    one, numbers = torch.tensor([row]), torch.arange(draws.start, draws.stop)
    own = None if context is None else context.select(one)
    return measured_energy(energy, *moved((drawn.fetch(one, draws=numbers), own), device)).double().cpu()
