"""Prefixes with continuations of the base and of the joint model, and the next words that each expects."""

from collections.abc import Sequence

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.residual.readings import by_task, cell_of, first_runs, named, row_of
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots

WORD = "probability of the next word, joint"
SIZE = "effective number of draws"


def figures(results: Sequence[Result]) -> list[Row]:
    """A row for each text; the joint model's comes with what its choice was worth."""
    rows = []
    for cell, kind, run in first_runs(results):
        about = named(cell, kind)
        for number, sample in enumerate(run["samples"], 1):
            for text in ("data", "base", "joint"):
                size = float(sample["effective_sample_size"]) if text == "joint" else None
                rows.append(
                    Row(
                        name=SIZE if text == "joint" else "text",
                        settings={
                            **about,
                            "prefix": f"{number}: … {sample['prefix'][-80:]}",
                            "continuation of": text,
                            "continuation": sample[text],
                            "draws": sample["draws"] if text == "joint" else None,
                        },
                        value=size,
                        low=None,
                        high=None,
                    )
                )
        for word in run["next_words"]["words"][:10]:
            rows.append(
                row_of(
                    WORD, cell, kind, word["joint"],
                    prefix=f"1: … {run['next_words']['prefix'][-80:]}", continuation=word["token"],
                    **{"under the base": f"{float(word['base']):.4f}"},
                )
            )  # fmt: skip
    return rows


def items(row: Row, cells: Sequence[Cell]) -> str:
    """Probabilities are estimated, those of one prefix."""
    return f"{cell_of(row, cells)['per_step']['draws']} draws of what follows each word, one prefix"


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The next words of one prefix."""
    words = [row for row in rows if row.name.startswith("probability")]
    found = []
    for title, here in by_task(words).items():
        for model in dict.fromkeys(row.settings["model"] for row in here):
            own = {repr(row.settings["continuation"]): as_dot(row) for row in here if row.settings["model"] == model}
            found.append(Dots(title=f"{title}, {model}", x_label="probability as the next word", rows=own))
    return found


RECIPE = Experiment(
    title="Continuations of the base and of the joint model",
    source="document 002, samples and “Given a prefix, check P(xₜ|x₍<t₎)”",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="residual/text",
    reading=Reading(items=items, ranges={WORD: (0.0, 1.0)}),
)
