"""Tables and figures of Wang et al. 2022 on translation; all but Table 2 and the run on all of Tatoeba share runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from ebar.recipes.earm import translation, twins
from ebar.recipes.earm.translation import READING, SCHEDULED, SENTENCES, SMOOTHED, VARIANTS, elsewhere, translation_grid
from ebar.recipes.earm.twins import BASE, EARM, LEFT, PAIRED, PAPER, paired_figures, paper_figures
from ebar.recipes.figures import alone
from ebar.recipes.pieces import Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result, layouts

RUNS: dict[str, Any] = {"run": translation.run_cell, "runs": "earm/translation"}
INTO_ENGLISH = translation_grid((SMOOTHED, SCHEDULED), ("de→en", "it→en", "es→en"))
BEAM = "BLEU, beam 5"
Settings = Mapping[str, Any]

# Table 1 ----------------------------------------------------------------------------------------------------------

GAIN = "BLEU, E-ARM − without, paired"
COST = "test nats per token, E-ARM − without, paired"
DECODING: dict[str, Any] = {"each": {"decoding": {"greedy": "1", "beam 5": "5"}}, "shared": SENTENCES}
# Variant and decoding → BLEU on IWSLT14 without and with E-ARM, by direction.
TABLE1_PAPER = {
    (BASE, "greedy"): ((32.44, 26.64, 27.92, 30.48, 38.61, 35.42), (32.99, 27.15, 28.33, 31.13, 39.56, 36.07)),
    (BASE, "beam 5"): ((33.62, 27.41, 28.72, 31.39, 39.55, 36.38), (34.06, 27.97, 29.26, 31.90, 40.30, 36.92)),
    (SMOOTHED, "greedy"): ((33.68, 27.62, 28.81, 31.42, 39.85, 36.71), (33.97, 28.03, 29.13, 31.84, 40.32, 36.96)),
    (SMOOTHED, "beam 5"): ((34.61, 28.46, 29.72, 32.29, 40.64, 37.48), (34.93, 28.91, 30.04, 32.56, 41.01, 37.73)),
    (SCHEDULED, "greedy"): ((34.23, 27.96, 29.26, 31.93, 40.16, 37.21), (34.58, 28.38, 29.56, 32.11, 40.93, 37.56)),
    (SCHEDULED, "beam 5"): ((35.10, 28.73, 29.97, 32.64, 40.91, 37.93), (35.36, 29.11, 30.25, 32.82, 41.58, 38.19)),
}


def _table1() -> dict[Any, tuple[float, float, float]]:
    """Direction, variant and decoding → without, with, and the gain."""
    return {
        (direction, *row): (without, with_earm, round(with_earm - without, 2))
        for row, both in TABLE1_PAPER.items()
        for direction, without, with_earm in zip(translation.DIRECTIONS, *both, strict=True)
    }


def _with_left(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    ends = result["twins"][BASE]["curves"]["validation"]
    yield cell, {**result, "left": twins.share_of_learning(cell, cell["twins"][EARM]["start_epoch"], ends)}


WITH_AND_WITHOUT: dict[str, Any] = {
    "figures": [
        Figures(
            Figure(name="BLEU", at="twins.base.bleu.{decoding}", **DECODING),
            Figure(name="BLEU with E-ARM", at="twins.earm.bleu.{decoding}", **DECODING),
            Figure(name=GAIN, at=twins.gain("bleu.{decoding}"), single="difference.{decoding}", **DECODING),
            Figure(name=COST, at=twins.gain("nats_per_token"), about={"decoding": None}),
            Figure(name=LEFT, at="left", about={"decoding": None}, summary=alone(fmean)),
            Figure(
                name="epoch of the lowest held-out loss, {twin}", each={"twin": {"base": BASE, "E-ARM": EARM}},
                at=lambda run, twin: twins.best_epoch(run["twins"][twin]["curves"]["validation"]),
                about={"decoding": None}, summary=alone(fmean),
            ),
            by=("direction", "variant"), parts=_with_left, paper=_table1(),
        )
    ],
    "tables": [
        Layout(rows=("variant", "decoding"), columns=("direction", "figure"), figures=("BLEU*",)),
        *layouts(("variant",), COST, columns=("direction",)),
        Layout(rows=("variant",), columns=("direction", "figure"), figures=(LEFT, "epoch*")),
    ],
    "plots": [Points(of=[GAIN], label="{direction}, {variant}, {decoding}", title="Paired over seeds", x_label=GAIN)],
    "claims": [
        Claim(says="E-ARM raises BLEU", figure=GAIN, above=0.0),
        Claim(says="E-ARM lowers the cost of the test sentences", figure=COST, below=0.0),
    ],
    "reading": READING,
}  # fmt: skip
TABLE1 = Recipe(
    title="Translation with and without E-ARM: label smoothing, scheduled sampling, greedy and beam search",
    source=f"{PAPER}, Table 1 (IWSLT14); at scale cpu 10,000 pairs of Tatoeba, de→en (earm/table2 has en→de)",
    grid=translation_grid(),
    **RUNS,
    **WITH_AND_WITHOUT,
)
# Batches are small because few passes over the data are all there is time for, and E-ARM comes in when little of the
# learning is left: what is asked here is what the model can do, not what E-ARM adds to it.
LARGER = {
    "data.limit": None, "data.held_out_limit": None, "data.vocabulary": 4000, "backbone.layers": 2,
    "backbone.encoder_layers": 2, "backbone.hidden": 192, "backbone.feedforward": 768, "training.epochs": 5,
    "earm.start_epoch": 4, "schedule.kind": "cosine", "schedule.warmup": 500, "measures.meteor": False,
}  # fmt: skip
TATOEBA = Recipe(
    title="A translation model on all of Tatoeba, de→en, and its E-ARM twin",
    source=f"ebar's own; the setting of {PAPER}, Table 1",
    # One seed: the interval is over the test sentences.
    grid=translation_grid([SMOOTHED], ["de→en"], seed=[0], larger={"demo": [{}], "cpu": [LARGER], "paper": [{}]}),
    run=translation.run_cell,
    **{
        **WITH_AND_WITHOUT,
        "claims": Claim(
            says="E-ARM raises BLEU", figure=GAIN, above=0.0,
            because="not known from one training, whose interval is over test sentences and not over seeds; and E-ARM "
            "had little of the learning left to it.",
        ),
        "reading": replace(
            READING,
            departures=lambda cells: [
                "E-ARM has the last of five epochs of a rate that falls to 0 as a cosine does, some 1.3 % of the "
                "integral of the learning rate: too little to tell what it adds. earm/table1 gives it far more."
            ] if cells[0]["configuration"]["schedule"]["kind"] == "cosine" else [],
        ),
    },
)  # fmt: skip

# Systems side by side ---------------------------------------------------------------------------------------------

# Name → variant of a run, and which of its twins. The paper has label smoothing in all of its Tables 7 to 10.
SYSTEMS = {
    "base": (SMOOTHED, BASE),
    "E-ARM": (SMOOTHED, EARM),
    "scheduled sampling": (SCHEDULED, BASE),
    "scheduled sampling + E-ARM": (SCHEDULED, EARM),
}
LAST = {"system": "scheduled sampling + E-ARM − scheduled sampling"}  # what the paper's last rows say of E-ARM
AGAINST = {"E-ARM": "base", "scheduled sampling": "base", "scheduled sampling + E-ARM": "scheduled sampling"}


def systems(names: Mapping[str, tuple[str, str]]) -> Callable[[Cell, dict[str, Any]], Iterator[Result]]:
    """A run as one for each of its systems."""
    known = {place: {"system": name} for name, place in names.items()}
    return twins.each_twin(lambda cell, twin: known.get((cell["variant"], twin), {}))


def gaps(label: str, *names: str, title: str = "Paired over seeds", x_label: str = "BLEU") -> list[Points]:
    """A plot of paired differences; there is little room beside it."""
    short = {SCHEDULED: "SS", SMOOTHED: "LS", PAIRED: ""}
    figures = [name + PAIRED for name in names]
    return [Points(of=figures, label="{direction}, " + label, title=title, x_label=x_label, short=short)]


# Size → BLEU on WMT16 of these systems.
TABLE2_SYSTEMS = (BASE, SMOOTHED, SCHEDULED, f"{SCHEDULED} + E-ARM")
TABLE2_PAPER = {("base",): (27.56, 28.04, 28.36, 28.62), ("large",): (28.70, 29.05, 29.23, 29.44)}


def _size(size: str, hidden: int, feedforward: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    own = {"hidden": hidden, "feedforward": feedforward, "layers": layers, "encoder_layers": layers, "heads": heads}
    return {"size": size, **{f"backbone.{key}": own[key] for key in own}, **more, "measures.candidates": []}


# Table 6: 12 layers are 6 + 6.
WMT = {"data.vocabulary": 32_000, "optimiser.learning_rate": 1e-3, "optimiser.weight_decay": 0.0}
SIZES = {
    "demo": [_size("base", 16, 32, 1, 2), _size("large", 24, 48, 1, 2)],
    "cpu": [_size("base", 128, 512, 1, 4), _size("large", 192, 768, 2, 4)],
    "paper": [
        _size("base", 512, 2048, 6, 8, **{"earm.start_epoch": 15, **WMT}),
        _size("large", 1024, 4096, 6, 16, **{"earm.start_epoch": 10, **WMT}),
    ],
}
TABLE2 = Recipe(
    title="Translation en→de by models of two sizes, with and without E-ARM",
    source=f"{PAPER}, Table 2 (WMT16); at scale cpu 10,000 pairs of Tatoeba",
    # E-ARM is in the last row of the paper's table alone: below scale paper that will do.
    grid=translation_grid(
        {"demo": [SCHEDULED], "cpu": [SCHEDULED], "paper": VARIANTS}, ["en→de"], ours="en→de", corpus="wmt16-en-de",
        size=SIZES,
    ),
    run=translation.run_cell,
    figures=Figures(
        *paired_figures(
            BEAM, "system", {f"{variant} + E-ARM": variant for variant in VARIANTS}, at="bleu.5", shared=SENTENCES,
            paper=paper_figures(TABLE2_PAPER, TABLE2_SYSTEMS, "size", "system"),
        ),
        by=("direction", "size", "system"),
        parts=twins.each_twin(lambda cell, twin: {"system": cell["variant"] + (" + E-ARM" if twin == EARM else "")}),
    ),
    tables=layouts(("system",), BEAM, BEAM + PAIRED, columns=("size",)),
    plots=gaps("{size}, {system}", BEAM),
    claims=Claim(says="E-ARM raises BLEU at both sizes", figure=BEAM + PAIRED, above=0.0),
    reading=replace(READING, elsewhere=elsewhere("wmt16-en-de", "WMT16")),
)  # fmt: skip

# Direction and system → BLEU on IWSLT14 by the length of targets: [0, 25), [25, 50), [50, ∞) words, all.
LENGTHS = ("short", "medium", "long", "all")
TABLE7_PAPER = {
    ("de→en", "base"): (37.72, 33.24, 30.86, 34.61),
    ("de→en", "scheduled sampling"): (38.20, 33.76, 31.08, 35.10),
    ("de→en", "scheduled sampling + E-ARM"): (38.37, 33.92, 31.43, 35.36),
    ("it→en", "base"): (35.20, 32.73, 26.86, 32.29),
    ("it→en", "scheduled sampling"): (35.52, 33.25, 26.95, 32.64),
    ("it→en", "scheduled sampling + E-ARM"): (35.56, 33.33, 27.21, 32.82),
    ("es→en", "base"): (43.37, 39.67, 37.14, 40.64),
    ("es→en", "scheduled sampling"): (43.61, 40.00, 37.38, 40.91),
    ("es→en", "scheduled sampling + E-ARM"): (43.84, 40.35, 38.07, 41.58),
}


def _lengths(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each system and bin, short sentences first; the paper's bins are in the same order."""
    for part, twin in systems(SYSTEMS)(cell, result):
        scores = {**twin["by_length"], "all": twin["bleu"]["5"]}
        for length, (words, score) in zip(LENGTHS, scores.items(), strict=True):
            yield {**part, "words": words, "length": length}, {"bleu": score}


TABLE7 = Recipe(
    title="BLEU by the length of the target, with and without E-ARM",
    source=f"{PAPER}, Table 7 (IWSLT14, other bins: theirs stand beside ours by rank); the runs of earm/table1",
    grid=INTO_ENGLISH,
    figures=Figures(
        *paired_figures(
            BEAM, "system", AGAINST, at="bleu", shared=SENTENCES, empty="nothing to measure it on",
            paper=paper_figures(TABLE7_PAPER, LENGTHS, "direction", "system", "length"),
        ),
        by=("direction", "system", "words"), parts=_lengths,
    ),
    tables=layouts(("direction", "system"), BEAM, BEAM + PAIRED, columns=("words",)),
    plots=gaps("{system}, {words}", BEAM, title="Paired over seeds, by words of the target"),
    claims=Claim(
        says="E-ARM after scheduled sampling raises BLEU at every length", figure=BEAM + PAIRED, above=0.0, where=LAST
    ),
    reading=replace(READING, elsewhere=elsewhere("iwslt14", "IWSLT14, other bins")),
    **RUNS,
)  # fmt: skip

# Direction and system → these on IWSLT14.
METRICS = ("ROUGE-1", "ROUGE-2", "ROUGE-L", "METEOR", "BLEU")
TABLE10_PAPER = {
    ("de→en", "base"): (66.51, 43.69, 63.69, 64.35, 34.61),
    ("de→en", "scheduled sampling"): (66.83, 44.08, 64.02, 64.61, 35.10),
    ("de→en", "scheduled sampling + E-ARM"): (67.46, 44.77, 64.78, 65.13, 35.36),
    ("it→en", "base"): (64.50, 40.65, 61.69, 62.18, 32.29),
    ("it→en", "scheduled sampling"): (64.73, 40.97, 61.94, 62.51, 32.64),
    ("it→en", "scheduled sampling + E-ARM"): (65.27, 41.51, 62.49, 62.80, 32.82),
    ("es→en", "base"): (71.10, 49.47, 68.78, 68.94, 40.64),
    ("es→en", "scheduled sampling"): (71.36, 49.53, 68.96, 69.28, 40.91),
    ("es→en", "scheduled sampling + E-ARM"): (71.91, 50.17, 69.65, 69.63, 41.58),
}


def _metrics(twin: Mapping[str, Any]) -> dict[str, Any]:
    """METEOR is measured where WordNet is."""
    return {**twin["overlap"], "BLEU": twin["bleu"]["5"]}


TABLE10 = Recipe(
    title="Other metrics of translation, with and without E-ARM",
    source=f"{PAPER}, Table 10 (IWSLT14); the runs of earm/table1",
    grid=INTO_ENGLISH,
    figures=Figures(
        *paired_figures(
            "{metric}", "system", AGAINST, at=lambda twin, metric: _metrics(twin)[metric], shared=SENTENCES,
            each={"metric": lambda twin: {name: name for name in _metrics(twin)}},
            paper=paper_figures(TABLE10_PAPER, METRICS, "direction", "system", "metric"),
        ),
        by=("direction", "system"), parts=systems(SYSTEMS),
    ),
    tables=layouts(("direction", "system"), *([metric + suffix for metric in METRICS] for suffix in ("", PAIRED))),
    plots=gaps("{figure}, {system}", *METRICS, x_label="points"),
    claims=[
        Claim(says=f"E-ARM after scheduled sampling raises {metric}", figure=metric + PAIRED, above=0.0, where=LAST)
        for metric in METRICS
    ],
    notes=lambda rows: [] if any(row.name == "METEOR" for row in rows) else [
        "METEOR was not measured: WordNet was not installed. `ebar doctor` says how to get it."
    ],
    reading=READING,
    **RUNS,
)  # fmt: skip
