"""A run's sentence pairs: targets and what they translate, in memory or on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.data.built_tokeniser import SOURCE_TOKENISER, TOKENISER, Tokenised, build_tokeniser, written
from ebar.data.corpus import Corpus, ended_space, every_nth
from ebar.data.hub import HubPairs
from ebar.data.packed import PackedPairs, pack_pairs
from ebar.data.parallel import Files, encoded_pairs, pairs, read_parallel
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.store.fingerprint import fingerprint
from ebar.types import Context, Sequences

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
    columns = _columns(data)

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
    found = list(pairs(files, **_columns(data)))
    if part == "train":
        order = torch.randperm(len(found), generator=Generator().manual_seed(folded(seed, 1)))
        return [found[row] for row in order[:limit].tolist()] if limit < len(found) else found
    return found[:: max(1, len(found) // limit)][:limit]


def written_pairs(data: ParallelData) -> list[tuple[str, str]] | None:
    """Sources and targets of the test part as they were written; None where it has no file of its own."""
    files = limited(data, "test", 0)
    return None if files is None else list(pairs(files, **_columns(data)))


def parallel_parts(data: ParallelData, tokenisers: Tokenisers, seed: int = 0) -> dict[str, Pairs]:
    """Train, validation and test. The longest sentence allowed is not the test's concern."""
    train, validation, test = (limited(data, part, seed) for part in ("train", "validation", "test"))
    assert train is not None
    columns: dict[str, Any] = _columns(data)
    limited_columns: dict[str, Any] = {**columns, "length": data.length, "too_long": data.too_long}
    parts: dict[str, Pairs] = {}
    if data.cache is not None:
        if validation is None:
            raise UserError("Pairs that stay on disk need a validation file of their own: give data.validation.")
        parts["train"] = _packed(data, data.cache, train, tokenisers, limited_columns)
    else:
        parts["train"] = read_parallel(train, *tokenisers, **limited_columns)
    if validation is None:
        parts["train"], parts["validation"] = every_nth(parts["train"], 20, "There are only", "training pairs")
    else:
        parts["validation"] = read_parallel(validation, *tokenisers, **limited_columns)
    parts["test"] = parts["validation"] if test is None else read_parallel(test, *tokenisers, **columns)
    return parts


def longest_target(part: Pairs) -> int:
    """Tokens, the end included."""
    x = part.target if isinstance(part, PackedPairs) else part[0]
    return int(x.lengths.max())


def _columns(data: ParallelData) -> dict[str, int]:
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
