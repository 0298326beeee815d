"""Negatives by Langevin dynamics on vectors: the rival of E-ARM in Wang et al. 2022, D.6.

Tokens cannot be moved by a gradient, the vectors that stand for them can: those that the network is given, or what its
first layer makes of them, which is what the paper moves (Table 11). The energy of a sequence of vectors is that of its
last step, −LSE(z₍<K₎), xₖ summed out; vectors are no tokens, so that no log q(z₍<K₎) comes in.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar import together
from ebar.backbones.backbone import Reads, Resumes
from ebar.errors import UserError
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import only_end_in_last_place
from ebar.modes import evaluation_mode
from ebar.types import Context, Stepwise

Place = Literal["input", "first_layer"]


def reader(model: Stepwise) -> tuple[Autoregressive, Reads]:
    """The model and its backbone, if that can read vectors."""
    if not (isinstance(model, Autoregressive) and isinstance(model.backbone, Reads)):
        raise UserError(f"{type(model).__name__} reads no vectors in place of tokens, so nothing can be moved.")
    return model, model.backbone


def _resumer(backbone: Reads) -> Resumes:
    if not isinstance(backbone, Resumes):
        raise UserError(
            f"{type(backbone).__name__} cannot be entered after its first layer: let the dynamics move its inputs."
        )
    return backbone


def check_place(model: Stepwise, at: Place) -> None:
    """An error where the model has no vectors there to be moved."""
    _, backbone = reader(model)
    if at == "first_layer":
        _resumer(backbone)


@torch.no_grad()
def vectors_of(
    model: Stepwise, tokens: Int[Tensor, "rows before"], context: Context | None = None, *, at: Place = "input"
) -> Float[Tensor, "rows places size"]:
    """Where the dynamics begins, without dropout: the vectors of tokens, or the first layer's of them.

    The latter have the beginning's before them.
    """
    autoregressive, backbone = reader(model)
    with evaluation_mode(autoregressive):
        inputs = backbone.embed(tokens)
        return inputs if at == "input" else _resumer(backbone).first_layer(inputs, context)


def last_log_partition(
    model: Stepwise, vectors: Float[Tensor, "rows places size"], lengths: Int[Tensor, " rows"],
    context: Context | None = None, *, at: Place = "input",
) -> Float[Tensor, " rows"]:  # fmt: skip
    """LSE of the logits in the last place of each row: of all others the head is spared."""
    autoregressive, backbone = reader(model)
    hidden = backbone.read(vectors, context) if at == "input" else _resumer(backbone).read_on(vectors, context)
    last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
    logits = autoregressive.head(last)
    full = lengths == model.space.length
    if model.space.end is not None and bool(full.any()):
        masked = only_end_in_last_place(logits, model.space.length - 1, model.space)
        logits = torch.where(full[:, None, None], masked, logits)
    return torch.logsumexp(logits[:, 0], 1)


def langevin(
    model: Stepwise, vectors: Float[Tensor, "rows places size"], lengths: Int[Tensor, " rows"],
    context: Context | None = None, *, first: int = 0, steps: int, step_size: float, noise: float,
    at: Place = "input", generator: Generator,
) -> Float[Tensor, "rows places size"]:  # fmt: skip
    """z ← z − (η/2)·∇E(z) + noise·√η·ξ, without dropout, from token `first` on. Welling & Teh 2011, with noise 1.

    `vectors` are those of `vectors_of` at the same place. What stands for the beginning stays as it is.
    """
    autoregressive, _ = reader(model)
    if any(map(together.is_spread, autoregressive.modules())):
        raise UserError(
            "Langevin dynamics takes gradients in the middle of a step, when weights that are gathered layer by layer "
            "are not at hand: choose negatives autoregressive, or leave out training.shard."
        )
    z = vectors.detach()
    kept = first if at == "input" else first + 1
    with evaluation_mode(autoregressive), torch.enable_grad():
        for _ in range(steps):
            z.requires_grad_(True)
            (slope,) = torch.autograd.grad(last_log_partition(model, z, lengths, context, at=at).sum(), z)
            kick = together.drawn(len(z), partial(_normal, like=z, generator=generator), generator).to(z.device)
            move = step_size / 2 * slope + noise * step_size**0.5 * kick
            move[:, :kept] = 0.0
            z = z.detach() + move
    return z


def _normal(rows: int, *, like: Tensor, generator: Generator) -> Tensor:
    return torch.randn((rows, *like.shape[1:]), dtype=like.dtype, device=generator.device, generator=generator)
