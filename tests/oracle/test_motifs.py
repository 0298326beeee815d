"""The motif languages of Parshakova et al. 2019 against counts made elsewhere; every entry of the file is checked."""

import json
import os
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from ebar.automata.measures import count_strings, entropy, mean_length, probability
from ebar.automata.motif import contains, spell, starts_with
from ebar.data.languages import Language

FOLDER = os.environ.get("EBAR_ORACLES")
ENTRIES: list[dict[str, Any]] = (
    json.loads((Path(FOLDER) / "motifs.json").read_text(encoding="utf-8"))["motifs"] if FOLDER else []
)

pytestmark = pytest.mark.skipif(not FOLDER, reason="EBAR_ORACLES does not name the folder of oracles")


def periodic(pattern: str, length: int) -> str:
    return "".join(islice(cycle(pattern), length))


def feature(name: str, motif: str) -> Any:
    """The automaton of a feature's string; the feature is 0 when the string is present."""
    if name.startswith("d0"):
        return starts_with([1 if "starts with 1" in name else 0], 2)
    strings = {
        "m": motif,
        "m+0": motif + "0",
        "m/2": motif[: len(motif) // 2],
        "d1": periodic("10101", len(motif)),
        "d2": periodic("1001001", len(motif) + 2),
        "d3": periodic("00110011", len(motif) // 2),
    }
    return contains(spell(strings[name], "01"), 2)


@pytest.mark.parametrize("how", ["motif", "expression"])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['motif']}-{entry['length']}")
def test_the_motif_language_has_the_oracles_figures(entry, how):
    motif, length = entry["motif"], entry["length"]
    given = {"motif": motif} if how == "motif" else {"expression": f".*{motif}.*"}
    pure = Language(**given, length=length).distribution()
    mixed = Language(**given, length=length, presence=0.9).distribution()
    assert count_strings(pure) == entry["strings_with_motif"]
    assert Language(**given, length=length).condition().count(length) == entry["strings_with_motif"]
    assert probability(Language(length=length).distribution(), contains(spell(motif, "01"), 2)) == pytest.approx(
        entry["fraction"], rel=1e-9
    )
    for language, kind in ((pure, "pure"), (mixed, "mixture")):
        nats = entropy(language)
        assert nats == pytest.approx(entry[f"entropy_{kind}_nats"], abs=1e-9)
        assert nats / mean_length(language) == pytest.approx(entry[f"entropy_{kind}_per_token"], abs=1e-9)
    for kind, language in (("pure", pure), ("mixture", mixed)):
        for name, mean in entry.get(f"feature_means_{kind}", {}).items():
            assert 1 - probability(language, feature(name, motif)) == pytest.approx(mean, abs=1e-9), name


def test_the_file_has_motifs_to_check():
    assert ENTRIES
