"""The rest of images whose first pixels are given."""

import torch
from torch import Generator

from ebar.estimators.exact import device_of
from ebar.types import Context, Sequences, Stepwise


def complete_images(
    model: Stepwise, originals: Sequences, given: int, *, n: int = 1, generator: Generator
) -> Sequences:  # fmt: skip
    """Whole images that begin with the `given` first tokens of the originals: n consecutive rows for each."""
    start = originals.tokens[:, :given].to(device_of(model))
    drawn = model.sample(n, Context(Sequences(start, torch.full_like(start[:, 0], given))), generator=generator)
    whole = torch.cat([start.repeat_interleave(n, 0), drawn.tokens], 1).cpu()
    return Sequences(whole, torch.full_like(whole[:, 0], whole.shape[1]))
