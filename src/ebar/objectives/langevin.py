"""Negatives by Langevin dynamics in the space of input vectors: the rival of E-ARM in Wang et al. 2022, D.6.

Tokens cannot be moved by a gradient, the vectors that stand for them can. The energy of a sequence of vectors is that
of its last step, −LSE(z₍<K₎), xₖ summed out; vectors are no tokens, so that no log q(z₍<K₎) comes in.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.backbones.backbone import Reads
from ebar.errors import UserError
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import only_end_in_last_place
from ebar.modes import evaluation_mode
from ebar.types import Context, Stepwise


def reader(model: Stepwise) -> tuple[Autoregressive, Reads]:
    """The model and its backbone, if that can read vectors."""
    if not (isinstance(model, Autoregressive) and isinstance(model.backbone, Reads)):
        raise UserError(f"{type(model).__name__} reads no vectors in place of tokens, so nothing can be moved.")
    return model, model.backbone


def last_log_partition(
    model: Stepwise,
    inputs: Float[Tensor, "rows before size"],
    lengths: Int[Tensor, " rows"],
    context: Context | None = None,
) -> Float[Tensor, " rows"]:
    """LSE of the logits in the last place of each row: of all others the head is spared."""
    autoregressive, backbone = reader(model)
    hidden = backbone.read(inputs, context)
    last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
    logits = autoregressive.head(last)
    full = lengths == model.space.length
    if model.space.end is not None and bool(full.any()):
        masked = only_end_in_last_place(logits, model.space.length - 1, model.space)
        logits = torch.where(full[:, None, None], masked, logits)
    return torch.logsumexp(logits[:, 0], 1)


def langevin(
    model: Stepwise,
    inputs: Float[Tensor, "rows before size"],
    lengths: Int[Tensor, " rows"],
    context: Context | None = None,
    *,
    first: int = 0,
    steps: int,
    step_size: float,
    noise: float,
    generator: Generator,
) -> Float[Tensor, "rows before size"]:
    """z ← z − (η/2)·∇E(z) + noise·√η·ξ, without dropout, from place `first` on. Welling & Teh 2011, with noise 1."""
    autoregressive, _ = reader(model)
    z = inputs.detach()
    with evaluation_mode(autoregressive), torch.enable_grad():
        for _ in range(steps):
            z.requires_grad_(True)
            (slope,) = torch.autograd.grad(last_log_partition(model, z, lengths, context).sum(), z)
            kick = torch.randn(z.shape, dtype=z.dtype, device=generator.device, generator=generator).to(z.device)
            move = step_size / 2 * slope + noise * step_size**0.5 * kick
            move[:, :first] = 0.0
            z = z.detach() + move
    return z
