"""Text as one stream of tokens that is read from beginning to end, in contiguous columns side by side."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.bounds import Amount, Count, Share
from ebar.data.built_tokeniser import Tokenised, build_tokeniser
from ebar.data.corpus import Corpus
from ebar.data.prose import letters_only, without_markup
from ebar.data.text import Texts, TextSource, read_tokens, texts_of, windowed, windows
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.types import Sequences

DRAWN = 4096  # lengths drawn at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """Lengths of segments drawn anew each epoch: round a whole `length` or, rarely, half of it (Merity et al. 2018).

    Otherwise the same tokens would be the first of a segment in each epoch, and those never learn from what follows.
    """

    half: float = 0.05  # chance of a half
    deviation: float = 5.0  # standard deviation, in tokens
    shortest: int = 5

    def lengths(self, total: int, length: int, generator: Generator) -> list[int]:
        """Of the segments of a column of `total` tokens; the last ends where the column does."""
        found: list[int] = []
        left = total
        while left > 0:
            coins, noise = torch.rand(DRAWN, generator=generator), torch.randn(DRAWN, generator=generator)
            means = torch.where(coins < self.half, length / 2, float(length))
            for drawn in (means + self.deviation * noise).long().clamp(min=self.shortest).tolist():
                found.append(min(drawn, left))
                left -= drawn
                if left <= 0:
                    break
        return found


@dataclass(frozen=True, slots=True)
class Stream:
    """A long text as tokens. Asked for rows, as what knows no streams does, it gives windows of `length` tokens."""

    tokens: Int[Tensor, " tokens"]
    length: int  # of a segment
    varied: Varied | None = None

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        return torch.full((len(self),), self.length)

    def fetch(self, rows: Int[Tensor, " selected"]) -> Sequences:
        return windows(self.tokens, self.length).select(rows.to(self.tokens.device))

    def columns(self, number: int) -> Int[Tensor, "columns length"]:
        """The text cut into so many pieces of one length; what is left over is dropped, as Dai et al. 2019 do."""
        length = len(self.tokens) // number
        if length < 1:
            raise UserError(f"The text has {len(self.tokens):,} tokens, too few for {number:,} columns.")
        return self.tokens[: number * length].view(number, length)

    def segments(self, total: int, *, seed: int, epoch: int) -> list[int]:
        """Lengths of the segments that a column of `total` tokens is read in; they depend on nothing else."""
        if self.varied is not None:
            generator = Generator().manual_seed(folded(seed, "segments", epoch))
            return self.varied.lengths(total, self.length, generator)
        whole, rest = divmod(total, self.length)
        return [self.length] * whole + ([rest] if rest else [])


@dataclass(frozen=True, kw_only=True)
class StreamData(TextSource, Tokenised):
    """Text as one stream of tokens in contiguous columns, memory carried along (.txt, .gz, .xz, or a data set)."""

    length: Count = 128
    """Tokens in a segment; `training.batch_size` columns are read side by side, a segment at a time."""
    limit: Count | None = None
    """Most tokens of the training text, from its beginning on; by default all."""
    held_out_limit: Count | None = None
    """Most tokens of the validation text and of the test text; by default all."""
    vary: bool = False
    """Draw the lengths of training segments anew each epoch, the learning rate scaled by each length (AWD-LSTM)."""
    vary_half: Share = 0.05
    """Of varied lengths: the chance that one is drawn round half of `length`."""
    vary_deviation: Amount = 5.0
    """Of varied lengths: the standard deviation, in tokens."""
    vary_shortest: Count = 5
    """Of varied lengths: the least."""
    clean: Literal["none", "text8", "wikipedia"] = "none"
    """text8: only a–z and single spaces, digits spelt out; wikipedia: the same, of a dump as XML without its markup."""
    shuffle: bool = False
    """Put the lines of each text into an order drawn at random, so that nothing is to be learnt across lines."""
    seed: int | None = None
    """Of that order; by default that of the run."""

    kind = "stream"

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """A tokeniser that `folder` holds is read from there."""
        if maximal_length is not None:
            raise UserError("A stream is cut into segments of data.length tokens: leave out training.maximal_length.")
        if self.cache is not None:
            raise UserError("A stream is read into memory as a whole: leave out data.cache.")
        seed = seed if self.seed is None else self.seed
        found = {name: self.prepared(name, seed) for name in ("train", "validation", "test")}
        train = found["train"]
        assert train is not None
        tokeniser = build_tokeniser(self, lambda: texts_of(train), folder)
        return windowed(self, tokeniser, self._parts(found, tokeniser))

    def prepared(self, part: str, seed: int) -> Texts | None:
        """The text of a part, cleaned and shuffled as the options say."""
        texts = self.texts(part)
        if texts is None or (self.clean == "none" and not self.shuffle):
            return texts
        return Prepared(texts, self.clean, folded(seed, part) if self.shuffle else None)

    def _parts(self, found: dict[str, Texts | None], tokeniser: Tokeniser) -> dict[str, Stream]:
        varied = (
            Varied(half=self.vary_half, deviation=self.vary_deviation, shortest=self.vary_shortest)
            if self.vary
            else None
        )
        streams = {
            name: read_tokens(texts, tokeniser)[: self.limit if name == "train" else self.held_out_limit].int()
            for name, texts in found.items()
            if texts is not None
        }
        if "validation" not in streams:
            cut = len(streams["train"]) - max(1, len(streams["train"]) // 10)
            streams["train"], streams["validation"] = streams["train"][:cut], streams["train"][cut:]
        streams.setdefault("test", streams["validation"])
        for name, tokens in streams.items():
            if len(tokens) < self.length:
                raise UserError(
                    f"The {name} text has {len(tokens):,} tokens, too few for one segment of {self.length:,}: give "
                    "more text or a smaller data.length."
                )
        return {name: Stream(tokens, self.length, varied if name == "train" else None)
                for name, tokens in streams.items()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """The lines of a text, shuffled and cleaned; read anew whenever they are asked for."""

    texts: Texts
    clean: str
    seed: int | None  # of the order; None leaves it as it is

    def __iter__(self) -> Iterator[str]:
        lines: Iterable[str] = texts_of(self.texts)
        if self.clean == "wikipedia":
            lines = without_markup(lines)
        if self.seed is not None:
            together = list(lines)
            order = torch.randperm(len(together), generator=Generator().manual_seed(self.seed)).tolist()
            lines = (together[place] for place in order)
        yield from lines if self.clean == "none" else (text for line in lines if (text := letters_only(line)))
