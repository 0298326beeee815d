"""A run's text: windows of one stream, in memory or on disk."""

from pathlib import Path

from ebar.data.built_tokeniser import written
from ebar.data.hub import HubSplit, HubTexts
from ebar.data.kinds import TextData
from ebar.data.packed import Packed, pack_stream
from ebar.data.text import Texts, blocks_of, read_tokens, windows
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.maths.rows import evenly, take
from ebar.store.fingerprint import fingerprint
from ebar.types import Sequences


def texts_of(data: TextData, part: str) -> Texts | None:
    """Where the text of a part comes from, if it has one of its own."""
    if (data.train is None) == (data.dataset is None):
        raise UserError("Text comes from files or from a data set: give either data.train or data.dataset.")
    if data.dataset is not None:
        split = HubSplit(name=data.dataset, split=part, configuration=data.dataset_configuration)
        return HubTexts(data=split, text=data.column)
    path: Path | None = getattr(data, part)
    return path


def text_parts(data: TextData, tokeniser: Tokeniser) -> dict[str, Sequences | Packed]:
    """Train, validation and test."""
    train, validation, test = (texts_of(data, part) for part in ("train", "validation", "test"))
    assert train is not None
    parts: dict[str, Sequences | Packed] = {}

    def read(texts: Texts, limit: int | None, most: int | None) -> Sequences:
        found = windows(read_tokens(texts, tokeniser)[:limit], data.length)
        return found if most is None else take(found, evenly(len(found.lengths), most))

    if data.cache is not None:
        if data.limit is not None or data.windows is not None:
            raise UserError(
                "A text that stays on disk is read as a whole: leave out data.limit and data.windows, or data.cache."
            )
        if validation is None:
            raise UserError("A text that stays on disk needs a validation file of its own: give data.validation.")
        made = {
            "text": data.dataset if data.train is None else data.train,
            "configuration": data.dataset_configuration,
            "column": data.column,
            "tokeniser": fingerprint(written(tokeniser)),
        }
        folder = data.cache / f"text-{fingerprint(made, data.length)}"
        parts["train"] = pack_stream(
            folder,
            lambda: blocks_of(train, tokeniser),
            vocabulary=tokeniser.size,
            length=data.length,
            description=made,
        )
    else:
        parts["train"] = read(train, data.limit, data.windows)
    if validation is None:
        parts["train"], parts["validation"] = _last_tenth(parts["train"])
    else:
        parts["validation"] = read(validation, data.held_out_limit, data.held_out_windows)
    parts["test"] = parts["validation"] if test is None else read(test, data.held_out_limit, data.held_out_windows)
    return parts


def _last_tenth(x: Sequences | Packed) -> tuple[Sequences, Sequences]:
    """Cut at one place: windows next to each other share their subject."""
    assert isinstance(x, Sequences)
    rows = len(x.lengths)
    if rows < 2:
        raise UserError(
            "The training text has only one window: give more, a validation file, or a smaller data.length."
        )
    cut = rows - max(1, rows // 10)
    return take(x, slice(0, cut)), take(x, slice(cut, rows))
