"""Labelled data of a task: examples to train on, to validate with and to test on, as texts and as tensors.

The options of labelled data, and how they are read: files to examples, held-out parts, limits, tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Int
from torch import Tensor

from ebar.bounds import Count, Share, check
from ebar.data.built_tokeniser import TOKENISER, Tokenised, build_tokeniser, written
from ebar.data.hub import FilesOrDataset, HubSplit
from ebar.data.labelled.encoding import Encoded, Encoding, Labelled, Text
from ebar.data.labelled.examples import Columns, Example, Task, examples_of
from ebar.data.labelled.parts import held_out_limit, hold_out, limit
from ebar.data.labelled.rows import Rows, by_class, hub_rows, json_lines, race, squad, table
from ebar.data.specials import Specials, specials_of, vocabulary_with_specials
from ebar.data.tokenisers import Storable, Tokeniser
from ebar.errors import UserError, choose


@dataclass(frozen=True, kw_only=True)
class LabelledCorpus:
    """What a task model is trained on, held out from, and tested on."""

    encoding: Encoding
    written: Mapping[str, Sequence[Example]]  # by part: the examples as they stand in their files
    parts: Mapping[str, Labelled]  # train, validation, test
    characters: Mapping[str, Int[Tensor, "rows length 2"]] = field(default_factory=dict)  # by part, see `Encoded`
    source: Any = None  # the options it was read with
    files: Mapping[str, str] = field(default_factory=dict)  # what a run folder must keep of it, by name

    @staticmethod
    def of(examples: Mapping[str, Sequence[Example]], encoding: Encoding, source: Any = None) -> "LabelledCorpus":
        """Examples of each part, encoded."""
        encoded = {part: encoding.encode(own) for part, own in examples.items()}
        characters = {part: own.characters for part, own in encoded.items() if own.characters is not None}
        parts = {part: own.labelled for part, own in encoded.items()}
        storable = isinstance(encoding.tokeniser, Storable)
        files = {TOKENISER: written(encoding.tokeniser)} if storable else {}
        return LabelledCorpus(
            encoding=encoding, written=examples, parts=parts, characters=characters, source=source, files=files
        )

    @property
    def task(self) -> Task:
        return self.encoding.task

    @property
    def tokeniser(self) -> Tokeniser:
        return self.encoding.tokeniser

    @property
    def specials(self) -> Specials:
        return self.encoding.specials

    @property
    def vocabulary(self) -> int:
        """Tokens that a model of these data has, special ones counted."""
        return vocabulary_with_specials(self.tokeniser)

    @property
    def length(self) -> int:
        return self.encoding.length

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, in the order of their numbers."""
        return self.encoding.names

    @property
    def train(self) -> Labelled:
        return self.part("train")

    @property
    def validation(self) -> Labelled:
        return self.part("validation")

    @property
    def test(self) -> Labelled:
        return self.part("test")

    @property
    def origin(self) -> dict[str, Any] | None:
        """The options it was read with, as a configuration has them; None where it was made of something else."""
        if self.source is None:
            return None
        return {"kind": self.source.kind, **{own.name: getattr(self.source, own.name) for own in fields(self.source)}}

    def part(self, name: str) -> Labelled:
        return choose(self.parts, name, "part of labelled data")

    def with_tokeniser(self, tokeniser: Tokeniser, specials: Specials | None = None) -> "LabelledCorpus":
        """The same examples in the tokens of another tokeniser: that of the model which is to learn from them."""
        specials = specials_of(tokeniser) if specials is None else specials
        encoding = replace(self.encoding, tokeniser=tokeniser, specials=specials)
        return LabelledCorpus.of(self.written, encoding, self.source)

    def encode(self, texts: Sequence[Text]) -> Encoded:
        """New texts, as `Encoding.texts` reads them; their labels are not known."""
        return self.encoding.texts(texts)

    def answer(self, part: str, row: int, first: int, last: int) -> str:
        """The characters of the passage from place `first` to place `last` of a row; "" where they are no answer."""
        question = int(self.part(part).group[row])
        return answer_text(self.written[part][question].text, self.characters[part][row], first, last)


def answer_text(passage: str, characters: Int[Tensor, "length 2"], first: int, last: int) -> str:
    """The characters of a passage from one place to another; "" where a place is none of the passage's."""
    if not 0 <= first <= last < len(characters) or min(characters[first, 0], characters[last, 0]) < 0:
        return ""
    return passage[int(characters[first, 0]) : int(characters[last, 1])]


Format = Literal["jsonl", "tsv", "folder", "squad", "race"]
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class LabelledData(FilesOrDataset):
    """Labelled examples: JSON lines, tables, folders, zip archives, SQuAD, RACE or a data set."""

    train: Path | None = None
    """Training examples: a file, a folder or a zip archive."""
    validation: Path | None = None
    """Held-out examples for early stopping; without a file, `validation_share` of the training examples."""
    test: Path | None = None
    """Held-out examples to report on; without a file, `test_share` of the training examples."""
    dataset_validation: str | None = "validation"
    """The data set's split for validation; none: a share of its training split."""
    dataset_test: str | None = "test"
    """The data set's split to report on; none: a share of its training split."""
    task: Task = "classification"
    """What is asked: a class, a number (regression), an answer in a passage (span), an order of documents (ranking) or
    the right one of several options (choice)."""
    format: Format | None = None
    """How files are written; by default told by their names: .jsonl, .tsv, .json (SQuAD), folders and .zip (a folder or
    a file for each class; RACE where the task is choice)."""
    text_column: int | str | None = None
    """Column of the text, by name or counted from 0; by default guessed by its name, or the first."""
    pair_column: int | str | None = None
    """Column of the second text of a pair: the question about a passage, the document for a query."""
    label_column: int | str | None = None
    """Column of the label: a class, a number, a grade, an answer."""
    options_column: int | str | None = None
    """Column of the options of a question."""
    group_column: int | str | None = None
    """Column that tells the query of a document; by default the query's text."""
    header: bool | None = None
    """Whether a table's first line names its columns; by default told by the names in it."""
    classes: tuple[str, ...] | None = None
    """Names of all classes, in the order of their numbers; by default those of the training examples, sorted."""
    validation_share: Share = 0.1
    """Share of the training examples held out for validation where it has no file."""
    test_share: Share = 0.1
    """Share held out to report on where it has no file; 0: the validation examples."""
    split_seed: int = 0
    """Of the draw of held-out examples, which is the same whatever the run's seed."""
    limit: Count | None = None
    """Labelled training examples that are used (of ranking: queries), drawn by the run's seed, as many of each class as
    can be; by default all."""
    held_out_limit: Count | None = None
    """Most validation and most test examples, evenly spaced; by default all."""
    length: Count = 128
    """Most tokens of an input, special ones counted."""
    stride: Count = 128
    """By how many tokens the next window moves on in a passage longer than `length` (span)."""
    too_long: Literal["cut", "error"] = "cut"
    """Whether longer texts are cut (from the right; of pairs the longer one, never a question) or are an error."""
    tokeniser: str = "words"
    """What a token is where no pretrained model decides it: an entry of TOKENISERS, made from the training texts."""
    vocabulary: Count | None = None
    """Most tokens of such a tokeniser."""
    tokeniser_file: Path | None = None
    """The tokeniser.json of another run, in its place."""

    kind = "labelled"

    def read(
        self,
        *,
        tokeniser: Tokeniser | None = None,
        specials: Specials | None = None,
        seed: int = 0,
        folder: Path | None = None,
    ) -> LabelledCorpus:
        """Encoded by a pretrained model's tokeniser and its special tokens, where they are given.

        The seed draws the training examples that `limit` allows, and nothing else.
        """
        check(self, "data.")
        whole = self._whole()
        names = self._names(whole["train"])
        examples = self._limited(whole, seed)
        if tokeniser is None:
            tokeniser = self._tokeniser(examples["train"], folder)
        encoding = Encoding(
            task=self.task,
            tokeniser=tokeniser,
            specials=specials_of(tokeniser) if specials is None else specials,
            length=self.length,
            names=names,
            stride=self.stride,
            too_long=self.too_long,
        )
        return LabelledCorpus.of(examples, encoding, self)

    def examples(self, seed: int = 0) -> dict[str, list[Example]]:
        """The examples of each part, as they stand in their files."""
        return self._limited(self._whole(), seed)

    def _whole(self) -> dict[str, list[Example]]:
        found = {
            part: list(examples_of(self._rows(part), self.task, self._columns())) for part in PARTS if self._has(part)
        }
        for part, own in found.items():
            if not own:
                raise UserError(f"{self._name(part)} has no example: it needs one at least.")
        self._check_header(found["train"])
        shares = {"test": self.test_share, "validation": self.validation_share}
        drawn = {part: share for part, share in shares.items() if part not in found and share > 0}
        if drawn:
            found |= hold_out(found["train"], self.task, drawn, self.split_seed, self._name("train"))
        if "validation" not in found:
            raise UserError(
                "There are no validation examples: give data.validation, or a data.validation_share above 0."
            )
        return {part: found.get(part, found["validation"]) for part in PARTS}

    def _limited(self, whole: dict[str, list[Example]], seed: int) -> dict[str, list[Example]]:
        found = {part: held_out_limit(whole[part], self.task, self.held_out_limit) for part in PARTS[1:]}
        return {"train": limit(whole["train"], self.task, self.limit, seed), **found}

    def _check_header(self, train: Sequence[Example]) -> None:
        """A first line that was taken for an example although it names the columns would be a class of its own."""
        first = train[0]
        guessed = self.task == "classification" and self.header is None and self.classes is None
        guessed = guessed and len(train) > 2 and first.where.endswith(".tsv, line 1")
        if guessed and [one.label for one in train].count(first.label) == 1:
            raise UserError(
                f"{first.where}: no other line has the label {first.label!r}: say by data.header, true or false, "
                "whether the first line names the columns."
            )

    def _has(self, part: str) -> bool:
        if self.dataset is not None:
            return part == "train" or getattr(self, f"dataset_{part}") is not None
        return part == "train" or getattr(self, part) is not None

    def _name(self, part: str) -> str:
        return str(getattr(self, part) if self.dataset is None else self.dataset)

    def _columns(self) -> Columns:
        return Columns(
            text=self.text_column, pair=self.pair_column, label=self.label_column, options=self.options_column,
            group=self.group_column,
        )  # fmt: skip

    def _rows(self, part: str) -> Rows:
        split = self.split(part)  # which refuses files and a data set together
        if split is not None:
            name = "train" if part == "train" else getattr(self, f"dataset_{part}")
            return hub_rows(HubSplit(name=split.name, split=name, configuration=split.configuration))
        path: Path = getattr(self, part)
        written_as = self.format or _format(path, self.task)
        if written_as == "folder":
            return by_class(path, self.classes)
        if written_as == "tsv":
            return table(path, self.task, self._columns(), self.header)
        return {"jsonl": json_lines, "squad": squad, "race": race}[written_as](path)

    def _names(self, train: Sequence[Example]) -> tuple[str, ...]:
        if self.task != "classification":
            return ()
        if self.classes is not None:
            return self.classes
        found = {str(example.label) for example in train}
        if len(found) == len(train) > 20:
            raise UserError(
                f"{self._name('train')} has another label on every line, such as {sorted(found)[0][:40]!r}: say which "
                "column has the labels by data.label_column."
            )
        numbers = all(name.removeprefix("-").isdigit() for name in found)
        return tuple(sorted(found, key=lambda name: (int(name) if numbers else 0, name)))

    def _tokeniser(self, train: Sequence[Example], folder: Path | None) -> Tokeniser:
        options = Tokenised(tokeniser=self.tokeniser, vocabulary=self.vocabulary, tokeniser_file=self.tokeniser_file)
        texts = [text for one in train for text in (one.text, one.pair, *one.options) if text]
        return build_tokeniser(options, lambda: texts, folder)


def _format(path: Path, task: Task) -> Format:
    """How a file is written, told by its name."""
    if path.is_dir() or path.suffix == ".zip":
        return "race" if task == "choice" else "folder"
    suffix = path.with_suffix("").suffix if path.suffix in (".gz", ".xz") else path.suffix
    if suffix == ".json" and task == "span":
        return "squad"
    known: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".txt": "tsv"}
    if suffix not in known:
        raise UserError(f"How {path} is written cannot be told by its name: give data.format.")
    return known[suffix]
