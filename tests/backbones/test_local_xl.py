"""Local-XL: every way to read agrees, its reach is what it says, and with chunks as long as the text it is full
attention."""

from typing import Any

import pytest
import torch

from ebar.backbones.local_xl import LocalXl
from tests.backbones.reading import (
    CONTEXTS,
    VOCABULARY,
    assert_all_ways_agree,
    lively,
)

PREFIXES = {"none": None, **CONTEXTS}
SETTINGS: dict[str, dict[str, Any]] = {
    "chunks": {"chunk": 3},
    "window": {"chunk": 3, "window": True},
    "growing": {"chunk": [1, 2, 4]},
    "long": {"chunk": 50},
}


def small(dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    torch.manual_seed(0)
    return lively(LocalXl(VOCABULARY, **{"layers": 3, "hidden": 12, "heads": 3, "chunk": 3, **settings}), dtype)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_ways_to_read_agree(settings: str, prefix: str) -> None:
    assert_all_ways_agree(small(**SETTINGS[settings]), PREFIXES[prefix], torch.float64)
