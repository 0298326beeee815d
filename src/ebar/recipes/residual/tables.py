"""Figures of Deng et al. 2020 that are read off the runs of residual/perplexity."""

from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.figures import found, over_seeds
from ebar.recipes.pieces import Caption, Claim, Curves, Figure, Figures, Layout, Points, Recipe, Result, Row, layouts
from ebar.recipes.residual import reading
from ebar.recipes.residual.reading import BY_TASK, MODEL, PAPER, RUNS, SHARED, SYSTEMS, TASK, cell_of, energy_results
from ebar.recipes.rows import chosen
from ebar.types import Estimate


def _table(title: str, source: str, of: Any, **others: Any) -> Recipe:
    """A recipe of figures that are read off the runs of residual/perplexity."""
    return Recipe(title=title, source=f"{PAPER}, {source}", figures=of, **others, **RUNS)


# Step by step -----------------------------------------------------------------------------------------------------

LAST, PLACE = "nats of the last token, {which}", "nats, joint − base LM, paired over prefixes"
PAIRED = "joint − base LM, paired"


def _scored(runs: Sequence[Result]) -> dict[str, str]:
    whole = float(runs[0][1]["evaluation"]["last_step"]["rest"]) == 0
    return {"scored": "all tokens" if whole else "the likeliest tokens, the rest sampled"}


PER_STEP = _table(
    title="Perplexity step by step",
    source="“Per-Step Perplexity”",
    of=[
        Figures(
            Figure(
                name=LAST, at="evaluation.last_step.{which}", about=_scored, items=reading.prefixes_of("last_step"),
                each={"which": {"base LM": "base", "joint": "joint", PAIRED: "difference"}},
            ),
            by=MODEL, parts=reading.with_part("evaluation", "last_step"),
        ),
        Figures(
            Figure(
                name=PLACE, at="per_step.{place}.difference", items=reading.prefixes_of("per_step"),
                each={"place": lambda run: {one["place"] + 1: at for at, one in enumerate(run["per_step"])}},
            ),
            by=MODEL, parts=reading.with_part("per_step"),
        ),
    ],
    tables=[
        Layout(rows=MODEL, figures=[LAST.format(which="*")]),
        Layout(rows=(*TASK, "place"), columns=("model",), figures=[PLACE], caption=PLACE),
    ],
    plots=Curves(
        of={PLACE: "{model}"}, x="place", x_label="token of the continuation", y_label="nats, joint − base",
        by=("model",), levels={"base LM": 0.0}, **BY_TASK,
    ),
    claims=Claim(
        says="“We know for sure that the final step gets a better PPL” (no figure is printed)",
        figure=LAST.format(which=PAIRED), below=0.0,
    ),
    notes=lambda rows: [
        "Only the last step is free of any estimate of Z, and only where all tokens are scored. Before it, an interval "
        "reaches from the jackknife's lower estimate of every expectation to its upper one.",
    ],
)  # fmt: skip

# Energies ---------------------------------------------------------------------------------------------------------

MEAN, MEDIAN = "mean energy", "median energy, and 5 % to 95 %"
GAP = "mean energy, text − data, paired over prefixes"
PAIRED_BY_PREFIX: dict[str, Any] = {"items": reading.prefixes_of(), "shared": SHARED}
SEARCHED: dict[str, Any] = {
    "each": {"text": {"data": 0, "random tokens": 1, "what a search of E alone finds": 2}},
    "items": reading.prefixes_of("search"),
}


def _median(run: Mapping[str, Any], text: str) -> Estimate:
    low, _, median, _, high = map(float, run["evaluation"]["energies"][text]["quantiles"])
    return Estimate(median, low, high, float("nan"))


ENERGIES = _table(
    title="Energies of data, of the base's text and of the joint model's",
    source="“Energy Distribution”; and the failed search that motivates it",
    of=[
        Figures(
            Figure(name=MEAN, at="evaluation.energies.{text}.mean", each={"text": SYSTEMS}, **PAIRED_BY_PREFIX),
            Figure(name=GAP, at="evaluation.energies.{text}_gap", each={"text": SYSTEMS[1:]}, **PAIRED_BY_PREFIX),
            by=MODEL, parts=energy_results,
        ),
        Figures(
            Figure(
                name=MEDIAN, at=_median, each={"text": SYSTEMS},
                items="no interval: the quantiles 5 % and 95 % of the energies",
            ),
            by=MODEL, parts=reading.with_part("evaluation"),
        ),
        Figures(
            Figure(name="energy, searched", at="search.rows.{text}.1", **SEARCHED),
            Figure(name="log q per token, searched", at="search.rows.{text}.2", **SEARCHED),
            Figure(name="share taken for real, searched", at="search.rows.{text}.3", range=(0.0, 1.0), **SEARCHED),
            by=MODEL, parts=reading.with_part("search"),
        ),
    ],
    tables=[
        Layout(rows=(*MODEL, "text"), figures=[MEAN, MEDIAN, GAP]),
        Layout(
            rows=(*MODEL, "text"), caption="A search without the base",
            figures=["energy, searched", "log q per token, searched", "share taken for real, searched"],
        ),
    ],
    plots=Points(of=[GAP], label="{model}, {text}", x_label="mean energy − that of data", **BY_TASK),
    claims=Claim(
        says="the base's text has higher energies than data (the paper shows histograms)", figure=GAP, above=0.0,
        where={"text": "base"},
    ),
    notes=lambda rows: _nearer(rows),
)  # fmt: skip


def _nearer(rows: Sequence[Row]) -> list[str]:
    """The paper: energies of the joint model's text match those of data."""
    gaps = {(tuple(row.settings[key] for key in MODEL), row.settings["text"]): row for row in chosen(rows, GAP, {})}
    models = dict.fromkeys(model for model, _ in gaps)
    nearer = [model for model in models if abs(gaps[model, "joint"].value or 0) < abs(gaps[model, "base"].value or 0)]
    match = [model for model in models if (gaps[model, "joint"].low or 0) <= 0 <= (gaps[model, "joint"].high or 0)]
    return [
        "The paper: “if the joint model matches the data distribution, then statistics of samples should also match”, "
        f"shown as histograms. The joint model's mean energy is nearer to that of data than the base's is for "
        f"{len(nearer)} of {len(models)} energies, and not told from it for {len(match)}."
    ]


# n-grams and repetition -------------------------------------------------------------------------------------------

SHARE = "unique share of n-grams"
SHARES = f"{SHARE}, joint − base LM, paired over prefixes"


NGRAMS = _table(
    title="Unique n-grams of the joint model's text",
    source="“Unique Ratio of Ngrams”, whose definition is not given: distinct / total, pooled",
    of=Figures(
        Figure(
            name=SHARE, at="evaluation.unique.{system}.{n}.pooled", each={"system": SYSTEMS, "n": "ngrams"},
            range=(0.0, 1.0), shared=SHARED,
        ),
        Figure(name=SHARES, at="ngrams.{n}", each={"n": "ngrams"}, shared=SHARED),
        by=MODEL, parts=energy_results,
    ),
    tables=[*layouts((*MODEL, "system"), SHARE, columns=("n",)), *layouts(MODEL, SHARES, columns=("n",))],
    plots=Points(of=[SHARES], label="{model}, n = {n}", x_label="unique n-grams, joint − base", **BY_TASK),
    claims=Claim(
        says="the joint model's text has more unique n-grams than the base's (the paper shows a curve, no figure)",
        figure=SHARES, above=0.0,
    ),
    reading=Caption(items=reading.prefixes_of()),
)  # fmt: skip

AGAIN, MORE = "share {what} that have been there before", "share {what} that have been there before, {pair}"
# The two prefixes that the paper prints: the words of the prefix among the ten likeliest next ones, added up.
PRINTED = {"base": "0.34 and 0.34 of the ten likeliest", "joint": "0.00 and 0.24 of the ten likeliest"}
NEXT, ALL = "of the next words", "of all words"
PAIRS = ("base − data", "joint − data", "joint − base")

REPETITION = _table(
    title="Words that come again",
    source="“Given a prefix, check P(xₜ|x₍<t₎)”: the base repeats the words of the prefix, the joint model less",
    of=Figures(
        Figure(
            name=AGAIN, at="repetition.{what}.{system}", each={"what": (NEXT, ALL), "system": SYSTEMS},
            range=(0.0, 1.0), shared=SHARED,
            paper=lambda settings: PRINTED.get(settings["system"]) if settings["what"] == NEXT else None,
        ),
        Figure(name=MORE, at="repetition.{what}.{pair}", each={"what": (NEXT, ALL), "pair": PAIRS}, shared=SHARED),
        by=MODEL, parts=energy_results,
    ),
    tables=[
        Layout(rows=(*MODEL, "system"), figures=[AGAIN.format(what=what) for what in (NEXT, ALL)]),
        Layout(rows=MODEL, figures=[MORE.format(what=NEXT, pair=pair) for pair in PAIRS], caption="Next words"),
        Layout(rows=MODEL, figures=[MORE.format(what=ALL, pair=pair) for pair in PAIRS], caption="All words"),
    ],
    plots=Points(
        of=[MORE.format(what=NEXT, pair=PAIRS[2])], label="{model}", x_label="repeated next words, joint − base",
        **BY_TASK,
    ),
    claims=[
        Claim(says="the base repeats more next words than data do", figure=MORE.format(what=NEXT, pair=PAIRS[0]),
              above=0.0),
        Claim(says="the joint model repeats fewer than the base", figure=MORE.format(what=NEXT, pair=PAIRS[2]),
              below=0.0),
    ],
    notes=lambda rows: [
        "A word that has been there is a token that the prefix, or the continuation before it, holds already; common "
        "words are, in any text, so that the data are what to compare with. The joint model's share is a mean over all "
        "draws of the base, weighted by e⁻ᴱ.",
    ],
    reading=Caption(items=reading.prefixes_of(), elsewhere=lambda cells: "two prefixes it prints"),
)  # fmt: skip

# Text -------------------------------------------------------------------------------------------------------------

WORD = "probability of the next word, joint"


def _texts(results: Sequence[Result]) -> list[Row]:
    """A row for each text, the joint model's with the effective sample size of its choice; then the next words."""
    rows = []
    for task, run in (part for result in results for part in reading.with_part("next_words")(*result)):
        about = {key: task[key] for key in MODEL}
        for number, sample in enumerate(run["evaluation"]["continued"], 1):
            start = f"{number}: … {sample['prefix'][-80:]}"
            for text in SYSTEMS:
                settings = {**about, "prefix": start, "continuation of": text, "continuation": sample[text]}
                name, draws, value = "text", None, None
                if text == "joint":
                    name, draws = "effective number of draws", run["evaluation"]["draws"]
                    value = float(sample["effective_sample_size"])
                rows.append(Row(name=name, settings={**settings, "draws": draws}, value=value))
        start = f"1: … {run['next_words']['prefix'][-80:]}"
        for word in run["next_words"]["words"][:10]:
            own = {"prefix": start, "continuation": word["token"], "under the base": f"{float(word['base']):.4f}"}
            rows.append(over_seeds(WORD, {**about, **own}, [found(word, "joint")]))
    return rows


SAMPLES = Recipe(
    title="Continuations of the base and of the joint model",
    source=f"{PAPER}, samples and “Given a prefix, check P(xₜ|x₍<t₎)”",
    figures=_texts,
    plots=Points(
        of=[WORD], label="{continuation!r}", title="{base} on {corpus}, {model}", panels=MODEL,
        x_label="probability as the next word",
    ),
    reading=Caption(
        items=lambda row, cells: (
            f"{cell_of(row, cells)['next_words']['draws']} draws of what follows each word, one prefix"
        ),
        ranges={WORD: (0.0, 1.0)},
    ),
    **RUNS,
)  # fmt: skip
