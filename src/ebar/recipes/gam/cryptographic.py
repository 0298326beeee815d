"""Footnote 4's extreme case: a predicate that P_λ has at once, and that no autoregressive model can learn."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

import ebar
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive, assemble
from ebar.recipes.gam.cells import learn
from ebar.recipes.pieces import Cell, Claim, Curves, Figure, Figures, Grid, Layout, Recipe, Result

KEY = b"footnote 4"
BITS = {"demo": 20, "cpu": 24, "paper": 30}
DISTILLED = {"demo": [5000], "cpu": [20_000, 100_000], "paper": [20_000, 100_000, 1_000_000]}
HIDDEN = {"demo": 8, "cpu": 64, "paper": 200}
EPOCHS = {"demo": 1, "cpu": 8, "paper": 40}
SEEDS = {"demo": 3, "cpu": 5, "paper": 10}
DATA, HELD_OUT, TEST, DRAWS = 20_000, 2_000, 20_000, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedHashBit:
    """The first bit of SHA-256(key‖x), a byte for each token; `absent` turns 1 and 0 round.

    Without the key it looks like a fair coin tossed once for each x, so nothing shorter than a table of all x
    predicts it; parity would not do, as two states follow it.
    """

    key: bytes = KEY
    absent: bool = False

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}keyed hash bit"

    def __call__(self, x: ebar.Sequences, context: ebar.Context | None = None) -> Float[Tensor, " batch"]:
        rows, lengths = x.tokens.to(torch.uint8).cpu().numpy(), x.lengths.tolist()
        start = hashlib.sha256(self.key)
        bits = []
        for row, length in zip(rows, lengths, strict=True):
            digest = start.copy()
            digest.update(row[:length].tobytes())
            bits.append(digest.digest()[0] >> 7)
        values = torch.tensor(bits, dtype=torch.float64, device=x.tokens.device)
        return 1 - values if self.absent else values


def noise_with_the_bit(space: ebar.Space, size: int, *, generator: Generator, key: bytes = KEY) -> ebar.Sequences:
    """Uniform among the strings of the space whose bit is 1."""
    parts: list[ebar.Sequences] = []
    while sum(len(part.lengths) for part in parts) < size:
        tokens = torch.randint(space.vocabulary, (2 * size + 100, space.length), generator=generator)
        x = ebar.Sequences(tokens, torch.full((len(tokens),), space.length))
        parts.append(x.select(KeyedHashBit(key=key)(x) == 1))
    return ebar.Sequences.join(parts).select(torch.arange(size))


def demanded(base: Any, *, key: bytes = KEY) -> ebar.Tilted:
    """P_λ: the bit is 1 in all data, so the λ that matches its moment is −∞ for its absence, and Z is P_r(bit = 1)."""
    absent = ebar.Features([KeyedHashBit(key=key, absent=True)])
    return ebar.Tilted(base, ebar.Linear(absent, torch.tensor([-math.inf], dtype=torch.float64)))


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """r, P_λ and π: their costs on test strings, and how often they have the bit."""
    space, seed = ebar.Space(2, cell["bits"]), cell["seed"]
    generator = Generator().manual_seed(folded(seed, 0))
    train, held_out, test = (noise_with_the_bit(space, size, generator=generator) for size in (DATA, HELD_OUT, TEST))
    r = _learnt(cell, space, train, held_out, folded(seed, 1))
    p = demanded(r)
    z = ebar.log_z(ebar.draw(ebar.Importance(), p, DRAWS, generator=generator))[0].estimate
    kept = sum_of = 0
    parts = []
    for part in ebar.Rejection().attempts(p, cell["distilled"] + HELD_OUT, generator=generator):
        parts.append(part.x)
        kept, sum_of = kept + int(part.accepted.sum()), sum_of + int(part.proposed.sum())
    drawn = ebar.Sequences.join(parts)
    pi = _learnt(
        cell, space, drawn.select(torch.arange(HELD_OUT, HELD_OUT + cell["distilled"])),
        drawn.select(torch.arange(HELD_OUT)), folded(seed, 2),
    )  # fmt: skip
    bit = KeyedHashBit()
    costs = {name: float(negative_log_scores(model, test).mean()) for name, model in (("r", r), ("pi", pi))}
    costs["p"] = float(negative_log_scores(p, test).mean()) + z.value
    return {
        **{f"cross_entropy_{name}": cost for name, cost in costs.items()},
        "gain_p": costs["r"] - costs["p"],
        "gain_pi": costs["r"] - costs["pi"],
        "gain_pi_over_noise": cell["bits"] * math.log(2) - costs["pi"],
        "frequency_r": float(bit(r.sample(DRAWS, generator=generator)).mean()),
        "frequency_pi": float(bit(pi.sample(DRAWS, generator=generator)).mean()),
        "acceptance": kept / sum_of,
    }


def _learnt(
    cell: Cell, space: ebar.Space, train: ebar.Sequences, held_out: ebar.Sequences, seed: int
) -> Autoregressive:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = assemble(space, "lstm", {"layers": 1, "hidden": cell["hidden"], "dropout": 0.0})
    learn(model, train, held_out, batch_size=1000, epochs=cell["epochs"], patience=2, learning_rate=2e-3, seed=seed)
    return model


# What theory says: a multiple of the cost of noise, bits·log 2, and what is added to it.
EXACT = {
    "cross_entropy_r": (1, 0.0), "cross_entropy_p": (1, -math.log(2)), "cross_entropy_pi": (1, 0.0),
    "gain_p": (0, math.log(2)), "gain_pi": (0, 0.0), "gain_pi_over_noise": (0, 0.0), "frequency_r": (0, 0.5),
    "frequency_pi": (0, 0.5), "acceptance": (0, 0.5),
}  # fmt: skip


WORDS = {
    "cross_entropy_r": "cross-entropy of r", "cross_entropy_p": "cross-entropy of P_λ",
    "cross_entropy_pi": "cross-entropy of π", "gain_p": "what P_λ gains over r", "gain_pi": "what π gains over r",
    "gain_pi_over_noise": "what π gains over fair coins", "frequency_r": "share of r's strings with the bit",
    "frequency_pi": "share of π's strings with the bit", "acceptance": "acceptance rate of draws of P_λ",
    "exact": "in theory", "distilled": "distilled strings",
}  # fmt: skip


def theory(runs: Sequence[Result], *, noises: int, more: float) -> dict[str, float]:
    """The exact figure, were the hash a fair coin."""
    return {"exact": noises * (runs[0][0]["bits"] * math.log(2)) + more}


RECIPE = Recipe(
    title="A keyed hash bit: what P_λ gains at once and π cannot",
    source="Parshakova et al. 2019, footnote 4 (a claim there, without figures)",
    grid=Grid(common={"bits": BITS, "hidden": HIDDEN, "epochs": EPOCHS}, axes={"distilled": DISTILLED}, seeds=SEEDS),
    run=run_cell,
    figures=Figures(
        *[
            Figure(name=name, at=name, about=partial(theory, noises=noises, more=more),
                   range=(0.0, 1.0) if name.startswith(("frequency", "acceptance")) else None)
            for name, (noises, more) in EXACT.items()
        ],
        by=("bits", "distilled"),
    ),
    tables=Layout(rows=("figure", "exact"), columns=("distilled",), names=WORDS),
    plots=Curves(
        of={"gain_p": "P_λ", "gain_pi": "π"}, x="distilled", x_label="distilled samples",
        title="nats per sequence gained over r", levels={"log 2": math.log(2), "nothing": 0.0},
    ),
    claims=[
        Claim(says="P_λ gains over r at once", figure="gain_p", above=0.6),
        Claim(says="π gains nothing like it", figure="gain_pi", below=0.1),
    ],
)  # fmt: skip
