"""The tokenisers of a run: kept in its folder once they are made, so that nothing after training makes them again."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ebar.data.bpe import Bpe
from ebar.data.kinds import ParallelData, TextData
from ebar.data.tokenisers import Alphabet, Bytes, Kept, Tokeniser, Words, read_tokeniser
from ebar.errors import UserError, choose

TOKENISER, SOURCE_TOKENISER = "tokeniser.json", "source_tokeniser.json"
BPE_TOKENS = 8000  # where no number is given


def build_tokeniser(
    data: TextData | ParallelData, texts: Callable[[], Iterable[str]], folder: Path | None, name: str = TOKENISER
) -> Tokeniser:
    """That of the run folder; else that of another run, where one is named; else one made from the texts."""
    if folder is not None and (folder / name).exists():
        return _read(folder / name)
    if data.tokeniser_file is not None:
        return _read(data.tokeniser_file if name == TOKENISER else data.tokeniser_file.with_name(name))
    makers: dict[str, Callable[[], Tokeniser]] = {
        "characters": lambda: Alphabet.train(texts(), data.vocabulary),
        "words": lambda: Words.train(texts(), data.vocabulary),
        "bpe": lambda: Bpe.train(texts(), BPE_TOKENS if data.vocabulary is None else data.vocabulary),
        "bytes": Bytes,
    }
    try:
        return choose(makers, data.tokeniser, "tokeniser")()
    except ValueError as error:
        raise UserError(f"The tokeniser {data.tokeniser} cannot be made: {error}.") from None


def written(tokeniser: Tokeniser) -> str:
    """A tokeniser as the text it is kept as."""
    if not isinstance(tokeniser, Kept):
        raise TypeError(f"{type(tokeniser).__name__} has no to_json: it cannot be kept with a run")
    return tokeniser.to_json()


def _read(path: Path) -> Tokeniser:
    try:
        return read_tokeniser(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The tokeniser {path} cannot be read: {error}.") from None
