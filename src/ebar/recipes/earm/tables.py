"""Tables and figures of Wang et al. 2022 on translation; all but Table 2 and the run on all of Tatoeba share runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations
from statistics import fmean
from typing import Any

from ebar.recipes.earm.translation import (
    KEPT,
    READING,
    SCHEDULED,
    SENTENCES,
    SMOOTHED,
    VARIANTS,
    elsewhere,
    run_cell,
    translation_grid,
)
from ebar.recipes.earm.twins import (
    BASE,
    EARM,
    PAIRED,
    PAPER,
    alone,
    each_twin,
    gain,
    laid,
    paired_figures,
    paper_figures,
)
from ebar.recipes.figures import Figure, Figures, found
from ebar.recipes.layout import Claim, Curves, Layout, Points, list_of_figures
from ebar.recipes.recipe import Cell, Laid, Recipe, Result, Row
from ebar.types import Estimate

RUNS: dict[str, Any] = {"run": run_cell, "runs": "earm/translation"}
INTO_ENGLISH = translation_grid((SMOOTHED, SCHEDULED), ("de→en", "it→en", "es→en"))
BEAM = "BLEU, beam 5"
Settings = Mapping[str, Any]

# Table 1 ----------------------------------------------------------------------------------------------------------

GAIN = "BLEU, E-ARM − without, paired"
COST = "test nats per token, E-ARM − without, paired"
DECODING: dict[str, Any] = {"each": {"decoding": {"greedy": "1", "beam 5": "5"}}, "shared": SENTENCES}
WITH_AND_WITHOUT: dict[str, Any] = {
    "figures": [
        Figures(
            Figure(name="BLEU", at="twins.base.bleu.{decoding}", **DECODING),
            Figure(name="BLEU with E-ARM", at="twins.earm.bleu.{decoding}", **DECODING),
            Figure(name=GAIN, at=gain("bleu.{decoding}"), single="difference.{decoding}", **DECODING),
            Figure(name=COST, at=gain("nats_per_token"), about={"decoding": None}),
            by=("direction", "variant"),
            paper={
                ("de→en", BASE, "greedy"): (32.44, 32.99, 0.55),
                ("de→en", BASE, "beam 5"): (33.62, 34.06, 0.44),
                ("de→en", SMOOTHED, "greedy"): (33.68, 33.97, 0.29),
                ("de→en", SMOOTHED, "beam 5"): (34.61, 34.93, 0.32),
                ("de→en", SCHEDULED, "greedy"): (34.23, 34.58, 0.35),
                ("de→en", SCHEDULED, "beam 5"): (35.10, 35.36, 0.26),
            },
        )
    ],
    "tables": [
        Layout(rows=("variant", "decoding"), columns=("direction", "figure"), figures=("BLEU*",)),
        *laid(("variant",), ("direction",), COST),
    ],
    "plots": [Points(of=[GAIN], label="{direction}, {variant}, {decoding}", title="Paired over seeds", x_label=GAIN)],
    "claims": [Claim(says="E-ARM raises BLEU", figure=GAIN, above=0.0)],
    "reading": READING,
}
TABLE1 = Recipe(
    title="Translation with and without E-ARM: label smoothing, scheduled sampling, greedy and beam search",
    source=f"{PAPER}, Table 1 (IWSLT14); at scale cpu 20,000 pairs of Tatoeba, de→en",
    grid=translation_grid(),
    **RUNS,
    **WITH_AND_WITHOUT,
)
# Batches are small because few passes over the data are all there is time for.
LARGER = {
    "data.limit": None, "data.held_out_limit": None, "data.vocabulary": 4000, "backbone.layers": 2,
    "backbone.encoder_layers": 2, "backbone.hidden": 192, "backbone.feedforward": 768, "training.epochs": 5,
    "earm.start_epoch": 4, "schedule.warmup": 500,
}  # fmt: skip
TATOEBA = Recipe(
    title="A translation model on all of Tatoeba, de→en, and its E-ARM twin",
    source=f"ebar's own; the setting of {PAPER}, Table 1",
    # One seed: the interval is over the test sentences.
    grid=translation_grid([SMOOTHED], ["de→en"], seed=[0], larger={"demo": [{}], "cpu": [LARGER], "paper": [{}]}),
    run=run_cell,
    **WITH_AND_WITHOUT,
)

# Systems side by side ---------------------------------------------------------------------------------------------

# Name → variant of a run, and which of its twins. The paper has label smoothing in all of its Tables 7 to 10.
SYSTEMS = {
    "base": (SMOOTHED, BASE),
    "E-ARM": (SMOOTHED, EARM),
    "scheduled sampling": (SCHEDULED, BASE),
    "scheduled sampling + E-ARM": (SCHEDULED, EARM),
}
AGAINST = {"E-ARM": "base", "scheduled sampling": "base", "scheduled sampling + E-ARM": "scheduled sampling"}


def systems(names: Mapping[str, tuple[str, str]]) -> Callable[[Cell, dict[str, Any]], Iterator[Result]]:
    """A run as one for each of its systems."""
    known = {place: {"system": name} for name, place in names.items()}
    return each_twin(lambda cell, twin: known.get((cell["variant"], twin), {}))


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
WMT = {"data.vocabulary": 32_000, "optimiser.learning_rate": 1e-3}
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
    source=f"{PAPER}, Table 2 (WMT16); at scale cpu 20,000 pairs of Tatoeba",
    # At scale demo the last row of the paper's table will do.
    grid=translation_grid(
        {"demo": [SCHEDULED], "cpu": VARIANTS, "paper": VARIANTS}, ["en→de"], ours="en→de", corpus="wmt16-en-de",
        size=SIZES,
    ),
    run=run_cell,
    figures=Figures(
        *paired_figures(
            BEAM, "system", {f"{variant} + E-ARM": variant for variant in VARIANTS}, at="bleu.5", shared=SENTENCES,
            paper=paper_figures(TABLE2_PAPER, TABLE2_SYSTEMS, "size", "system"),
        ),
        by=("direction", "size", "system"),
        parts=each_twin(lambda cell, twin: {"system": cell["variant"] + (" + E-ARM" if twin == EARM else "")}),
    ),
    tables=laid(("system",), ("size",), BEAM, BEAM + PAIRED),
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
    tables=laid(("direction", "system"), ("words",), BEAM, BEAM + PAIRED),
    plots=gaps("{system}, {words}", BEAM, title="Paired over seeds, by words of the target"),
    reading=replace(READING, elsewhere=elsewhere("iwslt14", "IWSLT14, other bins")),
    **RUNS,
)  # fmt: skip

# Direction and system → BLEU on IWSLT14 for K = 0, 5, 10.
TABLE9_PAPER = {
    ("de→en", "E-ARM"): (34.86, 34.93, 34.88), ("en→de", "E-ARM"): (28.73, 28.85, 28.91),
    ("en→it", "E-ARM"): (29.91, 30.04, 29.96), ("it→en", "E-ARM"): (32.44, 32.56, 32.41),
    ("es→en", "E-ARM"): (40.88, 41.01, 40.90), ("en→es", "E-ARM"): (37.59, 37.66, 37.73),
}  # fmt: skip


def _resampled(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    for part, twin in systems({name: SYSTEMS[name] for name in ("E-ARM", "base")})(cell, result):
        for k, score in twin["resampling"].items():
            yield {**part, "K": k}, {"bleu": score}


TABLE9 = Recipe(
    title="Top-K energy resampling in translation",
    source=f"{PAPER}, Table 9 (IWSLT14); the runs of earm/table1",
    grid=translation_grid([SMOOTHED]),
    figures=Figures(
        *paired_figures(
            "BLEU", "K", {"5": "0", "10": "0"}, at="bleu", shared=SENTENCES,
            paper=paper_figures(TABLE9_PAPER, ("0", "5", "10"), "direction", "system", "K"),
        ),
        by=("direction", "system", "K"), parts=_resampled,
    ),
    tables=laid(("system", "K"), ("direction",), "BLEU", "BLEU" + PAIRED),
    plots=gaps("{system}, {K}", "BLEU", title="K resampled − beam 5, paired over seeds"),
    claims=Claim(says="resampling raises BLEU", figure="BLEU" + PAIRED, above=0.0, where={"system": "E-ARM"}),
    reading=READING,
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
    tables=[
        Layout(rows=("direction", "system"), figures=[metric + suffix for metric in METRICS]) for suffix in ("", PAIRED)
    ],
    plots=gaps("{figure}, {system}", *METRICS, x_label="points"),
    reading=READING,
    **RUNS,
)  # fmt: skip

# Table 8 ----------------------------------------------------------------------------------------------------------

# Direction → N / total on IWSLT14.
TABLE8_PAPER = {
    "de→en": 0.6412, "en→de": 0.6312, "en→it": 0.6331, "it→en": 0.5976, "es→en": 0.6833, "en→es": 0.6743,
}  # fmt: skip
OWN = "own decoding"
SHARE, EXCESS = "share of true tokens likelier under E-ARM", "the same, minus one half"
PREFIXES: dict[str, Any] = {"each": {"prefix": {OWN: "own", "reference": "gold"}}, "shared": SENTENCES}


def _table8(less: float) -> Callable[[Settings], float | None]:
    return lambda settings: (
        round(TABLE8_PAPER[settings["direction"]] - less, 4) if settings["prefix"] == OWN else None
    )  # fmt: skip


def _excess(result: Mapping[str, Any], prefix: str) -> Estimate:
    share: Estimate = found(result, "exposure.{prefix}", prefix=prefix)
    return share._replace(value=share.value - 0.5, low=share.low - 0.5, high=share.high - 0.5)


TABLE8 = Recipe(
    title="Exposure bias: how often the true token is likelier under E-ARM",
    source=f"{PAPER}, Table 8 (words, 1,000 training pairs of IWSLT14; here tokens of test sentences); "
    "the runs of earm/table1",
    grid=translation_grid([SMOOTHED]),
    figures=Figures(
        Figure(name=SHARE, at="exposure.{prefix}", paper=_table8(0.0), range=(0.0, 1.0), **PREFIXES),
        Figure(name=EXCESS, at=_excess, paper=_table8(0.5), **PREFIXES),
        # What E-ARM owes to bearing its own mistakes.
        Figure(
            name="paired difference of the shares",
            at=lambda run: found(run, "exposure.own").value - found(run, "exposure.gold").value,
            about={"prefix": f"{OWN} − reference"},
        ),
        Figure(
            name="tokens tested, mean over seeds",
            at="exposure.own_tested",
            about={"prefix": OWN},
            summary=alone(fmean),
        ),
        by=("direction",),
    ),
    tables=Layout(rows=("figure", "prefix"), columns=("direction",)),
    plots=Points(of=[EXCESS], label="{direction}, {prefix}", title=SHARE, x_label="share − ½"),
    claims=Claim(says="after its own decoding, most are", figure=EXCESS, above=0.0, where={"prefix": OWN}),
    reading=replace(READING, elsewhere=lambda cells: "words of training pairs of IWSLT14"),
    **RUNS,
)

# Figure 2 ---------------------------------------------------------------------------------------------------------

CURVES = {"training": "training nats per token", "validation": "held-out nats per token"}
APART = ", E-ARM − base, paired"


def of_epochs(logged: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """By epoch: held-out cost at its end, and the mean of what training logged in it, where it did."""
    ends = [step for step, _ in logged["validation"]]
    within: dict[int, list[float]] = {}
    for step, value in logged["training"]:
        within.setdefault(1 + sum(end < step for end in ends), []).append(float(value))
    return {
        "training": {epoch: sum(values) / len(values) for epoch, values in within.items()},
        "validation": {epoch: float(value) for epoch, (_, value) in enumerate(logged["validation"], 1)},
    }


def _by_epoch(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each twin and epoch. Up to the start epoch twins are one, so E-ARM's curve begins there."""
    start, last = cell["twins"][EARM]["start_epoch"], cell["configuration"]["training"]["epochs"]
    for system, twin in (("base", BASE), ("E-ARM", EARM)):
        curves = of_epochs(result["twins"][twin]["curves"])
        for epoch in range(1 if twin == BASE else start, last + 1):
            place = {"system": system, "epoch": epoch, "paired": epoch > start, "last": epoch == last}
            yield {**cell, **place}, {name: curve.get(epoch) for name, curve in curves.items()}


def _curve(curve: str, told: str) -> list[Figure]:
    return [
        Figure(name=CURVES[curve], at=curve),
        Figure(
            name=CURVES[curve] + APART, at=curve, where={"system": "E-ARM", "paired": True}, minus={"system": "base"},
            about={"system": "E-ARM − base"}, paper=lambda settings: told if settings["last"] else None,
        ),
    ]  # fmt: skip


FIGURE2 = Recipe(
    title="Cross-entropy in training and on held-out data, base and E-ARM",
    source=f"{PAPER}, Figure 2 (IWSLT14, es→en); the runs of earm/table1 without label smoothing",
    grid=translation_grid([BASE], ["es→en"]),
    # Of the last epoch, as far as the paper's picture can be read.
    figures=Figures(
        *_curve("training", "above 0"),
        *_curve("validation", "below 0"),
        by=("system", "epoch"),
        parts=_by_epoch,
    ),
    tables=[
        Layout(rows=("epoch",), columns=("figure", "system"), figures=tuple(CURVES.values())),
        Layout(rows=("epoch",), figures=[name + APART for name in CURVES.values()]),
    ],
    plots=[
        Curves(of={name: "{system}"}, x="epoch", title=name, y_label="nats per token", by=("system",))
        for name in CURVES.values()
    ],
    reading=replace(
        READING,
        elsewhere=lambda cells: f"{'' if cells[0]['corpus'] == 'iwslt14' else 'IWSLT14, '}es→en, read off its picture",
    ),
    **RUNS,
)

# Table 12 ---------------------------------------------------------------------------------------------------------

# The paper's Baseline, Baseline + S.S. and Ours.
CASES_OF = {"base": (SMOOTHED, BASE), "base + scheduled sampling": (SCHEDULED, BASE), "E-ARM": (SMOOTHED, EARM)}
SHOWN = 8
DIFFERENT = "share of words that differ from the reference"


def unmatched_share(texts: Sequence[str], references: Sequence[str]) -> float:
    """Words of both sides that find no partner in order on the other, of all words."""
    alone = total = 0
    for text, reference in zip(texts, references, strict=True):
        words, others = text.split(), reference.split()
        partners = sum(block.size for block in _matcher(words, others).get_matching_blocks())
        total += len(words) + len(others)
        alone += len(words) + len(others) - 2 * partners
    return alone / max(total, 1)


def marked(text: str, reference: str) -> str:
    """The text with *…* around words that the reference has not, or not there."""
    words = text.split()
    parts = []
    for kind, begin, end, _, _ in _matcher(words, reference.split()).get_opcodes():
        if begin < end:
            part = " ".join(words[begin:end])
            parts.append(part if kind == "equal" else f"*{part}*")
    return " ".join(parts)


def _matcher(words: list[str], others: list[str]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, words, others, autojunk=False)


def most_different(translations: Sequence[Sequence[str]], most: int = SHOWN) -> list[int]:
    """Sentences whose translations are least alike, whichever is the best: nobody's choice but theirs."""
    distances = [
        sum(unmatched_share([one], [other]) for one, other in combinations(alike, 2))
        for alike in zip(*translations, strict=True)
    ]
    return sorted(range(len(distances)), key=lambda place: -distances[place])[:most]


def _cases(results: Sequence[Result]) -> list[Row]:
    """Of the first seed, the sentences that systems differ most on."""
    seed = min(cell["seed"] for cell, _ in results)
    runs = {cell["variant"]: result for cell, result in results if cell["seed"] == seed}
    texts = {system: runs[variant]["twins"][twin]["texts"] for system, (variant, twin) in CASES_OF.items()}
    rows = []
    for number, place in enumerate(most_different(list(texts.values())), 1):
        source, reference = (runs[SMOOTHED][side][place] for side in ("sources", "references"))
        shown = {"source": source, "reference": reference}
        shown |= {system: marked(own[place], reference) for system, own in texts.items()}
        for system, text in shown.items():
            value = unmatched_share([texts[system][place]], [reference]) if system in texts else None
            settings = {"system": system, "text": text}
            rows.append(Row(name=f"case {number}", settings=settings, value=value, low=None, high=None))
    return rows


def _side_by_side(rows: Sequence[Row], elsewhere: str = "") -> Laid:
    return list_of_figures([row for row in rows if row.name.startswith("case ")])


CASES = Recipe(
    title="Translations side by side: base, scheduled sampling, E-ARM",
    source=f"{PAPER}, Table 12 (IWSLT14); the runs of earm/table1, the sentences on which systems differ most",
    grid=translation_grid((SMOOTHED, SCHEDULED), ["de→en"]),
    figures=[
        Figures(
            *paired_figures(DIFFERENT, "system", dict.fromkeys(list(CASES_OF)[1:], "base"), at="different"),
            by=("system",),
            parts=lambda cell, result: (
                (part, {"different": unmatched_share(twin["texts"], result["references"])})
                for part, twin in systems(CASES_OF)(cell, result)
            ),
        ),
        _cases,
    ],
    tables=[Layout(rows=("system",), figures=(DIFFERENT, DIFFERENT + PAIRED)), _side_by_side],
    plots=[
        Points(of=[figure], label="{system}", title=figure, x_label="share")
        for figure in (DIFFERENT, DIFFERENT + PAIRED)
    ],
    reading=replace(
        READING,
        ranges={DIFFERENT: (0.0, 1.0), DIFFERENT + PAIRED: (-1.0, 1.0)},
        departures=lambda cells: [
            f"Shares are of the {KEPT} longest test sentences, on which systems do worse than on most. Cases are those "
            "of the first seed on which the systems' translations are least alike."
        ],
    ),
    **RUNS,
)
