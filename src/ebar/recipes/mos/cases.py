"""Table A.14: next words that a mixture of contexts and a mixture of softmaxes expect after the same contexts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.claims import Claim
from ebar.recipes.figures import over_seeds
from ebar.recipes.layout import Points, list_of_figures
from ebar.recipes.mos.tables import READING, WORDS, departures
from ebar.recipes.mos.words import MOC, MOS, PAPER, PTB, words
from ebar.recipes.recipe import Laid, Recipe, Result, Row

SHOWN = 5  # of each kind
BETTER, GAIN = "share of steps at which MoS has the lower loss", "nats per step, MoS − MoC"
KINDS = {"MoS better": 1, "MoC better": -1}


def gains(of_softmaxes: Sequence[Mapping[str, Any]], of_contexts: Sequence[Mapping[str, Any]]) -> list[float]:
    """At each step, by how many nats the word that follows is likelier under the mixture of softmaxes."""
    return [
        float(one["log_prob"]) - float(other["log_prob"]) for one, other in zip(of_softmaxes, of_contexts, strict=True)
    ]


def visible(word: str) -> str:
    """A line break has a name."""
    return word.replace("\n", "<eos>")


def cases(results: Sequence[Result]) -> list[Row]:
    """Of the first seed, the steps at which either mixture is better by most."""
    seed = min(cell["seed"] for cell, _ in results)
    runs = {cell["model"]: result["steps"] for cell, result in results if cell["seed"] == seed}
    found = gains(runs[MOS], runs[MOC])
    rows = []
    for kind, sign in KINDS.items():
        for number, place in enumerate(sorted(range(len(found)), key=lambda row: -sign * found[row])[:SHOWN], 1):
            step = runs[MOS][place]
            shown = {"context": visible(step["context"]), "next word": visible(step["next"])}
            for name, model in (("MoS", MOS), ("MoC", MOC)):
                likeliest = runs[model][place]["likeliest"]
                words = ", ".join(f"{visible(word)} {chance:.2f}" for word, chance in likeliest)
                shown[f"{name}, likeliest"] = words
            for what, text in shown.items():
                value = found[place] if what == "next word" else None
                rows.append(Row(name=f"{kind}, {number}", settings={"what": what, "text": text}, value=value))
    return rows


def all_steps(results: Sequence[Result]) -> list[Row]:
    """How often, and by how much, over all steps: each seed's own share and mean, with what varies between seeds."""
    runs: dict[Any, dict[str, Any]] = {}
    for cell, result in results:
        runs.setdefault(cell["seed"], {})[cell["model"]] = result["steps"]
    every = [gains(own[MOS], own[MOC]) for own in runs.values()]
    better = [sum(gain > 0 for gain in own) / len(own) for own in every]
    return [over_seeds(BETTER, {}, better), over_seeds(GAIN, {}, [-sum(own) / len(own) for own in every])]


def _listed(of_cases: bool) -> Callable[[Sequence[Row], str], Laid]:
    return lambda rows, elsewhere: list_of_figures([row for row in rows if ("what" in row.settings) == of_cases])


TABLE_A14 = Recipe(
    title="Next words of a mixture of contexts and a mixture of softmaxes, side by side",
    source=f"{PAPER}, Table A.14 (Penn Treebank, cases chosen by the author); the runs of mos/table_a5, cases being "
    "the steps at which either is better by most",
    grid=words(lambda cell: cell["place"] == PTB and cell["main"] and cell["model"] in (MOS, MOC)),
    figures=[all_steps, cases],
    tables=[_listed(False), _listed(True)],
    plots=Points(of=[GAIN], label="all steps", title="MoS − MoC, paired over seeds", x_label=GAIN),
    claims=Claim(says="the mixture of softmaxes has the lower loss at more than half of the steps", figure=BETTER,
                 above=0.5),
    reading=replace(
        READING, ranges={BETTER: (0.0, 1.0)},
        departures=lambda cells: [
            "The thesis shows six steps at which the mixture of softmaxes is better by a margin. Here are as many of "
            "those at which it is worse: such cases can be found for either. A value is log p of the next word under "
            "MoS less that under MoC, in nats.",
            *departures(cells),
        ],
    ),
    **WORDS,
)  # fmt: skip
