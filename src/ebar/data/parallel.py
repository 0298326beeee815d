"""Parallel corpora: sentences and their translations, in two files of as many lines or in one with tabs.

A run's sentence pairs: targets and what they translate, in memory or on disk.
"""

import warnings
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.data.built_tokeniser import SOURCE_TOKENISER, TOKENISER, Tokenised, build_tokeniser, written
from ebar.data.corpus import Corpus, ended_space, every_nth, numbered_lines, padded, three_parts
from ebar.data.hub import HubPairs
from ebar.data.packed import PackedPairs, pack_pairs
from ebar.data.text import AT_ONCE
from ebar.data.tokenisers import Tokeniser, encode_lines
from ebar.errors import UserError, choose
from ebar.maths.randomness import folded
from ebar.store.fingerprint import fingerprint
from ebar.types import Context, Sequences

Files = Path | tuple[Path, Path] | Iterable[tuple[str, str]]
"""One file with tabs, or the source's and the target's (plain, .gz or .xz); or pairs from anywhere else."""


def pairs(files: Files, *, source_column: int = 0, target_column: int = 1) -> Iterator[tuple[str, str]]:
    """Source and target of each line. Columns, counted from 0, matter to a file with tabs only."""
    if isinstance(files, Path):
        yield from _columns(files, source_column, target_column)
    elif _two_files(files):
        yield from _side_by_side(*files)
    else:
        yield from cast(Iterable[tuple[str, str]], files)


def read_pairs(files: Files, source: Tokeniser, target: Tokeniser, **options: Any) -> tuple[Sequences, Context]:
    """Targets x and sources C; options are those of `encoded_pairs`."""
    sides: tuple[tuple[array[int], array[int]], ...] = ((array("q"), array("q")), (array("q"), array("q")))
    for encoded in encoded_pairs(files, source, target, **options):
        for (flat, lengths), tokens in zip(sides, encoded, strict=True):
            flat.extend(tokens)
            lengths.append(len(tokens))
    given, x = (padded(*side) for side in sides)
    return x, Context(given)


def encoded_pairs(
    files: Files,
    source: Tokeniser,
    target: Tokeniser,
    *,
    source_column: int = 0,
    target_column: int = 1,
    length: int | None = None,
    too_long: Literal["skip", "error"] = "error",
) -> Iterator[tuple[list[int], list[int]]]:
    """The tokens of source and target, pair by pair, each side ended by the token numbered after its tokeniser's last.

    `length` is the most tokens on either side, the end included; pairs that have more are an error, or are left
    out and counted in a warning.
    """
    skips = choose({"skip": True, "error": False}, too_long, "way with long pairs")
    number = skipped = 0
    rest = pairs(files, source_column=source_column, target_column=target_column)
    while together := list(islice(rest, AT_ONCE)):
        sides = [
            encode_lines(tokeniser, texts, number + 1, partial(_line, files, at))
            for at, (tokeniser, texts) in enumerate(zip((source, target), zip(*together, strict=True), strict=True))
        ]
        for given, x in zip(*sides, strict=True):
            number += 1
            longest = max(len(given), len(x)) + 1
            if length is None or longest <= length:
                yield [*given, source.size], [*x, target.size]
            elif skips:
                skipped += 1
            else:
                where = _line(files, 0 if len(given) >= len(x) else 1, number)
                raise UserError(f"{where}: {longest} tokens are more than the {length} allowed, the end included.")
    if number == 0:
        raise UserError("There are no sentence pairs: give some.")
    if skipped == number:
        raise UserError(f"All {number:,} pairs of {_name(files, 0)} have more than {length} tokens: allow longer ones.")
    if skipped:
        message = f"{skipped:,} of {number:,} pairs of {_name(files, 0)} have more than {length} tokens: left out"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _columns(path: Path, source: int, target: int) -> Iterator[tuple[str, str]]:
    if source == target or min(source, target) < 0:
        raise UserError(f"Source and target must be two different columns, not {source} and {target}.")
    for number, text in numbered_lines(path):
        columns = text.split("\t")
        if len(columns) < 2:
            raise UserError(f"{path}, line {number} has no tab: it needs a sentence, a tab and its translation.")
        if len(columns) <= max(source, target):
            wanted = max(source, target)
            raise UserError(f"{path}, line {number} has {len(columns)} columns: counted from 0, none is {wanted}.")
        yield columns[source], columns[target]


def _side_by_side(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    for left, right in zip_longest(numbered_lines(source), numbered_lines(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is not None and right is not None:
            yield left[1], right[1]
    if counts[0] != counts[1]:
        raise UserError(f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: they must have as many.")


def _line(files: Files, side: int, number: int) -> str:
    return f"{_name(files, side)}, line {number}"


def _name(files: Files, side: int) -> str:
    if isinstance(files, Path):
        return str(files)
    return str(files[side]) if _two_files(files) else "the corpus"


def _two_files(files: Files) -> TypeGuard[tuple[Path, Path]]:
    return isinstance(files, tuple) and len(files) == 2 and isinstance(files[0], Path)


Pairs = tuple[Sequences, Context] | PackedPairs


Tokenisers = tuple[Tokeniser, Tokeniser]  # of source and target, which may be one


@dataclass(frozen=True, kw_only=True)
class ParallelData(Tokenised):
    """Sentences and their translations: one file with tabs, or two files of as many lines (.txt, .tsv, .gz, .xz)."""

    train_target: Path | None = None
    """Where there are two files, the translations of `train`, which then has the sources."""
    validation_target: Path | None = None
    """Translations of `validation`."""
    test_target: Path | None = None
    """Translations of `test`."""
    source_column: int | str = 0
    """What is translated: the column of a file with tabs, counted from 0, or the name of a data set's column
    (translation.de)."""
    target_column: int | str = 1
    """What it is translated into."""
    tokeniser: str = "bpe"
    shared: bool = True
    """One tokeniser for both sides, so that they can share their vectors."""
    length: Count | None = None
    """Longest training or validation sentence on either side, in tokens, its end included."""
    limit: Count | None = None
    """Most training pairs, drawn by the run's seed; by default all."""
    held_out_limit: Count | None = None
    """Most validation pairs and test pairs, evenly spaced; by default all."""
    too_long: Literal["skip", "error"] = "skip"
    """Whether longer pairs are left out, with a warning that counts them, or are an error."""

    kind = "parallel"
    backbone = "encoder_decoder"  # what suits it, where nobody says otherwise
    sources = True  # there is something that sequences translate

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """Tokenisers that `folder` holds are read from there."""
        source, target = tokenisers = build_tokenisers(self, folder, seed)
        parts = parallel_parts(self, tokenisers, seed)
        space = ended_space(target, longest_target(parts["train"]) - 1, maximal_length)
        for name, part in parts.items():
            if (longest := longest_target(part)) > space.length:
                raise UserError(
                    f"A {name} sentence has {longest} tokens, its end included, more than the {space.length} the model "
                    "can produce: give a larger training.maximal_length."
                )
        files = {TOKENISER: written(target)}
        if not self.shared:
            files[SOURCE_TOKENISER] = written(source)
        return Corpus(
            tokeniser=target,
            source_tokeniser=source,
            space=space,
            parts=parts,
            source=self,
            # Given only where the sides have vectors of their own.
            shape={} if self.shared else {"source_vocabulary": source.size + 1},
            files=files,
            written=written_pairs(self),
        )


def build_tokenisers(data: ParallelData, folder: Path | None, seed: int = 0) -> Tokenisers:
    """One for both sides, or one for each."""
    train = limited(data, "train", seed)
    assert train is not None
    columns = _column_numbers(data)

    def side(*wanted: int) -> Iterator[str]:
        return (pair[at] for pair in pairs(train, **columns) for at in wanted)

    if data.shared:
        both = build_tokeniser(data, lambda: side(0, 1), folder)
        return both, both
    source = build_tokeniser(data, lambda: side(0), folder, SOURCE_TOKENISER)
    return source, build_tokeniser(data, lambda: side(1), folder)


def files_of(data: ParallelData, part: str) -> Files | None:
    """Where the pairs of a part come from, if it has some of its own."""
    if (split := data.split(part)) is not None:
        return HubPairs(data=split, source=str(data.source_column), target=str(data.target_column))
    path: Path | None = getattr(data, part)
    target: Path | None = getattr(data, f"{part}_target")
    if path is None and target is not None:
        raise UserError(f"data.{part}_target is a translation of nothing: give data.{part} too.")
    return path if path is None or target is None else (path, target)


def limited(data: ParallelData, part: str, seed: int) -> Files | None:
    """The pairs of a part, if it has some of its own: all, or as many as the data's limits allow."""
    files = files_of(data, part)
    limit = data.limit if part == "train" else data.held_out_limit
    if files is None or limit is None:
        return files
    if part == "train" and data.cache is not None:
        raise UserError("Pairs that stay on disk are read as a whole: leave out data.limit or data.cache.")
    found = list(pairs(files, **_column_numbers(data)))
    if part == "train":
        order = torch.randperm(len(found), generator=Generator().manual_seed(folded(seed, 1)))
        return [found[row] for row in order[:limit].tolist()] if limit < len(found) else found
    return found[:: max(1, len(found) // limit)][:limit]


def written_pairs(data: ParallelData) -> list[tuple[str, str]] | None:
    """Sources and targets of the test part as they were written; None where it has no file of its own."""
    files = limited(data, "test", 0)
    return None if files is None else list(pairs(files, **_column_numbers(data)))


def parallel_parts(data: ParallelData, tokenisers: Tokenisers, seed: int = 0) -> dict[str, Pairs]:
    """Train, validation and test. The longest sentence allowed is not the test's concern."""
    train, validation, test = (limited(data, part, seed) for part in ("train", "validation", "test"))
    assert train is not None
    columns: dict[str, Any] = _column_numbers(data)
    limited_columns: dict[str, Any] = {**columns, "length": data.length, "too_long": data.too_long}
    if data.cache is not None:
        if validation is None:
            raise UserError("Pairs that stay on disk need a validation file of their own: give data.validation.")
        whole: Pairs = _packed(data, data.cache, train, tokenisers, limited_columns)
    else:
        whole = read_pairs(train, *tokenisers, **limited_columns)
    held_out = None if validation is None else read_pairs(validation, *tokenisers, **limited_columns)
    tested = None if test is None else read_pairs(test, *tokenisers, **columns)
    split = partial(every_nth, n=20, there_are="There are only", what="training pairs")
    return three_parts(whole, held_out, tested, split=split)


def longest_target(part: Pairs) -> int:
    """Tokens, the end included."""
    x = part.target if isinstance(part, PackedPairs) else part[0]
    return int(x.lengths.max())


def _column_numbers(data: ParallelData) -> dict[str, int]:
    if data.dataset is not None:
        return {}  # of no matter: pairs come as pairs
    try:
        return {"source_column": int(data.source_column), "target_column": int(data.target_column)}
    except ValueError:
        raise UserError(
            f"The columns of a file are numbers counted from 0, not {data.source_column!r} and {data.target_column!r}."
        ) from None


def _packed(
    data: ParallelData, cache: Path, train: Files, tokenisers: Tokenisers, options: dict[str, Any]
) -> PackedPairs:
    made = {
        "pairs": data.dataset if data.train is None else [data.train, data.train_target],
        "configuration": data.dataset_configuration,
        "columns": [str(data.source_column), str(data.target_column)],
        "length": data.length,
        "too_long": data.too_long,
        "tokenisers": [fingerprint(written(tokeniser)) for tokeniser in tokenisers],
    }
    sizes = (tokenisers[0].size + 1, tokenisers[1].size + 1)
    folder = cache / f"parallel-{fingerprint(made)}"
    return pack_pairs(
        folder, lambda: encoded_pairs(train, *tokenisers, **options), vocabularies=sizes, description=made
    )
