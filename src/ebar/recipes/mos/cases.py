"""Table A.14: next words that a mixture of contexts and a mixture of softmaxes expect after the same contexts."""

from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.figures import Figure, Figures, over_items
from ebar.recipes.layout import Claim, Layout, Points, list_of_figures
from ebar.recipes.mos.tables import READING, WORDS
from ebar.recipes.mos.words import MOC, MOS, PAPER, PTB, words
from ebar.recipes.recipe import Laid, Recipe, Result, Row

SHOWN = 5  # of each kind
BETTER, GAIN = "share of steps at which MoS has the lower loss", "nats per step, MoS − MoC"
KINDS = {"MoS better": 1, "MoC better": -1}


def gains(of_softmaxes: Sequence[Mapping[str, Any]], of_contexts: Sequence[Mapping[str, Any]]) -> list[float]:
    """At each step, by how many nats the word that follows is likelier under the mixture of softmaxes."""
    return [float(one["log_prob"]) - float(other["log_prob"]) for one, other in zip(of_softmaxes, of_contexts, strict=True)]


def written(likeliest: Sequence[Sequence[Any]]) -> str:
    """Words with their probabilities."""
    return ", ".join(f"{visible(word)} {chance:.2f}" for word, chance in likeliest)


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
            shown |= {f"{name}, likeliest": written(runs[model][place]["likeliest"])
                      for name, model in (("MoS", MOS), ("MoC", MOC))}  # fmt: skip
            rows += [
                Row(name=f"{kind}, {number}", settings={"what": what, "text": text}, low=None, high=None,
                    value=found[place] if what == "next word" else None)
                for what, text in shown.items()
            ]  # fmt: skip
    return rows


def all_steps(results: Sequence[Result]) -> list[Row]:
    """How often, and by how much, over all steps: each seed's own share and mean, with what varies between seeds."""
    runs: dict[Any, dict[str, Any]] = {}
    for cell, result in results:
        runs.setdefault(cell["seed"], {})[cell["model"]] = result["steps"]
    every = [gains(own[MOS], own[MOC]) for own in runs.values()]
    values = {BETTER: [sum(gain > 0 for gain in own) / len(own) for own in every],
              GAIN: [-sum(own) / len(own) for own in every]}  # fmt: skip
    rows = []
    for name, own in values.items():
        found = over_items(own, [1] * len(own))
        rows.append(Row(name=name, value=found.value, low=found.low, high=found.high, values=own))
    return rows


def _side_by_side(rows: Sequence[Row], elsewhere: str = "") -> Laid:
    return list_of_figures([row for row in rows if "what" in row.settings])


def _in_all(rows: Sequence[Row], elsewhere: str = "") -> Laid:
    return list_of_figures([row for row in rows if "what" not in row.settings])
