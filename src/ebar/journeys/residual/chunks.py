"""The text of a residual model, cut once and kept: what comes after needs no file of the user's."""

from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ebar.build.residual import Base
from ebar.data.continuations import continuations, read_stream
from ebar.data.kinds import TextData
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.data.text import Texts
from ebar.data.text import texts_of as lines_of
from ebar.data.text_parts import texts_of
from ebar.errors import UserError
from ebar.journeys.residual.settings import ChunksData
from ebar.journeys.residual.train_energy import Positives
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving
from ebar.types import Context, Sequences

CHUNKS = "chunks.safetensors"
TRIED = 500  # lines that a tokeniser must give back as they were


class Chunks(NamedTuple):
    """What there is to train on, to choose weights by, and to measure with."""

    train: Positives
    validation: Positives
    test: Positives


def chunks_of(data: ChunksData, base: Base, folder: Path) -> Chunks:
    """Those that the folder keeps; else those of the text, which are then kept."""
    path = folder / CHUNKS
    if path.exists():
        return _read(path)
    base.check(data.prefix)
    chunks = _cut(data, base)
    tensors = {
        f"{name}.{side}": tensor.to(torch.int32).contiguous()
        for name, part in zip(Chunks._fields, chunks, strict=True)
        for side, tensor in (("prefix", part.context.given.tokens), ("continuation", part.x.tokens))
    }
    with saving(str(path)):
        replace_file(path, save(tensors))
    return chunks


def spread_evenly(part: Positives, most: int | None) -> Positives:
    """At most so many, from the whole of the text."""
    rows = len(part.x.lengths)
    if most is None or most >= rows:
        return part
    chosen = torch.arange(most) * rows // most
    return Positives(part.x.select(chosen), part.context.select(chosen))


def _cut(data: ChunksData, base: Base) -> Chunks:
    source = _source(data, base)
    texts = {name: texts_of(source, name) for name in ("train", "validation", "test")}
    assert texts["train"] is not None
    _check_round_trip(texts["train"], base)
    parts = {name: _positives(text, data, base) for name, text in texts.items() if text is not None}
    if "validation" not in parts:
        rows = len(parts["train"].x.lengths)
        if rows < 2:
            raise UserError("The training text has only one chunk: give more, a validation file, or shorter chunks.")
        # Cut at one place: chunks next to each other share their subject.
        cut = rows - max(1, rows // 10)
        parts["train"], parts["validation"] = (
            Positives(parts["train"].x.select(some), parts["train"].context.select(some))
            for some in (torch.arange(cut), torch.arange(cut, rows))
        )
    test = parts.get("test", parts["validation"])
    return Chunks(
        spread_evenly(parts["train"], data.chunks),
        spread_evenly(parts["validation"], data.validation_chunks),
        spread_evenly(test, data.test_chunks),
    )


def _source(data: ChunksData, base: Base) -> TextData:
    known = {entry.name for entry in fields(TextData)} & {entry.name for entry in fields(ChunksData)}
    told = {name: getattr(data, name) for name in known}
    if data.train is not None or data.dataset is not None:
        return TextData(**told)
    if base.text is None:
        raise UserError("A pretrained base brings no text with it: give data.train or data.dataset.")
    return replace(base.text, **{name: told[name] for name in ("validation", "test") if told[name] is not None})


def _positives(text: Texts, data: ChunksData, base: Base) -> Positives:
    stream = read_stream(text, base.tokeniser)
    if len(stream) and int(stream.max()) >= base.q.space.vocabulary:
        raise UserError(
            f"The tokeniser of the base makes token {int(stream.max())} of this text, and the base knows "
            f"{base.q.space.vocabulary}: they do not belong together."
        )
    return Positives(*continuations(stream, prefix=data.prefix, continuation=data.continuation))


def _check_round_trip(text: Texts, base: Base) -> None:
    """A base whose tokens do not spell the text would be told from it by its spelling alone."""
    if isinstance(base.tokeniser, PretrainedTokeniser):
        base.tokeniser.check_round_trip("".join(islice(lines_of(text), TRIED)))


def _read(path: Path) -> Chunks:
    try:
        tensors = load(path.read_bytes())
        return Chunks(*(_restored(tensors, name) for name in Chunks._fields))
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): delete it, and run the same command again.") from None


def _restored(tensors: dict[str, Tensor], name: str) -> Positives:
    prefix, x = (tensors[f"{name}.{side}"].long() for side in ("prefix", "continuation"))
    return Positives(_whole(x), Context(_whole(prefix)))


def _whole(tokens: Tensor) -> Sequences:
    return Sequences(tokens, torch.full((len(tokens),), tokens.shape[1]))
