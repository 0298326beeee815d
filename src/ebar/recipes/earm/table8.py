"""Table 8: how often the true word is likelier under E-ARM, after the models' own decodings and after the truth."""

from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.crossed import with_items
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, SENTENCES
from ebar.recipes.earm.translation_settings import cells as all_cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

# Direction → N / total on IWSLT14.
DOCUMENT = {
    "de→en": 0.6412, "en→de": 0.6312, "en→it": 0.6331, "it→en": 0.5976, "es→en": 0.6833, "en→es": 0.6743,
}  # fmt: skip
PREFIXES = {"own": "own decoding", "gold": "reference"}
SHARE = "share of true tokens likelier under E-ARM"
EXCESS = "the same, minus one half"


def cells(scale: str) -> list[Cell]:
    """Those of Table 1 with label smoothing and without scheduled sampling."""
    return all_cells(scale, variants=("label smoothing",))


def figures(results: Sequence[Result]) -> list[Row]:
    """Above one half E-ARM is the better; own − reference is what it owes to bearing its own mistakes."""
    rows = []
    for (direction,), runs in grouped(results, ("direction",)).items():
        found = [result["exposure"] for _, result in runs]
        shares = {prefix: [float(one[prefix]["value"]) for one in found] for prefix in PREFIXES}
        for prefix, label in PREFIXES.items():
            settings = {"direction": direction, "prefix": label}
            told = DOCUMENT.get(direction) if prefix == "own" else None
            single = as_estimate(found[0][prefix])
            row = over_seeds(SHARE, settings, shares[prefix], single=single, document=told)
            rows.append(with_items(row, single, SENTENCES))
            excess = [share - 0.5 for share in shares[prefix]]
            centred = (
                None
                if single is None
                else single._replace(value=single.value - 0.5, low=single.low - 0.5, high=single.high - 0.5)
            )
            above = None if told is None else round(told - 0.5, 4)
            row = over_seeds(EXCESS, settings, excess, single=centred, document=above)
            rows.append(with_items(row, centred, SENTENCES))
        differences = [own - gold for own, gold in zip(shares["own"], shares["gold"], strict=True)]
        settings = {"direction": direction, "prefix": "own decoding − reference"}
        rows.append(over_seeds("paired difference of the shares", settings, differences))
        tested = sum(float(one["tested"]) for one in found) / len(found)
        settings = {"direction": direction, "prefix": PREFIXES["own"]}
        rows.append(Row(name="tokens tested, mean over seeds", settings=settings, value=tested, low=None, high=None))
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """How far from one half."""
    wanted = [row for row in rows if row.name == EXCESS]
    named = {f"{row.settings['direction']}, {row.settings['prefix']}": as_dot(row) for row in wanted}
    return [Dots(title="True tokens likelier under E-ARM", x_label="share − ½", rows=named)]


RECIPE = Experiment(
    title="Exposure bias: how often the true token is likelier under E-ARM",
    source="document 003, Table 8 (words, 1,000 training pairs of IWSLT14; here tokens of test sentences); "
    "the runs of earm/table1",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=replace(READING, ranges={SHARE: (0.0, 1.0)}, elsewhere=lambda cells: "words of training pairs of IWSLT14"),
)
