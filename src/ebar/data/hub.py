"""Data sets read by `datasets`: by name from the hub when online, or from a folder or files when not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ebar.errors import UserError

READERS = {".txt": "text", ".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """One split of a data set, read row by row, as often as asked.

    `name` is a folder that `save_to_disk` wrote, a file or a folder of files (.txt, .parquet, .jsonl, .csv), or a name
    on the hub.
    """

    name: str
    split: str = "train"
    configuration: str | None = None  # such as wikitext-103-raw-v1

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Each row by the names of its columns."""
        import_datasets()
        here = Path(self.name)
        yield from _local(here, self.split) if here.exists() else self._remote()

    def column(self, row: Mapping[str, Any], name: str) -> str:
        """A column by its name; `translation.de` is the entry `de` of the column `translation`."""
        found: Any = row
        for part in name.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise UserError(f"{self.name} has no column {name!r}: its columns are {', '.join(sorted(row))}.")
            found = found[part]
        if not isinstance(found, str):
            raise UserError(f"The column {name!r} of {self.name} holds {type(found).__name__}, no text.")
        return found

    def _remote(self) -> Iterator[Mapping[str, Any]]:
        datasets = import_datasets()
        try:
            yield from datasets.load_dataset(self.name, self.configuration, split=self.split, streaming=True)
        except Exception as error:  # of the network, of the hub, of its file formats: there is no common class
            cause = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"{self.name} is no folder or file here, and the hub did not give it ({cause}): "
                "download it elsewhere, save it with save_to_disk, and give that folder."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTexts:
    """The texts of one column."""

    data: HubSplit
    text: str = "text"

    def __iter__(self) -> Iterator[str]:
        for row in self.data.rows():
            yield self.data.column(row, self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPairs:
    """Sources and targets of two columns."""

    data: HubSplit
    source: str
    target: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row in self.data.rows():
            yield self.data.column(row, self.source), self.data.column(row, self.target)


@dataclass(frozen=True, kw_only=True)
class FilesOrDataset:
    """Where data come from: a file for each part, or the splits of one data set."""

    train: Path | None = None
    """Training data."""
    validation: Path | None = None
    """Held-out data for early stopping; without a file, the last tenth of a text, or every twentieth sentence pair."""
    test: Path | None = None
    """Held-out data for `ebar evaluate`; without a file, the validation data."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote: its splits train,
    validation and test."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""

    def split(self, part: str) -> HubSplit | None:
        """A split of the data set; None where the data are in files."""
        if (self.train is None) == (self.dataset is None):
            raise UserError("Data come from files or from a data set: give either data.train or data.dataset.")
        if self.dataset is None:
            return None
        return HubSplit(name=self.dataset, split=part, configuration=self.dataset_configuration)


def import_datasets() -> Any:
    """The package, or a sentence that says how to get it."""
    try:
        return import_module("datasets")
    except ImportError:
        raise UserError("Data sets by name need the package datasets: install the extra ebar[data].") from None


def _local(path: Path, split: str) -> Iterator[Mapping[str, Any]]:
    datasets = import_datasets()
    if path.is_dir() and ((path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists()):
        found = datasets.load_from_disk(str(path))
        if isinstance(found, datasets.DatasetDict):
            if split not in found:
                raise UserError(f"{path} has no split {split!r}: its splits are {', '.join(sorted(found))}.")
            found = found[split]
        elif split != "train":
            raise UserError(f"{path} is one split, which is read as 'train': it has no split {split!r}.")
        yield from found
        return
    files = _files(path, split)
    reader = READERS.get(files[0].suffix)
    if reader is None or any(READERS.get(file.suffix) != reader for file in files):
        known = ", ".join(READERS)
        raise UserError(f"{path} is of no kind that can be read: give files of one kind, of {known}.")
    yield from datasets.load_dataset(
        reader, data_files={split: [str(file) for file in files]}, split=split, streaming=True
    )


def _files(path: Path, split: str) -> list[Path]:
    """A file itself; in a folder, the files whose names begin with the split's."""
    if path.is_file():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name.startswith(split))
    if not files:
        raise UserError(f"{path} has no file whose name begins with {split!r}.")
    return files
