"""Transformer-XL's recipes: rivals of equal size, and figures of long texts by hand or one token at a time."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.build.train import train_as
from ebar.config.reader import read_tree
from ebar.config.train import MANUAL, TrainConfig
from ebar.evaluation.segments import segment_cost
from ebar.models.construction import Autoregressive, assemble
from ebar.models.continued import begin, carrying
from ebar.recipes import SCALES, find_recipe
from ebar.recipes.earm.language import TABLE3, TABLE3_XL
from ebar.recipes.earm.twins import configurations, train_twins
from ebar.recipes.local.scaling import update_cost
from ebar.recipes.recipe import Cell
from ebar.recipes.xl.cells import BITS_PER_BYTE, SEGMENTS, SLIDING, by_memory, by_protocol, levels_at
from ebar.recipes.xl.scoring import compared, read_on, repeated_share, window_cost
from ebar.types import Space

VOCABULARIES = {"wikitext-103": 267_735, "one-billion-word": 793_471, "penn-treebank": 10_000}
COMPARED = ("xl/table3_1", "xl/table3_2", "xl/table3_3", "xl/table3_4", "xl/table3_5", "xl/ablations", "local/scaling")


def vocabulary_of(data: Mapping[str, Any]) -> int:
    known = {"bytes": 256, "characters": 27, "words": VOCABULARIES.get(str(data["train"]).split("/")[0], 40)}
    return int(data["vocabulary"] or known[data["tokeniser"]])


def built(cell: Cell) -> Autoregressive:
    """The cell's model, of which only shapes are made."""
    tree = cell["configuration"]
    run = read_tree(tree, MANUAL, TrainConfig)
    space = Space(vocabulary_of(tree["data"]), tree["data"]["length"])
    with torch.device("meta"):
        return assemble(space, run.backbone.kind, run.backbone.options, run.head.kind, run.head.options)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", COMPARED)
def test_rivals_have_equally_many_parameters_and_read_equally_many_tokens(name: str, scale: str) -> None:
    cells = [cell for cell in find_recipe(name).grid(scale) if cell["seed"] == 0]
    sizes = {cell["model"]: sum(one.numel() for one in built(cell).parameters()) for cell in cells}
    first = next(iter(sizes.values()))
    assert all(abs(size / first - 1) < 0.03 for size in sizes.values()), sizes
    step = {cell["configuration"]["data"]["length"] * cell["configuration"]["training"]["batch_size"] for cell in cells}
    assert len(step) == 1
    assert len({str(cell["configuration"]["data"].get("limit")) for cell in cells}) == 1


def model(**options: Any) -> Autoregressive:
    torch.manual_seed(0)
    sizes = {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "memory": 4, **options}
    made = assemble(Space(5, 4), "transformer_xl", sizes, "softmax", {"tied": True}).double().eval()
    for parameter in made.parameters():
        parameter.data.mul_(10)
    return made.requires_grad_(False)


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_a_window_that_moves_on_gives_every_token_the_cost_that_it_has_alone(stride: int) -> None:
    own, tokens = model(), torch.randint(5, (13,), generator=Generator().manual_seed(1))
    _, backbone = carrying(own)
    expected = []
    for end in range(4, 13, stride):
        hidden, _ = backbone.read_segment(tokens[None, end - 4 : end], backbone.empty_memory(1))
        log_probs = own.head(hidden)[0].log_softmax(-1)
        expected += [-float(log_probs[at - end + 3, tokens[at]]) for at in range(end - stride + 1, end + 1)]
    found = window_cost(own, tokens, 4, stride)
    assert found.tokens == len(expected)
    assert found.per_token.value == pytest.approx(sum(expected) / len(expected), abs=1e-12)


def test_reading_on_is_evaluation_by_segments() -> None:
    own, tokens = model(), torch.randint(5, (30,), generator=Generator().manual_seed(1))
    whole = segment_cost(own, tokens, segment=4)
    first, carried = read_on(own, tokens[:12], begin(own, 1), 4)
    second, _ = read_on(own, tokens[12:], carried, 4)
    assert first.total + second.total == pytest.approx(whole.total, abs=1e-9)


def test_one_layer_with_a_memory_and_windows_read_anew_cost_the_same() -> None:
    """In one layer keys do not depend on what came before, so that segments of one token see what a window sees."""
    own, tokens = model(layers=1), torch.randint(5, (40,), generator=Generator().manual_seed(1))
    found = compared(own, tokens, lengths=[3, 6], scored=9, segment=1, clamp=None)
    for length in (3, 6):
        windows = window_cost(own, tokens[-9 - length - 1 :], length + 1, 1).per_token.value
        assert found[str(length)]["memory"]["nats"].value == pytest.approx(windows, abs=1e-12)
        anew = window_cost(own, tokens[-9 - length :], length, 1).per_token.value
        assert found[str(length)]["anew"]["nats"].value == pytest.approx(anew, abs=1e-12)
        assert abs(windows - anew) > 1e-3


def test_a_memory_levels_where_it_is_within_two_per_mille_of_the_best() -> None:
    assert levels_at({0: 3.0, 16: 2.005, 64: 2.0035, 256: 2.0, 1024: 2.1}) == 64
    assert levels_at({}) is None
    curve = by_memory(BITS_PER_BYTE)({"memories": {"16": {"value": math.log(2)}, "64": {"value": math.log(4)}}})
    assert curve == pytest.approx({16: 1.0, 64: 2.0})


def test_repeated_are_ngrams_that_stood_in_the_text_before() -> None:
    assert repeated_share([1, 2, 3, 4], 2) == 0
    assert repeated_share([1, 2, 1, 2, 1], 2) == 0.5  # 12 21 12 21
    assert repeated_share([7] * 5, 2) == 0.75


def test_a_run_without_recurrence_is_scored_in_two_ways() -> None:
    result = {"parameters": 1, "segments": {"nats": 2.0}, "sliding": {"nats": 1.0}}
    parts = [(cell["scored"], own["nats"]) for cell, own in by_protocol({"model": "m"}, result)]
    assert parts == [(SEGMENTS, 2.0), (SLIDING, 1.0)]


def test_what_an_update_keeps_grows_with_length_for_full_attention_only() -> None:
    def kept(length: int, chunk: int) -> float:
        options = {"layers": 1, "hidden": 8, "heads": 2, "chunk": chunk, "dropout": 0.0}
        own = assemble(Space(5, length), "local_xl", options, "softmax", {"tied": True}).train()
        return update_cost(own, 1, length)["kept"]

    assert kept(512, 8) == pytest.approx(kept(128, 8), rel=0.05)
    assert kept(512, 512) > 2 * kept(128, 128)


def test_table_3_of_earm_has_transformers_on_windows_and_transformer_xl_on_streams() -> None:
    for scale in SCALES:
        for recipe, backbone, kind in ((TABLE3, "transformer", "text"), (TABLE3_XL, "transformer_xl", "stream")):
            found = [cell["configuration"] for cell in recipe.grid(scale)]
            assert {one["backbone"]["kind"] for one in found} == {backbone}
            assert {one["data"]["kind"] for one in found} == {kind}


def test_a_twin_on_a_stream_that_began_in_a_trunk_is_the_run_that_is_trained_alone(tmp_path: Path) -> None:
    """The memory goes on where the trunk has left it, beside the state of an objective that the trunk had not."""
    cell = TABLE3_XL.grid("demo")[0]
    twin = next(iter(cell["twins"]))
    corpus, _ = train_twins(cell, tmp_path / "cell")
    train_as(configurations(cell, tmp_path / "cell")[twin], tmp_path / "alone", data=corpus)
    logs = [(tmp_path / place / "metrics.jsonl").read_bytes() for place in ("alone", f"cell/{twin}", "cell/base")]
    assert logs[0] == logs[1] != logs[2]
