"""Every source of randomness, as tensors: the generator, torch's own (dropout's), numpy's, Python's."""

import random
import struct
import warnings

import numpy
import torch
from torch import Generator, Tensor

from ebar.maths.randomness import folded


def seeded(seed: int, *, device: str = "cpu", rank: int = 0) -> Generator:
    """Seeds all global sources, and returns a generator of its own seed.

    The sources of ranks differ, or all would drop alike. Their generators do not: each draws for the rows of all
    (`together.drawn`).
    """
    torch.manual_seed(folded(seed, rank, 0))
    numpy.random.seed(folded(seed, rank, 1) % 2**32)
    random.seed(folded(seed, rank, 2))
    return Generator(device).manual_seed(folded(seed, 0, 3))


def capture_random_state(generator: Generator) -> dict[str, Tensor]:
    """The state of every source. Each tensor has the same shape whenever it is taken."""
    version, words, gauss = random.getstate()
    _, key, position, has_gauss, cached = numpy.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "generator": generator.get_state(),
        "python": torch.tensor([version, *words, *_bits(gauss)]),
        "numpy": torch.tensor([*map(int, key), position, *_bits(float(cached) if has_gauss else None)]),
    }
    if torch.accelerator.is_available():
        state["accelerator"] = torch.get_device_module().get_rng_state()
    return state


def restore_random_state(state: dict[str, Tensor], generator: Generator) -> None:
    """The inverse of `capture_random_state`."""
    torch.set_rng_state(state["torch"])
    generator.set_state(state["generator"])
    version, *words, has_gauss, bits = state["python"].tolist()
    random.setstate((version, tuple(words), _number(has_gauss, bits)))
    *key, position, has_gauss, bits = state["numpy"].tolist()
    gauss = _number(has_gauss, bits)
    numpy.random.set_state(("MT19937", numpy.array(key, dtype=numpy.uint32), position, has_gauss, gauss or 0.0))
    if "accelerator" in state and torch.accelerator.is_available():
        torch.get_device_module().set_rng_state(state["accelerator"])


def capture_dropout() -> list[Tensor]:
    """The state of what dropout draws from, on the CPU and on an accelerator."""
    states = [torch.get_rng_state()]
    return [*states, torch.get_device_module().get_rng_state()] if torch.accelerator.is_available() else states


def restore_dropout(states: list[Tensor]) -> None:
    """The inverse of `capture_dropout`."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module().set_rng_state(state)


def restore_among(states: list[dict[str, Tensor]], generator: Generator, *, rank: int, ranks: int) -> None:
    """This process's state among those saved; the generator's is the first one's, for all.

    With another number of processes global sources have no such thing, and are seeded anew.
    """
    if len(states) == ranks:
        restore_random_state(states[rank], generator)
    else:
        message = f"saved by {len(states)} processes and resumed by {ranks}: dropout will not be as it would have been"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        drawn = Generator()
        drawn.set_state(states[0]["torch"])
        seeded(int(torch.randint(2**62, (), generator=drawn)), rank=rank)
    generator.set_state(states[0]["generator"])


def _bits(number: float | None) -> tuple[int, int]:
    """Whether there is one, and its 64 bits."""
    return (0, 0) if number is None else (1, struct.unpack("<q", struct.pack("<d", number))[0])


def _number(present: int, bits: int) -> float | None:
    return struct.unpack("<d", struct.pack("<q", bits))[0] if present else None
