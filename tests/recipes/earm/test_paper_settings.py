"""Scale paper has the document's settings: each line is a recipe, a setting, its value, and where Wang et al. say so.

"IWSLT14" and the like are columns of the document's Table 6. What the document does not say is not listed.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from ebar.recipes import find_recipe

# Where a line stands for some of a recipe's runs, those have this.
BASE_WMT, LARGE_WMT = {"size": "base"}, {"size": "large"}
SMOOTHED, SCHEDULED = {"variant": "label smoothing"}, {"variant": "scheduled sampling"}
TRANSLATIONS = ("table1", "tatoeba", "table7", "table8", "table9", "table10", "cases", "figure2", "table11")
LANGUAGE = ("table3", "table4", "recent")
EVERY_ONE = (*TRANSLATIONS, *LANGUAGE, "table2", "table3_xl", "table5", "figure1", "without_ce")


def _table6(recipe: str, column: str, where: Mapping[str, Any], **values: Any) -> list[tuple[Any, ...]]:
    names = {
        "layers": "backbone.layers", "encoder": "backbone.encoder_layers", "hidden": "backbone.hidden",
        "feedforward": "backbone.feedforward", "heads": "backbone.heads", "dropout": "backbone.dropout",
        "rate": "optimiser.learning_rate", "schedule": "schedule.kind", "warmup": "schedule.warmup",
        "decay": "optimiser.weight_decay", "weight": "earm.weight", "start": "earm.start_epoch",
    }  # fmt: skip
    return [(recipe, where, names[key], value, f"Table 6, {column}") for key, value in values.items()]


IWSLT = {
    "layers": 6, "encoder": 6, "hidden": 512, "feedforward": 1024, "heads": 4, "dropout": 0.3, "rate": 5e-4,
    "schedule": "inverse_square_root", "warmup": 4000, "decay": 1e-4,
}  # fmt: skip
WMT = {**IWSLT, "rate": 1e-3, "decay": 0.0, "weight": 0.05}
TR_BASE = {
    "layers": 6, "hidden": 512, "feedforward": 2048, "heads": 8, "dropout": 0.1, "rate": 5e-4,
    "schedule": "inverse_square_root", "warmup": 4000, "decay": 1e-2,
}  # fmt: skip
TR_XL = {
    "layers": 16, "hidden": 410, "feedforward": 2100, "heads": 10, "dropout": 0.1, "rate": 2.5e-4,
    "schedule": "cosine", "warmup": 10_000, "decay": 0.0, "weight": 0.02, "start": 10,
}  # fmt: skip
SETTINGS: list[tuple[Any, ...]] = [
    # recipe, which of its runs, setting, the document's value, where it says so
    *(line for name in TRANSLATIONS for line in _table6(name, "IWSLT14: 12 layers are 6 + 6", {}, **IWSLT)),
    *(line for name in TRANSLATIONS[:-1] for line in _table6(name, "IWSLT14", {}, weight=0.05, start=15)),
    *_table6("table2", "WMT16 Tr-Base", BASE_WMT, **{**WMT, "feedforward": 2048, "heads": 8, "start": 15}),
    *_table6("table2", "WMT16 Tr-Large", LARGE_WMT,
             **{**WMT, "hidden": 1024, "feedforward": 4096, "heads": 16, "start": 10}),
    *(line for name in LANGUAGE for line in _table6(name, "WikiText103 Tr-Base", {}, **TR_BASE)),
    *_table6("without_ce", "WikiText103 Tr-Base", {}, **TR_BASE),
    *_table6("table3", "WikiText103 Tr-Base", {}, weight=0.05, start=15),
    *_table6("recent", "WikiText103 Tr-Base", {}, weight=0.05, start=15),
    *_table6("table3_xl", "WikiText103 Tr-XL", {}, **TR_XL),
    *((name, {}, "optimiser.kind", "adam", "appendix C: Adam uniformly") for name in EVERY_ONE),
    *((name, {}, "training.patience", 20, "appendix C: stopped after 20 epochs without a better one")
      for name in EVERY_ONE if name != "table11"),
    *((name, {}, "training.batch_tokens", 4096, "appendix C: 4096 tokens in a batch") for name in TRANSLATIONS),
    *((name, {}, "batch tokens", 4096, "appendix C: 4096 tokens in a batch") for name in LANGUAGE),
    *((name, {}, "training.epochs", 40, "Table 4: 40 epochs in total") for name in LANGUAGE),
    *((name, {}, "earm.window", 50, "appendix C: fakes of 50 tokens") for name in (*LANGUAGE, "table3_xl", "table5")),
    *((name, {}, "earm.draws", 1, "appendix C: as many fakes as sequences")
      for name in (*TRANSLATIONS[:-1], *LANGUAGE, "table2", "table3_xl", "table5")),
    *((name, {}, "earm.recent", 2, "footnote 4: the recent 2 tokens") for name in (*TRANSLATIONS[:-1], "table3")),
    *((name, where, "objective.label_smoothing", 0.1, "D.2: smoothing factor 0.1")
      for name, where in (("table1", SMOOTHED), ("table1", SCHEDULED), ("table8", {}), ("table9", {}))),
    ("table1", SCHEDULED, "objective.kind", "scheduled_sampling", "Table 1: S.S. on top of L.S."),
    ("table1", {}, "all direction", {"de→en", "en→de", "en→it", "it→en", "es→en", "en→es"}, "Table 1: six pairs"),
    ("table2", {}, "all direction", {"en→de"}, "Table 2: WMT16 English→German"),
    ("table7", {}, "all direction", {"de→en", "it→en", "es→en"}, "Table 7: three pairs"),
    ("table7", {}, "measures.edges", [25, 50], "Table 7: [0, 25), [25, 50), [50, ∞)"),
    ("table9", {}, "measures.candidates", [5, 10], "Table 9: K = 0, 5, 10"),
    ("table10", {}, "measures.meteor", True, "Table 10: METEOR"),
    ("figure2", {}, "all direction", {"es→en"}, "Figure 2: Spanish to English"),
    ("table4", {}, "all start epoch", {5, 15, 25}, "Table 4"),
    ("table4", {}, "all λ", {0.01, 0.05, 0.1, 0.5}, "Table 4"),
    ("table5", {}, "all corpus", {"mnist", "cifar-10"}, "Table 5"),
    ("figure1", {}, "all corpus", {"cifar-10"}, "Figure 1"),
    ("table11", {}, "all Langevin steps", {20, 50}, "Table 11"),
    ("table11", {}, "all Langevin place", {"first_layer"}, "Table 11: at the first transformer layer's output"),
]  # fmt: skip
DEFAULTS = {"optimiser.kind": "adam", "earm.window": 50, "earm.draws": 1, "earm.recent": 2}  # of `ebar train` itself


def _value(cell: Mapping[str, Any], setting: str) -> Any:
    """Of one run; options of E-ARM are those of all its twins together, where they are alike."""
    group, _, option = setting.partition(".")
    if setting == "batch tokens":
        return cell["configuration"]["data"]["length"] * cell["configuration"]["training"]["batch_size"]
    if group == "earm":
        found = {twin.get(option, DEFAULTS.get(setting)) for twin in cell["twins"].values()}
        assert len(found) == 1, (setting, found)
        return found.pop()
    tree = cell["measures"] if group == "measures" else cell["configuration"].get(group, {})
    return tree.get(option, DEFAULTS.get(setting, 0.0 if setting == "optimiser.weight_decay" else None))


def _all(cells: list[Mapping[str, Any]], setting: str) -> set[Any]:
    twins = [twin for cell in cells for twin in cell["twins"].values()]
    ways = {
        "λ": lambda: {twin["weight"] for twin in twins},
        "Langevin steps": lambda: {twin["langevin_steps"] for twin in twins if "langevin_steps" in twin},
        "Langevin place": lambda: {twin["langevin_at"] for twin in twins if "langevin_steps" in twin},
    }
    return ways.get(setting, lambda: {cell[setting] for cell in cells})()


@pytest.mark.parametrize("name", sorted({str(line[0]) for line in SETTINGS}))
def test_scale_paper_has_the_documents_settings(name: str) -> None:
    cells = list(find_recipe(f"earm/{name}").grid("paper"))
    for _, where, setting, value, said in (line for line in SETTINGS if line[0] == name):
        own = [cell for cell in cells if where.items() <= cell.items()]
        assert own, where
        if setting.startswith("all "):
            assert _all(own, setting.removeprefix("all ")) == value, (setting, said)
            continue
        for cell in own:
            assert _value(cell, setting) == value, (setting, said, cell["seed"])


def test_no_recipe_of_the_document_is_left_out() -> None:
    from ebar.recipes import RECIPES

    own = {name.split("/")[1] for name in RECIPES if name.startswith("earm/")}
    assert own - {str(line[0]) for line in SETTINGS} == {"motif"}  # ebar's own
