"""Lifted automata that are kept on disk, by expression and vocabulary, where EBAR_CACHE names a folder."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save

from ebar.automata.deterministic import Dfa
from ebar.store.fingerprint import describe, fingerprint, source_fingerprint
from ebar.store.stages import open_stage

VARIABLE = "EBAR_CACHE"
FILE = "automaton.safetensors"


def kept(what: Any, spellings: Sequence[bytes | None], make: Callable[[], Dfa]) -> Dfa:
    """An automaton over tokens, read where an earlier process has made it.

    `what` is what it is made from besides the vocabulary: whatever `describe` knows. One made by other source code is
    made anew. Two processes that want the same one wait for one another; without the environment variable
    nothing is read or written.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return make()
    description = {"made from": describe(what), "vocabulary": _digest(spellings), "source": source_fingerprint()}
    place = Path(folder) / "automata" / fingerprint(description)
    with open_stage(place, description) as stage:
        if not stage.done:
            made = make()
            assert made.letter is not None
            tensors = {"moves": made.moves, "accepting": made.accepting, "letter": made.letter}
            stage.write(FILE, save({name: tensor.contiguous() for name, tensor in tensors.items()}))
            stage.save({"start": made.start})
            return made
        found = stage.tensors(FILE, "moves", "accepting", "letter")
        return Dfa(found["moves"], found["accepting"], start=int(stage.state["start"]), letter=found["letter"])


def _digest(spellings: Sequence[bytes | None]) -> str:
    digest = hashlib.sha256()
    for spelling in spellings:
        digest.update(b"-" if spelling is None else b"%d:%s" % (len(spelling), spelling))
    return digest.hexdigest()
