"""Figures of Deng et al. 2020 that are read off the runs of residual/perplexity: the first seed of every energy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.figures import Figure, Figures, found, over_seeds
from ebar.recipes.layout import Curves, Layout, Points, chosen
from ebar.recipes.recipe import Caption, Cell, Recipe, Result, Row
from ebar.recipes.residual.run import BY_TASK, MODEL, PAPER, RUNS, TASK, cell_of, energy_results, prefixes_of
from ebar.types import Estimate

JOINT = "joint model"  # of which a gain is, beside those of students
SYSTEMS = {"data": "data", "base": "base", "joint": "joint"}


def _table(title: str, source: str, of: Sequence[Figure], **others: Any) -> Recipe:
    """A recipe of figures of every energy's first seed, read off the runs of residual/perplexity."""
    figures = [Figures(*of, by=MODEL, parts=_first_seeds)]
    return Recipe(title=title, source=f"{PAPER}, {source}", figures=figures, **others, **RUNS)


def _first_seeds(cell: Cell, result: dict[str, Any]) -> list[Result]:
    return [run for run in energy_results(cell, result) if run[0]["energy seed"] == 0]


# Step by step -----------------------------------------------------------------------------------------------------

LAST, PLACE = "nats of the last token, {which}", "nats, joint − base LM, paired over prefixes"
PAIRED = "joint − base LM, paired"


def _scored(runs: Sequence[Result]) -> dict[str, str]:
    whole = float(runs[0][1]["evaluation"]["last_step"]["rest"]) == 0
    return {"scored": "all tokens" if whole else "the likeliest tokens, the rest sampled"}


def _last_steps(rows: Sequence[Row]) -> list[str]:
    last = [row for row in rows if row.name == LAST.format(which=PAIRED)]
    below = [row for row in last if row.high is not None and row.high < 0]
    return [
        "The paper: “We know for sure that the final step gets a better PPL”; it gives no figures. Here the "
        f"interval of joint − base at the last step is below 0 for {len(below)} of {len(last)} energies, and holds 0 "
        "or is above it for the others."
    ]


PER_STEP = _table(
    title="Perplexity step by step",
    source="“Per-Step Perplexity”",
    of=[
        Figure(
            name=LAST, at="evaluation.last_step.{which}", about=_scored, items=prefixes_of("last_step"),
            each={"which": {"base LM": "base", "joint": "joint", PAIRED: "difference"}},
        ),
        Figure(
            name=PLACE, at="per_step.{place}.difference", items=prefixes_of("per_step"),
            each={"place": lambda run: {one["place"] + 1: at for at, one in enumerate(run["per_step"])}},
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
    notes=_last_steps,
)  # fmt: skip

# Energies ---------------------------------------------------------------------------------------------------------

MEDIAN, GAP = "median energy, and 5 % to 95 %", "mean energy, text − data, paired over prefixes"
SEARCHED: dict[str, Any] = {
    "each": {"text": {"data": 0, "random tokens": 1, "what a search of E alone finds": 2}},
    "items": prefixes_of("search"),
}


def _median(run: Mapping[str, Any], text: str) -> Estimate:
    low, _, median, _, high = map(float, run["evaluation"]["energies"][text]["quantiles"])
    return Estimate(median, low, high, float("nan"))


ENERGIES = _table(
    title="Energies of data, of the base's text and of the joint model's",
    source="“Energy Distribution”; and the failed search that motivates it",
    of=[
        Figure(name="mean energy", at="evaluation.energies.{text}.mean", each={"text": SYSTEMS}, items=prefixes_of()),
        Figure(
            name=MEDIAN, at=_median, each={"text": SYSTEMS},
            items="no interval: the quantiles 5 % and 95 % of the energies",
        ),
        Figure(
            name=GAP, at="evaluation.energies.{text}_gap", each={"text": {"base": "base", "joint": "joint"}},
            items=prefixes_of(),
        ),
        Figure(name="energy, searched", at="search.rows.{text}.1", **SEARCHED),
        Figure(name="log q per token, searched", at="search.rows.{text}.2", **SEARCHED),
        Figure(name="share taken for real, searched", at="search.rows.{text}.3", range=(0.0, 1.0), **SEARCHED),
    ],
    tables=[
        Layout(rows=(*MODEL, "text"), figures=["mean energy", MEDIAN, GAP]),
        Layout(
            rows=(*MODEL, "text"), caption="A search without the base",
            figures=["energy, searched", "log q per token, searched", "share taken for real, searched"],
        ),
    ],
    plots=Points(of=[GAP], label="{model}, {text}", x_label="mean energy − that of data", **BY_TASK),
)  # fmt: skip

# n-grams ----------------------------------------------------------------------------------------------------------

SHARE = "unique share of n-grams"
SHARES = f"{SHARE}, joint − base LM, paired over prefixes"


def _orders(run: dict[str, Any]) -> dict[Any, Any]:
    return {int(n): n for n in run["ngrams"]}


NGRAMS = _table(
    title="Unique n-grams of the joint model's text",
    source="“Unique Ratio of Ngrams”, whose definition is not given: distinct / total, pooled",
    of=[
        Figure(
            name=SHARE, at="evaluation.unique.{system}.{n}.pooled", each={"system": SYSTEMS, "n": _orders},
            range=(0.0, 1.0),
        ),
        Figure(name=SHARES, at="ngrams.{n}", each={"n": _orders}),
    ],
    tables=[
        Layout(rows=(*MODEL, "system"), columns=("n",), figures=[SHARE], caption=SHARE),
        Layout(rows=MODEL, columns=("n",), figures=[SHARES], caption=SHARES),
    ],
    plots=Points(of=[SHARES], label="{model}, n = {n}", x_label="unique n-grams, joint − base", **BY_TASK),
    reading=Caption(items=prefixes_of()),
)  # fmt: skip

# Judges -----------------------------------------------------------------------------------------------------------

SAME, OWN = "one, trained against the base", "each trained against its own"
RATE, ACCURACY = "false positive rate", "accuracy"
FOOLED = f"{RATE}, joint − base LM, paired over prefixes"
CHANCE = "the judge is at chance (its accuracy is not shown to be above 0.5): whom it takes for real says little"
JUDGES = {SAME: "same", OWN: "own"}


def _rate(name: str, base: str, joint: str) -> Figure:
    """A rate under both protocols; the paper has figures of one."""
    theirs = {(SAME, "base"): base, (SAME, "joint"): joint}
    return Figure(
        name=name, at=f"fooling.{{judge}}.{{system}}.{name.replace(' ', '_')}",
        each={"judge": JUDGES, "system": {"base": "base", "joint": "joint"}}, range=(0.0, 1.0),
        paper=lambda settings: theirs.get((settings["judge"], settings["system"])),
    )  # fmt: skip


RATES = Figures(
    _rate(RATE, "17.8 %", "31.8 %"),
    _rate(ACCURACY, "89.9 %", "82.9 %"),
    Figure(name=FOOLED, at="fooling.{judge}.difference", each={"judge": JUDGES}),
    by=MODEL, parts=_first_seeds,
)  # fmt: skip


def _judged(results: Sequence[Result]) -> list[Row]:
    """Each row that rests on a judge which cannot tell real from generated text says so.

    The judge trained against the base is rated on the base's text, for that is what it was trained on.
    """
    rows, found = RATES(results), []
    rated = {_judge(row, row.settings["system"]): row.low or 0.0 for row in chosen(rows, ACCURACY, {})}
    for row in rows:
        systems = [row.settings["system"]] if "system" in row.settings else ["base", "joint"]
        systems = ["base"] if row.settings["judge"] == SAME else systems
        at_chance = any(rated[_judge(row, system)] <= 0.5 for system in systems)
        found.append(replace(row, warning=row.warning or CHANCE) if at_chance else row)
    return found


def _judge(row: Row, system: str) -> tuple[str, ...]:
    return (*(str(row.settings[key]) for key in (*MODEL, "judge")), system)


def _judges(rows: Sequence[Row]) -> list[str]:
    """How many judges know anything, and that the paper's is another."""
    # That of the base's text is one judge, whatever energy it is set beside.
    known = {
        _judge(row, "")[: 2 if row.settings["system"] == "base" else 3]: row.warning == CHANCE
        for row in chosen(rows, ACCURACY, {"judge": OWN})
    }
    return [
        f"{sum(known.values())} of {len(known)} judges are at chance on the text they were trained against. A "
        "difference between two such judges is one between their thresholds, not between the texts.",
        "The paper's figures are those of a far larger discriminator on other text (it takes them from Bakhtin et "
        "al.), whose accuracy is 89.9 % where ours are near 50 %: their levels are not to be compared.",
    ]


def _second_half(row: Row, cells: Sequence[Cell]) -> str:
    """Judges are trained on the first half of the prefixes and judge the second."""
    cell = cell_of(row, cells)
    count = min(cell["fooling"]["prefixes"], cell["valid_chunks"])
    return f"{count - count // 2} prefixes, one energy seed, one judge"


FOOLING = Recipe(
    title="Are the joint model's texts harder to tell from real ones?",
    source=f"{PAPER}, “Are generations from P_joint harder to discriminate?”",
    figures=_judged,
    tables=[
        Layout(rows=(*MODEL, "judge"), columns=("figure", "system"), figures=[RATE, ACCURACY]),
        Layout(rows=MODEL, columns=("judge",), figures=[FOOLED], caption=FOOLED),
    ],
    plots=Points(
        of=[FOOLED], label="{base}, {corpus}, {model}; {judge}", x_label="joint − base",
        title="how much oftener a discriminator is fooled",
    ),
    notes=_judges,
    reading=Caption(items=_second_half, elsewhere=lambda cells: "other text, another judge"),
    **RUNS,
)  # fmt: skip

# Students ---------------------------------------------------------------------------------------------------------

GAIN = "nats per token − the base LM's, paired over prefixes"


def _gain(run: Mapping[str, Any], of: str | None) -> Any:
    return run["evaluation"]["perplexity"]["difference"] if of is None else run["distilled"][of]


DISTILLED = _table(
    title="The joint model distilled back into a plain language model",
    source="“Limitations” (the generator is fixed during training); ebar's own",
    of=[
        Figure(
            name=GAIN, at=_gain,
            each={"of": lambda run: {} if run["distilled"] is None else {
                JOINT: None, **{f"student by {name}": name for name in run["distilled"]}
            }},
        )
    ],
    tables=Layout(rows=MODEL, columns=("of",), caption=GAIN),
    plots=Points(of=[GAIN], label="{model}: {of}", x_label="nats per token − base", **BY_TASK),
    notes=lambda rows: [
        "Each student was trained once: its interval speaks for other prefixes, not for another training. The error of "
        "training is not known here."
    ],
    reading=Caption(items=prefixes_of()),
)  # fmt: skip

# Text -------------------------------------------------------------------------------------------------------------

WORD = "probability of the next word, joint"


def _texts(results: Sequence[Result]) -> list[Row]:
    """A row for each text, the joint model's with the effective sample size of its choice; then the next words."""
    rows = []
    for task, run in (part for result in results for part in _first_seeds(*result)):
        about = {key: task[key] for key in MODEL}
        for number, sample in enumerate(run["evaluation"]["continued"], 1):
            start = f"{number}: … {sample['prefix'][-80:]}"
            for text in SYSTEMS:
                settings = {**about, "prefix": start, "continuation of": text, "continuation": sample[text]}
                name, draws, value = "text", None, None
                if text == "joint":
                    name, draws = "effective number of draws", run["evaluation"]["draws"]
                    value = float(sample["effective_sample_size"])
                rows.append(Row(name=name, settings={**settings, "draws": draws}, value=value, low=None, high=None))
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
            f"{cell_of(row, cells)['per_step']['draws']} draws of what follows each word, one prefix"
        ),
        ranges={WORD: (0.0, 1.0)},
    ),
    **RUNS,
)  # fmt: skip
