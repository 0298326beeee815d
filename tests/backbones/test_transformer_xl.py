"""Transformer-XL read in every way it can be: the numbers are the same wherever the same places are seen."""

from typing import Any

import pytest
import torch

from ebar.backbones.backbone import Carries
from ebar.backbones.transformer_xl import TransformerXl
from tests.backbones.reading import (
    CONTEXTS,
    VOCABULARY,
    assert_all_ways_agree,
    assert_gradients_agree,
    assert_it_reads_and_steps,
    assert_nothing_later_matters,
    assert_padding_never_matters,
    assert_rows_can_be_selected,
    lively,
    some_tokens,
)

PREFIXES = {"none": None, **CONTEXTS}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "long": {"memory": 50},
    "two places": {"memory": 2},
    "before": {"normalise": "before", "untie_biases": True, "head_size": 3},
    "absolute": {"positions": "absolute"},
    "shaw": {"positions": "shaw", "clamp_length": 3},
    "clamped": {"clamp_length": 2, "recurrence": False},
    "adaptive": {"cutoffs": (2, 4), "divide": 2},
    "one table": {"cutoffs": (2, 4)},
}


def small(dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    torch.manual_seed(0)
    return lively(TransformerXl(VOCABULARY, **{"layers": 3, "hidden": 12, "heads": 3, "memory": 4, **settings}), dtype)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_ways_of_reading_agree(variant, prefix):
    assert_all_ways_agree(small(**VARIANTS[variant]), PREFIXES[prefix], torch.float64)


def test_all_ways_of_reading_agree_in_single_precision():
    assert_all_ways_agree(small(torch.float32), CONTEXTS["unequal"], torch.float32)


@pytest.mark.parametrize("prefix", ["none", "unequal", "equal"])
def test_nothing_later_matters_and_padding_never(prefix):
    assert_nothing_later_matters(small(memory=50), PREFIXES[prefix])
    assert_padding_never_matters(small(positions="absolute" if prefix == "equal" else "relative"))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_rows_can_be_selected(prefix):
    assert_rows_can_be_selected(small(), PREFIXES[prefix])


@pytest.mark.parametrize("variant", ["plain", "before", "shaw", "adaptive"])
def test_gradients_agree(variant):
    assert_gradients_agree(small(**VARIANTS[variant]), CONTEXTS["unequal"])


def test_it_is_a_backbone_that_reads_carries_and_steps():
    assert_it_reads_and_steps(small(), 12)
    assert isinstance(small(), Carries)
    assert some_tokens().shape == (6, 9)
