"""Tokenisers, corpora, and languages of known entropy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ebar.bounds import checked_options
from ebar.data.built_tokeniser import TOKENISERS
from ebar.data.corpus import Corpus, LanguageData, LinesData
from ebar.data.images import ImagesData
from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.data.labelled_images import FewLabels, LabelledImagesData
from ebar.data.parallel import ParallelData
from ebar.data.points import Points, PointsData
from ebar.data.pretraining import PretrainingData
from ebar.data.stream import StreamData
from ebar.data.text import TextData
from ebar.tables import Table

# An entry is a frozen dataclass of options with its name here as `kind`; its `read(seed, maximal_length, folder)` gives
# the corpus.
DATA: Table[Any] = Table(
    "data",
    {
        "language": LanguageData,
        "lines": LinesData,
        "text": TextData,
        "stream": StreamData,
        "pretraining": PretrainingData,
        "parallel": ParallelData,
        "images": ImagesData,
    },
)

Place = Path | str
Length = int | None
Made = TypeVar("Made")


def _made(kind: Callable[..., Made], train: Place | None, options: dict[str, Any]) -> Made:
    """Data of a kind; strings may stand for paths, and lists for tuples."""
    return kind(**checked_options(kind, options if train is None else {"train": Path(train), **options}, "data"))


def read_lines(train: Place, *, maximal_length: Length = None, **options: Any) -> Corpus:
    """Your own sequences, one per line; options are those of `LinesData`."""
    return _made(LinesData, train, options).read(maximal_length=maximal_length)


def read_text(train: Place, **options: Any) -> Corpus:
    """Text as one stream of tokens, cut into windows; options are those of `TextData`."""
    return _made(TextData, train, options).read()


def read_stream(train: Place, *, seed: int = 0, **options: Any) -> Corpus:
    """Text as one stream of tokens, read with a carried memory; options are those of `StreamData`."""
    return _made(StreamData, train, options).read(seed=seed)


def read_pretraining(train: Place, *more: Place, seed: int = 0, **options: Any) -> Corpus:
    """Text in columns of inputs to pretrain on, from one or more files; options are those of `PretrainingData`."""
    return _made(PretrainingData, train, {"more": more, **options}).read(seed=seed)


def read_parallel(train: Place, *, seed: int = 0, maximal_length: Length = None, **options: Any) -> Corpus:
    """Sentences and their translations; options are those of `ParallelData`."""
    return _made(ParallelData, train, options).read(seed=seed, maximal_length=maximal_length)


def read_images(train: Place, *, seed: int = 0, **options: Any) -> Corpus:
    """Images of one size; options are those of `ImagesData`."""
    return _made(ImagesData, train, options).read(seed=seed)


def read_points(train: Place | None = None, *, seed: int = 0, **options: Any) -> Points:
    """Points of a file, or `read_points(mixture="spirals")` of a known mixture; options are those of `PointsData`."""
    return _made(PointsData, train, options).read(seed=seed)


def read_labelled(train: Place | None = None, *, seed: int = 0, **options: Any) -> LabelledCorpus:
    """Labelled examples for a task, from files, folders or a data set; options are those of `LabelledData`."""
    return _made(LabelledData, train, options).read(seed=seed)


def read_labelled_images(
    train: Place, *, test: Place, labels: int = 100, seed: int = 0, **options: Any
) -> FewLabels:  # fmt: skip
    """Images of which `labels` have labels, chosen by the seed; options are those of `LabelledImagesData`."""
    made = _made(LabelledImagesData, train, {"test": test, **options})
    return made.read(labels=labels, seed=seed)


def language(*, seed: int = 0, maximal_length: Length = None, **options: Any) -> Corpus:
    """Sequences drawn from a language whose entropy is known; options are those of `LanguageData`."""
    return LanguageData(**options, seed=seed).read(maximal_length=maximal_length)


__all__ = [
    "DATA", "TOKENISERS", "Corpus", "ImagesData", "LabelledCorpus", "LabelledData", "LanguageData", "LinesData",
    "ParallelData", "Points", "PointsData", "PretrainingData", "StreamData", "TextData", "language",
    "read_images", "read_labelled", "read_lines", "read_parallel", "read_points", "read_pretraining", "read_stream",
    "read_text",
]  # fmt: skip
