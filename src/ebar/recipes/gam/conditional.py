"""Equations 2 and 3 at work: the context decides which motif comes, and only λ(C) can say so."""

from pathlib import Path
from typing import Any

import torch
from torch import Generator

import ebar
from ebar.automata.measures import entropy
from ebar.energies.conditional import ConditionalLinear, ConstantCoefficients, Network, Recurrent, distinct_contexts
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.maths.randomness import folded
from ebar.models.construction import assemble
from ebar.recipes.gam.cells import learn
from ebar.recipes.pieces import Cell, Claim, Curves, Figure, Figures, Grid, Layout, Recipe

MOTIFS = ("101110", "010001", "110011", "001010")  # that of a context of three bits is the one of its number of ones
LENGTH, PRESENCE = 20, 0.9
SIZES = {"demo": [250], "cpu": [250, 500, 1000, 2000], "paper": [250, 500, 1000, 2000, 5000, 20_000]}
# Epochs of r, steps of λ, about, and draws for each context and step.
SCALES = {
    "demo": {"hidden": 16, "epochs": 12, "steps": 30, "draws": 100},
    "cpu": {"hidden": 64, "epochs": 30, "steps": 150, "draws": 400},
    "paper": {"hidden": 200, "epochs": 100, "steps": 500, "draws": 1000},
}
SEEDS = {"demo": 2, "cpu": 3, "paper": 10}
TEST, LOG_Z_DRAWS = 2000, 4000
MODELS = {"r": "r", "constant": "P_λ, one λ for all", "conditional": "P_λ(C)"}
COSTS = {name: f"cross-entropy of {label}" for name, label in MODELS.items()}
GAINS = {
    "constant": "what one λ for all gains over r", "conditional": "what λ(C) gains over r",
    "context": "what λ(C) gains over one λ for all",
}  # fmt: skip


def languages() -> list[ebar.Language]:
    """What continues a context with 0, 1, 2 or 3 ones: noise that has its motif nine times in ten."""
    return [ebar.Language(motif=motif, length=LENGTH, presence=PRESENCE) for motif in MOTIFS]


def conditional_entropy() -> float:
    """H(x|C), exact: the number of ones among three fair bits is binomial."""
    chances = (1 / 8, 3 / 8, 3 / 8, 1 / 8)
    return sum(chance * entropy(language.distribution()) for chance, language in zip(chances, languages(), strict=True))


def sample(size: int, *, generator: Generator) -> tuple[ebar.Sequences, ebar.Context]:
    """Pairs of a context and what continues it."""
    given = torch.randint(2, (size, 3), generator=generator)
    ones = given.sum(1)
    tokens = torch.zeros(size, LENGTH + 1, dtype=torch.long)
    for number, language in enumerate(languages()):
        rows = (ones == number).nonzero().squeeze(1)
        if len(rows):
            tokens[rows] = language.distribution().sample(len(rows), generator=generator).tokens
    x = ebar.Sequences(tokens, torch.full((size,), LENGTH + 1))
    return x, ebar.Context(ebar.Sequences(given, torch.full((size,), 3)))


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """r, and P_λ with one λ for all and with λ(C), each by its cost on test pairs."""
    seed, size = cell["seed"], cell["data"]
    generator = Generator().manual_seed(folded(seed, size))
    train, held_out = (sample(number, generator=generator) for number in (size, max(100, size // 4)))
    test = sample(TEST, generator=generator)
    space = languages()[0].space
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(folded(seed, 1))
        r = assemble(space, "lstm", {"layers": 1, "hidden": cell["hidden"], "dropout": 0.1})
        networks: dict[str, Network] = {
            "constant": ConstantCoefficients(len(MOTIFS)),
            "conditional": Recurrent(space.vocabulary, len(MOTIFS)),
        }
    learn(r, train, held_out, batch_size=50, epochs=cell["epochs"], patience=3, learning_rate=3e-3, seed=seed)
    found = {"cross_entropy_r": float(negative_log_scores(r, *test).mean())}
    features = ebar.Features([ebar.Motif(motif=motif, alphabet="01", end=space.end) for motif in MOTIFS])
    for name, network in networks.items():
        energy = ConditionalLinear(features, network)
        p = ebar.Tilted(r, energy)
        batches = max(5, size // 250)
        learn(
            energy, train, held_out, objective=ebar.ConditionalMoments(model=p, draws=cell["draws"]), patience=4,
            batch_size=-(-size // batches), epochs=-(-cell["steps"] // batches), learning_rate=0.05, seed=seed,
        )  # fmt: skip
        found[f"cross_entropy_{name}"] = _cost(p, *test, generator=generator)
        found[f"gain_{name}"] = found["cross_entropy_r"] - found[f"cross_entropy_{name}"]
    found["gain_context"] = found["cross_entropy_constant"] - found["cross_entropy_conditional"]
    return found


def _cost(p: ebar.Tilted, x: ebar.Sequences, context: ebar.Context, *, generator: Generator) -> float:
    """Cross-entropy of a conditional model: each context has its own log Z."""
    different, which = distinct_contexts(context)
    normalisers = ebar.log_z(
        ebar.draw(ebar.Importance(batch_size=32_768), p, LOG_Z_DRAWS, context=different, generator=generator)
    )
    values = torch.tensor([each.estimate.value for each in normalisers], dtype=torch.float64)
    return float((negative_log_scores(p, x, context) + values[which]).mean())


RECIPE = Recipe(
    title="A conditional GAM: the context decides which motif comes",
    source="Parshakova et al. 2019, equations 2 and 3 (no experiment there)",
    grid=Grid(scales=SCALES, axes={"data": SIZES}, seeds=SEEDS),
    run=run_cell,
    figures=Figures(
        *[
            Figure(name=name, at=f"{what}_{of}", about=lambda runs: {"entropy": conditional_entropy()})
            for what, names in (("cross_entropy", COSTS), ("gain", GAINS)) for of, name in names.items()
        ],
        by=("data",),
    ),
    tables=[
        Layout(rows=("data", "entropy"), figures=figures, names={"data": "|D|", "entropy": "H(x|C)"})
        for figures in (tuple(COSTS.values()), tuple(GAINS.values()))
    ],
    plots=Curves(
        of={COSTS[name]: label for name, label in MODELS.items()}, x="data", x_label="|D|", log_x=True,
        title="cross-entropy, nats per sequence", levels={"H(x|C)": lambda rows: float(rows[0].settings["entropy"])},
    ),
    claims=[
        Claim(says="one λ for all gains over r", figure=GAINS["constant"], above=0.0),
        Claim(says="λ(C) gains over r", figure=GAINS["conditional"], above=0.0),
        Claim(says="λ(C) gains over one λ for all", figure=GAINS["context"], above=0.0),
    ],
    notes=lambda rows: ["All figures are nats per sequence of 20 bits and its end, on 2,000 test pairs."],
)  # fmt: skip
