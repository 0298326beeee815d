"""Scale paper of GAM's tables and figures has the settings of Parshakova et al. 2019, one by one.

Where the paper says nothing, "code" names what the authors' public code has. What is not in the table is not settled by
either, and is ebar's own choice (the draws that log Z is estimated from, say).
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebar.build.terms import terms_of
from ebar.config.gam import GamConfig
from ebar.data.corpus import validation_size
from ebar.journeys.gam import cyclical, figures
from ebar.recipes import find_recipe
from ebar.recipes.gam.cells import configured
from ebar.training.moment_matching import MATCHING

MOTIF = "10001011111000"  # Table 1's caption has one 1 more, which its own entropies, 0.449 and 0.482, contradict
ALL = ("table1", "table2", "table3", "table4", "figure2", "figure3", "figure4", "figure5", "figure6", "figure7")
IMPLEMENTATION, TRAINING = "§7, Autoregressive models", "§7, Training"

# Setting → the paper's value, and where it says so: the same in all tables and figures.
EVERYWHERE: dict[str, tuple[Any, str]] = {
    "backbone.kind": ("lstm", IMPLEMENTATION),
    "backbone.layers": (2, IMPLEMENTATION),
    "backbone.hidden": (200, IMPLEMENTATION),
    "backbone.embedding": (None, f"{IMPLEMENTATION}: one-hot encodings"),
    "backbone.dropout": (0.2, "code"),
    "base.learning_rate": (1e-3, f"{IMPLEMENTATION}: Adam, α = 0.001"),
    "base.schedule": ("constant", f"{IMPLEMENTATION}: none is named"),
    "base.patience": (20, f"{IMPLEMENTATION}: patience = 20"),
    "base.patience_in_all": (False, f"{IMPLEMENTATION}: the count of the code is never set back, which is a slip"),
    "base.epochs": (130, "code"),
    "base.batch_size": (500, "code"),
    "base.clip": (0.25, "code"),
    "student.learning_rate": (1e-3, f"{IMPLEMENTATION}: r and π are trained alike"),
    "student.patience": (20, IMPLEMENTATION),
    "student.patience_in_all": (False, IMPLEMENTATION),
    "student.epochs": (130, "code"),
    "student.batch_size": (500, "code"),
    "student_backbone": ({}, f"{IMPLEMENTATION}: all are 2-layered LSTMs of 200"),
    "fresh": (True, "code: π begins with random weights"),
    "rounds": (1, "§5, Two-stage training"),
    "distillation.size": (20_000, f"{TRAINING}: DsSize = 2·10⁴"),
    "distillation.validation": (2000, "code"),
    "distillation.proposal": ("base", "§5, Training-2: the original r(x) as a proposal"),
    "sampler.kind": ("rejection", "§5, Training-2: e.g. Rejection Sampling"),
}
DATA: dict[str, tuple[Any, str]] = {
    "kind": ("language", "§7, Synthetic data"),
    "length": (30, "§7, Synthetic data: n = 30"),
    "test_size": (5000, "§7: T of fixed size 5·10³"),
}
# Of Training-1, by the method.
MATCHINGS: dict[str, dict[str, tuple[Any, str]]] = {
    "rs": {
        "accepted": (10, f"{TRAINING}-1: over 10 accepted samples"),
        "schedule.learning_rate": (10.0, f"{TRAINING}-1: α₀ = 10, divided by 1 + #epoch"),
        "schedule.data_batch": (500, "code"),
        "buffer": (50_000, "code"),
        "proposals": (1000, "code"),
    },
    "snis": {
        "buffer": (50_000, f"{TRAINING}-1: the last 5·10⁴ samples; the code has 10,000"),
        "reset": (False, f"{TRAINING}-1: a buffer of the last; the code empties it in each epoch"),
        "schedule.learning_rate": (10.0, f"{TRAINING}-1: α₀ = 10"),
        "samples": (1000, "code"),
    },
}
SIZES = {500, 1000, 5000, 10_000, 20_000}  # §8: |D| ∈ {0.5, 1, 5, 10, 20}·10³
PURE = {"10001010001", "01011101101", "001001100111", "1011100111001", MOTIF}  # code; misspelt in Table 3's caption
MIXED = {"01011101101", "001001100111", "1011100111001", "100010100011", MOTIF}  # Table 3's caption
# Table or figure → setting → all values that its runs have, and where the paper says so.
EACH: dict[str, dict[str, tuple[set[Any], str]]] = {
    "table1": {
        "motif": ({MOTIF}, "caption"), "size": (SIZES, "rows"), "matching": ({"rs", "snis"}, "caption"),
        "language": ({("1011111", 1.0), ("1001111", 0.9)}, "caption: pure with ft 1011111, mixture with 1001111"),
        "regime": ({"two_stage"}, "§8, Regimes in Training-1"),
    },
    "table2": {
        "motif": ({MOTIF}, "caption"), "ft": ({"1001111"}, "caption"), "size": ({5000}, "caption"),
        "matching": ({"rs"}, "caption"), "presence": ({1.0}, "caption: always present in D"),
    },
    "table3": {
        "language": (
            {(motif, ft, 1.0) for motif in PURE for ft in ("1001111", "1011111", "0111111")}
            | {(motif, "1001111", 0.9) for motif in MIXED},
            "caption",
        ),
        "size": (SIZES, "rows"), "matching": ({"rs"}, "column tReg"),
    },
    "table4": {
        "motif": ({MOTIF}, "caption"), "ft": ({"1001111"}, "caption"), "presence": ({1.0}, "caption: D_m"),
        "size": (SIZES, "rows"), "matching": ({"rs", "snis"}, "columns"),
        "regime": ({"two_stage", "cyclical"}, "columns"),
    },
    "figure2": {
        "language": (
            {("001001100111", "0111111", 1.0), ("1011100111001", "1011111", 1.0), (MOTIF, "1001111", 1.0),
             (MOTIF, "1001111", 0.9)},
            "caption for ft and D; code for the motifs of panels (a) and (b)",
        ),
        "size": (SIZES, "x axis"), "matching": ({"rs", "snis"}, "§8, Cross-entropy comparison"),
        "regime": ({"two_stage"}, "caption"),
    },
    "figure3": {
        "motif": ({MOTIF}, "§8: a fixed motif, Table 4's"), "ft": ({"1001111"}, "caption: ft[1] = 1, ft[4:7] = 1111"),
        "size": (SIZES, "x axis"), "regime": ({"cyclical"}, "caption"),
    },
    **{
        f"figure{number}": {
            "motif": (motifs, "caption: varying the rareness of the motif"), "ft": ({ft}, f"caption: {what}"),
            "presence": ({presence}, f"caption: {of} D"), "size": (SIZES, "x axis"),
            "regime": ({"two_stage"}, "§8"), "matching": ({"rs", "snis"}, "§8, Cross-entropy comparison"),
        }
        for number, motifs, ft, what, presence, of in (
            (4, PURE, "0111111", "supermotif + submotif", 1.0, "pure"),
            (5, PURE, "1011111", "motif + submotif", 1.0, "pure"),
            (6, PURE, "1001111", "motif", 1.0, "pure"),
            (7, MIXED, "1001111", "motif", 0.9, "mixture"),
        )
    },
}  # fmt: skip


def cells(name: str) -> list[Mapping[str, Any]]:
    return list(find_recipe(f"gam/{name}").grid("paper"))


@cache
def read(tree: str) -> GamConfig:
    """What the command makes of a configuration: most runs have the same but for their data."""
    return configured(json.loads(tree))


def at(tree: Any, path: str) -> Any:
    """A setting of a configuration as the command has it, its defaults included."""
    for part in path.split("."):
        options = getattr(tree, "options", None)
        if isinstance(tree, Mapping):
            tree = tree.get(part)
        elif options is not None and part != "kind":
            tree = options.get(part)
        else:
            tree = getattr(tree, part)
    return tree


@pytest.mark.parametrize("name", ALL)
def test_what_all_runs_have(name: str) -> None:
    for cell in cells(name):
        tree = dict(cell["configuration"])
        for setting, (value, where) in DATA.items():
            assert tree["data"][setting] == value, f"{name}: data.{setting} is {value} ({where})"
        data = {"kind": "language", "motif": MOTIF}
        config = read(json.dumps({**tree, "data": data, "ft": "1001111", "seed": 0}, sort_keys=True))
        for path, (value, where) in EVERYWHERE.items():
            assert at(config, path) == value, f"{name}: {path} is {value} ({where})"
        matching = config.matching.make(MATCHING)
        for path, (value, where) in MATCHINGS[cell["matching"]].items():
            assert at(matching, path) == value, f"{name}: matching.{path} is {value} ({where})"


@pytest.mark.parametrize("name", ALL)
def test_what_its_runs_differ_in(name: str) -> None:
    for setting, (values, where) in EACH[name].items():
        if setting != "language":
            found = {cell[setting] for cell in cells(name)}
        elif name == "table1":
            found = {(cell["ft"], cell["presence"]) for cell in cells(name)}
        else:
            found = {(cell["motif"], cell["ft"], cell["presence"]) for cell in cells(name)}
        assert found == values, f"{name}: {setting} ({where})"


def test_every_table_and_figure_of_the_paper_is_listed() -> None:
    assert set(EACH) == set(ALL)


def test_what_is_no_setting_of_a_run() -> None:
    """Draws for frequencies (§8, Motif frequencies: 2·10³), a batch of cyclical training and its patience (code)."""
    assert figures.DRAWS == 2000
    assert (cyclical.ROUND, cyclical.PATIENCE) == (500, 15)


def test_validation_data_are_a_quarter_within_bounds() -> None:
    """§7: 0.25·|D|, but never smaller than 5·10² or bigger than 2·10³."""
    assert [validation_size(size) for size in sorted(SIZES)] == [500, 500, 1250, 2000, 2000]


def test_features_are_zero_where_their_string_is_present() -> None:
    """§7, Features: m = 0 iff the motif appears; d₀ … d₃ are on in all of them."""
    assert all(term.startswith("!") for term in terms_of(MOTIF, "1111111"))
    assert all(cell["ft"].endswith("1111") for name in ALL for cell in cells(name))


def test_the_file_that_the_documentation_shows_is_what_table_2_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "gam.md").read_text()
    shown = yaml.safe_load(page.split("# parshakova_2019.yaml")[1].split("```")[0])
    [cell] = cells("table2")
    rest = {"seed", "data", "ft", "checks", "exact"}
    assert shown == {key: value for key, value in cell["configuration"].items() if key not in rest}
