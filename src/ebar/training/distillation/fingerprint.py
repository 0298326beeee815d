"""Whether a distillation that goes on is the one that was begun: a digest of what its draws depend on."""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from ebar.energies.linear import Linear
from ebar.models.tilted import Tilted
from ebar.models.truncated import Truncated
from ebar.samplers.guided import Guided


def fingerprint(thing: object) -> str:
    """Of weights, names of features and truncation; of anything else, only what it is called."""
    digest = hashlib.sha256()
    _take(thing, digest)
    return digest.hexdigest()[:16]


def _take(thing: object, digest: Any) -> None:
    digest.update(f"{type(thing).__qualname__};".encode())
    if isinstance(thing, Guided):
        _tensor(thing.log_ahead, digest)
        _take(thing.base, digest)
    if not isinstance(thing, nn.Module):
        return
    for name, module in thing.named_modules():
        digest.update(f"{name}:{type(module).__qualname__};".encode())
        if isinstance(module, Linear):
            digest.update(repr(module.features.names).encode())
        if isinstance(module, Truncated):
            digest.update(repr((module.temperature, module.top_k, module.top_p, module.space)).encode())
        if isinstance(module, Tilted):
            for part in (module.base, module.energy):
                if not isinstance(part, nn.Module):
                    _take(part, digest)
    for name, value in sorted(thing.state_dict().items()):
        digest.update(f"{name};".encode())
        _tensor(value, digest)


def _tensor(value: Tensor, digest: Any) -> None:
    digest.update(f"{value.dtype}{tuple(value.shape)};".encode())
    digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
