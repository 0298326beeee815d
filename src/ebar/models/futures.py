"""How a sequence goes on from where a model stands: draws from the middle of it."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.models.stepwise import draw_block, drawn_at_once
from ebar.types import Sequences, Space, State, Stepwise


@torch.no_grad()
def futures(
    model: Stepwise,
    stems: Int[Tensor, "stems place"],
    logits: Float[Tensor, "stems vocabulary"],
    state: State,
    n: int,
    *,
    space: Space | None = None,
    generator: Generator,
) -> Sequences:
    """n whole sequences for each stem, stem-major: the tokens read so far, then the model's own.

    `logits` and `state` are the model's after these tokens, so that neither they nor the context are read again. No
    stem may have ended. `space` is the model's after the context, by default the model's own. The model draws in its
    own mode: see `ebar.modes`.
    """
    rows = torch.arange(len(stems), device=logits.device).repeat_interleave(n)
    return Sequences.join(
        [
            draw_block(model, logits[some], state.select(some), stems=stems[some], space=space, generator=generator)[0]
            for some in torch.split(rows, drawn_at_once(model))
        ]
    )
