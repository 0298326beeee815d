"""Table 9 of Wang et al. 2022: one of K candidates chosen by its energy, in every way that their words allow."""

from collections.abc import Iterator, Mapping
from typing import Any

from ebar.recipes.earm.tables import RUNS, SYSTEMS, gaps, systems
from ebar.recipes.earm.translation import READING, SENTENCES, SMOOTHED, WAYS, WEIGHTS, translation_grid
from ebar.recipes.earm.twins import PAIRED, PAPER
from ebar.recipes.pieces import Cell, Claim, Figure, Figures, Recipe, Result, layouts

# Direction → BLEU on IWSLT14 for K = 0, 5, 10.
TABLE9_PAPER = {
    "de→en": (34.86, 34.93, 34.88), "en→de": (28.73, 28.85, 28.91), "en→it": (29.91, 30.04, 29.96),
    "it→en": (32.44, 32.56, 32.41), "es→en": (40.88, 41.01, 40.90), "en→es": (37.59, 37.66, 37.73),
}  # fmt: skip
BEAM_BEST = "beam 5, its best"
WORDED, EQUATIONS, _ = (f"drawn by {weight}" for weight in WEIGHTS)
BEST_BY_ENERGY = "best by q·exp(LSE)"
EFFECTIVE = "effective number of candidates, mean over sentences"


def _choices(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each system, K and way to choose; K = 0 is beam search alone."""
    for part, twin in systems({name: SYSTEMS[name] for name in ("E-ARM", "base")})(cell, result):
        yield {**part, "choice": BEAM_BEST, "K": "0"}, {"bleu": twin["bleu"]["5"]}
        for k, resampled in twin["resampling"].items():
            for way in WAYS:
                yield {**part, "choice": way, "K": k}, {"bleu": resampled["bleu"][way]}


def _weights(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """… and one for each weight that candidates are drawn by."""
    for part, twin in systems({name: SYSTEMS[name] for name in ("E-ARM", "base")})(cell, result):
        for k, resampled in twin["resampling"].items():
            for weight in WEIGHTS:
                yield {**part, "weight": weight, "K": k}, {"effective": resampled["effective"][weight]}


def _theirs(settings: Mapping[str, Any]) -> float | None:
    """The paper's figure, of the way that it describes in words."""
    if settings["system"] != "E-ARM" or settings["choice"] not in (BEAM_BEST, WORDED):
        return None
    return dict(zip(("0", "5", "10"), TABLE9_PAPER[settings["direction"]], strict=True)).get(settings["K"])


BECAUSE = (
    "what costs is the draw, not the energy. BLEU rewards the likeliest translation, and one of K drawn by q is often "
    "another: drawn by q alone, without any energy, it loses about as much, and so does the base model, whose logits "
    "never saw the contrastive term. q·exp(LSE) hardly differs from q, as after a whole sentence the LSE of its "
    "candidates differ far less than their log q. The last logit is that of the end, which follows every candidate "
    "alike: by it nearly all K are in the running (see the effective numbers), and the draw is blind to what a "
    "candidate says. Gains of at most 0.18, as in the paper, can only come from something near to taking the best."
)
FIGURE: dict[str, Any] = {"at": "bleu", "shared": SENTENCES, "paper": _theirs}
TABLE9 = Recipe(
    title="Top-K energy resampling in translation",
    source=f"{PAPER}, Table 9 (IWSLT14); the runs of earm/table1",
    grid=translation_grid([SMOOTHED]),
    figures=[
        Figures(
            Figure(name="BLEU", **FIGURE),
            Figure(
                name="BLEU" + PAIRED, minus={"choice": BEAM_BEST, "K": "0"},
                about=lambda runs: {"K": f"{runs[0][0]['K']} − 0"}, **FIGURE,
            ),
            by=("direction", "system", "choice", "K"), parts=_choices,
        ),
        Figures(
            Figure(name=EFFECTIVE, at="effective", range=(1.0, 10.0)), by=("direction", "system", "weight", "K"),
            parts=_weights,
        ),
    ],
    tables=[
        *layouts(("system", "choice", "K"), "BLEU", "BLEU" + PAIRED, columns=("direction",)),
        *layouts(("system", "weight", "K"), EFFECTIVE, columns=("direction",)),
    ],
    plots=gaps("{system}, {choice}, {K}", "BLEU", title="Chosen among K − beam 5, paired over seeds"),
    claims=[
        Claim(says="resampling by the last logit raises BLEU", figure="BLEU" + PAIRED, above=0.0,
              where={"system": "E-ARM", "choice": WORDED}, because=BECAUSE),
        Claim(says="resampling by the energy of the equations raises BLEU", figure="BLEU" + PAIRED, above=0.0,
              where={"system": "E-ARM", "choice": EQUATIONS}, because="as above, the draw and not the energy."),
        Claim(says="choosing the candidate of lowest energy raises BLEU", figure="BLEU" + PAIRED, above=0.0,
              where={"system": "E-ARM", "choice": BEST_BY_ENERGY},
              because="the candidates are the K likeliest of a beam without a penalty for length, whose best is "
              "shorter than that of beam search with one; the energy changes little, as the same is true of the best "
              "by q alone."),
    ],
    reading=READING,
    **RUNS,
)  # fmt: skip
