"""At scale paper the residual recipes have the settings of Deng et al. 2020, one by one, and its printed figures.

The document is a set of slides. It prints sizes in parameters, never in layers; where it is silent the setting is ours
and stands in `OURS`, so that nobody takes it for the authors'.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from ebar.backbones.transformer import BidirectionalTransformer, Transformer
from ebar.heads.softmax import Softmax
from ebar.recipes import RECIPES, find_recipe
from ebar.recipes.residual.judges import RATES
from ebar.recipes.residual.perplexity import THEIRS
from ebar.recipes.residual.reading import NAMES
from ebar.recipes.residual.tables import PRINTED

READ_OFF = [name for name in RECIPES if name.startswith("residual/") and name != "residual/xlnet"]
NEWS, BOOKS = "cc-news", "toronto-books"

# Recipe (* is every one), text (* is both), setting, the document's value, the slide that says so.
SAID: list[tuple[str, str, str, Any, str]] = [
    ("*", "*", "prefix", 120, "Experimental Setup: “the last 40 tokens conditioned on the first 120 tokens”"),
    ("*", "*", "continuation", 40, "Experimental Setup: “models the last 40 tokens”"),
    ("*", "*", "valid_chunks", 1000, "Experimental Setup: “sub-samples 1k/1k chunks for validation/test”"),
    ("*", "*", "test_chunks", 1000, "Experimental Setup: the same"),
    ("*", "*", "prefixes", 1000, "Experimental Setup: all of the test chunks are measured"),
    ("*", "*", "draws", 100_000, "Limitation of Perplexity Estimation: “used 100k samples to estimate Z”"),
    ("*", "*", "base", "transformer", "Generative Models of Text: “a transformer with causal attention mask”"),
    ("*", "*", "energies.unit.kind", "unit", "Baselines & Models: “unidirectional transformer (UNIT)”"),
    ("*", "*", "energies.unit.bound", None, "Residual Energy-Based Models: −E_θ(x), with no bound"),
    ("*", NEWS, "energies.bit_base.kind", "bit", "Baselines & Models: “bidirectional transformer (BIT)”"),
    ("*", NEWS, "energies.bit_base.bound", None, "Residual Energy-Based Models: no bound"),
    ("*", NEWS, "energies.bit_med.kind", "bit", "Estimated Perplexities: “Joint BiT-Med”, without external data"),
    ("*", NEWS, "energies.bit_med.bound", None, "Residual Energy-Based Models: no bound"),
    ("*", "*", "energies.pretrained_base.kind", "pretrained", "Baselines & Models: “pretrained (BIT with *)”"),
    ("*", "*", "energies.pretrained_base.bound", None, "Residual Energy-Based Models: no bound"),
    ("*", "*", "energies.pretrained_large.kind", "pretrained", "Estimated Perplexities: “With External Data”"),
    ("*", "*", "energies.pretrained_large.bound", None, "Residual Energy-Based Models: no bound"),
    ("residual/per_step", "*", "last_step.candidates", None, "Per-Step: “for the last step … analytically”"),
    ("residual/per_step", "*", "last_step.prefixes", 1000, "Experimental Setup: 1k test chunks"),
    ("residual/per_step", "*", "per_step.prefixes", 1000, "Experimental Setup: 1k test chunks"),
]
# What the document leaves open, and the setting that is ours there.
OURS: list[tuple[str, str]] = [
    ("top_k.k", "Algorithm 1: “value of k in top-k” is an input, never given"),
    ("top_k.candidates", "Algorithm 1: “number of samples n” is an input, never given"),
    ("per_step.draws", "Per-Step Perplexity: how many draws for each expectation is not said"),
    ("fooling.judge.encoder", "“Results are taken from Bakhtin et al. (2021)”: which discriminator is not said"),
    ("vocabulary", "tokens are not described"),
    ("train_chunks", "of 16 and 0.5 billion words, how many are read is not said"),
    ("learning_rate", "no optimiser is described"),
]
# Sizes in millions of parameters, from “Estimated Perplexities”. The base's output layer is tied to its input.
SIZES: list[tuple[str, float]] = [
    ("base", 203), ("balm", 408), ("unit", 203), ("bit_base", 125), ("bit_med", 203),
    ("pretrained_base", 125), ("pretrained_large", 355),
]  # fmt: skip
ROBERTA = {"roberta-base": {"layers": 12, "hidden": 768, "heads": 12},
           "roberta-large": {"layers": 24, "hidden": 1024, "heads": 16}}  # fmt: skip


def cell_of(name: str, corpus: str) -> Mapping[str, Any]:
    return next(cell for cell in find_recipe(name).grid("paper") if cell["corpus"] == corpus)


def at(cell: Mapping[str, Any], path: str) -> Any:
    found: Any = cell
    for key in path.split("."):
        found = found[key]
    return found


@pytest.mark.parametrize("name", READ_OFF)
def test_every_recipe_is_of_both_texts(name: str) -> None:
    assert [cell["corpus"] for cell in find_recipe(name).grid("paper")] == [NEWS, BOOKS], "Experimental Setup: Datasets"


@pytest.mark.parametrize(("name", "corpus", "setting", "value", "where"), SAID)
def test_a_setting_is_the_documents(name: str, corpus: str, setting: str, value: Any, where: str) -> None:
    for recipe in READ_OFF if name == "*" else [name]:
        for text in (NEWS, BOOKS) if corpus == "*" else (corpus,):
            assert at(cell_of(recipe, text), setting) == value, where


@pytest.mark.parametrize(("setting", "why"), OURS)
def test_what_the_document_leaves_open_is_a_setting_all_the_same(setting: str, why: str) -> None:
    assert at(cell_of("residual/perplexity", NEWS), setting) is not None, why


@pytest.mark.parametrize(("model", "millions"), SIZES)
def test_a_network_has_as_many_parameters_as_the_documents(model: str, millions: float) -> None:
    """Within 2 %: the document's vocabulary is not known. Nothing is allocated."""
    cell = cell_of("residual/perplexity", NEWS)
    sizes = {name: cell[name] for name in ("layers", "hidden", "heads")}
    made: Callable[..., nn.Module] = Transformer
    if model == "balm":
        sizes["layers"] = cell["balm_layers"]
    elif model not in ("base", "unit"):
        own, made = cell["energies"][model], BidirectionalTransformer
        sizes = ROBERTA[own["encoder"]] if "encoder" in own else {name: own[name] for name in sizes}
    with torch.device("meta"):
        backbone: Any = made(cell["vocabulary"], **sizes)
        parts = [backbone] if model not in ("base", "balm") else [
            backbone, Softmax(backbone.width, cell["vocabulary"], backbone.decoder.inputs, tied=True)
        ]  # fmt: skip
        known = {id(one): one.numel() for part in parts for one in part.parameters()}
    assert sum(known.values()) / 1e6 == pytest.approx(millions, rel=0.02)


def test_the_texts_have_the_energies_that_the_document_has_figures_of() -> None:
    for corpus, figures in THEIRS.items():
        ours = {NAMES[kind] for kind in cell_of("residual/perplexity", corpus)["energies"]} - {"BiT-Base*, |E| ≤ 3"}
        assert ours == set(figures) - {"base LM", "RALM", "BALM"}


def test_the_printed_perplexities() -> None:
    """“Estimated Perplexities”, line by line."""
    assert THEIRS == {
        NEWS: {"base LM": "14.89", "RALM": "14.89", "BALM": "13.92", "UniT": "13.81–13.82", "BiT-Base": "13.01–13.03",
               "BiT-Med": "12.38–12.42", "BiT-Base*": "12.93–12.95", "BiT-Large*": "12.10–12.16"},
        BOOKS: {"base LM": "18.14", "RALM": "18.17", "BALM": "18.24", "UniT": "17.46–17.48",
                "BiT-Base*": "16.17–16.18", "BiT-Large*": "15.17–15.22"},
    }  # fmt: skip


def test_the_printed_rates_of_the_judge() -> None:
    """“Are generations from P_joint harder to discriminate?”."""
    about = {"judge": "one, trained against the base"}
    printed = {(figure.name, system): figure.paper({**about, "system": system})  # type: ignore[operator]
               for figure in RATES.of[:2] for system in ("base", "joint")}  # fmt: skip
    assert printed == {
        ("false positive rate", "base"): "17.8 %", ("accuracy", "base"): "89.9 %",
        ("false positive rate", "joint"): "31.8 %", ("accuracy", "joint"): "82.9 %",
    }  # fmt: skip


def test_the_printed_next_words() -> None:
    """“Given a prefix, check P(xₜ|x₍<t₎)”: of the words listed, those that the shown end of the prefix holds."""
    kind = {"loving": 0.15, "caring": 0.10, "kind": 0.04, "intelligent": 0.02, "gentle": 0.01, "sweet": 0.01,
            "beautiful": 0.01}  # fmt: skip
    base, joint = {"movie": 0.15, "TV": 0.11, "show": 0.08}, {"TV": 0.14, "show": 0.06, "movie": 0.04}
    sums = [f"{sum(words.values()):.2f}" for words in (kind, base, {}, joint)]
    assert {
        "base": f"{sums[0]} and {sums[1]} of the ten likeliest",
        "joint": f"{sums[2]} and {sums[3]} of the ten likeliest",
    } == PRINTED
