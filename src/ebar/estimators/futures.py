"""Terms of E[e⁻ᴱ | C, x₍<t₎]: energies of continuations drawn from q or, one token before the end, of every token."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.models.drawing import futures
from ebar.models.tilted import measured_energy
from ebar.modes import in_evaluation_mode
from ebar.types import Context, Energy, Sequences, Space, State, Stepwise

BATCH = 1024  # sequences drawn and scored at a time


@torch.no_grad()
@in_evaluation_mode
def future_energies(
    q: Stepwise,
    energy: Energy[Sequences],
    stems: Int[Tensor, "stems place"],
    logits: Float[Tensor, "stems vocabulary"],
    state: State,
    context: Context | None,
    n: int,
    *,
    batch_size: int = BATCH,
    generator: Generator,
) -> Float[Tensor, "stems draws"]:
    """Energies of n sequences drawn from q for each stem; the context has a row for each stem."""
    if len(stems) == 0:
        return torch.zeros(0, n, dtype=torch.float64, device=logits.device)
    at_once, parts, space = max(1, batch_size // n), [], q.space.after(context)
    for rows in torch.split(torch.arange(len(stems), device=logits.device), at_once):
        own = None if context is None else context.select(rows)
        drawn = []
        for size in _sizes(n, batch_size):
            x = futures(q, stems[rows], logits[rows], state.select(rows), size, space=space, generator=generator)
            drawn.append(measured_energy(energy, x, own).double().view(len(rows), size))
        parts.append(torch.cat(drawn, 1))
    return torch.cat(parts)


def _sizes(n: int, most: int) -> list[int]:
    whole, rest = divmod(n, most)
    return [most] * whole + [rest] * (rest > 0)


def one_row(context: Context | None, row: int) -> Context | None:
    """The condition of one row."""
    return None if context is None else context.select(torch.tensor([row], device=context.given.lengths.device))


def closing_place(space: Space) -> int:
    """The place whose token decides the whole sequence: the last, or the last but one where the last is the end's."""
    return space.length - 1 if space.end is None else max(0, space.length - 2)


def closings(stem: Int[Tensor, " place"], tokens: Int[Tensor, " some"], space: Space) -> Sequences:
    """The sequences that a stem and each of some tokens in the closing place make."""
    whole = torch.cat([stem.expand(len(tokens), -1), tokens[:, None]], 1)
    if space.end is None or space.length == 1:
        return Sequences(whole, torch.full_like(tokens, space.length))
    ended = torch.cat([whole, torch.full_like(tokens, space.end)[:, None]], 1)
    return Sequences(ended, torch.where(tokens == space.end, space.length - 1, space.length))


def closing_energies(
    energy: Energy[Sequences],
    stem: Int[Tensor, " place"],
    tokens: Int[Tensor, " some"],
    context: Context | None,
    space: Space,
    *,
    batch_size: int = BATCH,
) -> Float[Tensor, " some"]:
    """E of the stem closed by each of the tokens; the context has one row."""
    parts = [
        measured_energy(energy, closings(stem, some, space), context).double()
        for some in torch.split(tokens, batch_size)
    ]
    return torch.cat(parts)
