"""Seeds made of several numbers, and randomness where nobody has given a generator."""

import hashlib
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

Law = Literal["normal", "uniform"]  # of the noise that an implicit generator makes samples of


def default_generator(device: torch.device | str = "cpu") -> Generator:
    """A generator seeded from torch's own state, so that `torch.manual_seed` repeats a whole script."""
    return Generator(device).manual_seed(int(torch.randint(2**62, ())))


def folded(*numbers: int | str) -> int:
    """One seed from several numbers or names, without the collisions of a sum (seed 0 epoch 1, seed 1 epoch 0)."""
    digest = hashlib.sha256("/".join(map(str, numbers)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def draw_noise(rows: int, latent: int, law: Law, *, generator: Generator) -> Float[Tensor, "rows latent"]:
    """Independent numbers: of the standard normal law, or uniform on [0, 1)."""
    drawn = torch.randn if law == "normal" else torch.rand
    return drawn(rows, latent, generator=generator, device=generator.device)
