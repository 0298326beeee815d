"""Text to pretrain on: columns of inputs [reuse | A SEP B SEP CLS], some tokens of which are predicted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from ebar.bounds import Count, Natural
from ebar.data.built_tokeniser import Tokenised, build_tokeniser
from ebar.data.corpus import Corpus
from ebar.data.pretraining_inputs import Form, Predict, PretrainingPart, PretrainingText
from ebar.data.prose import documents, sentences
from ebar.data.specials import specials_of, vocabulary_with_specials
from ebar.data.text import AT_ONCE, Texts, TextSource, texts_of, windowed
from ebar.data.tokenisers import Spells, Tokeniser, encode_lines
from ebar.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PretrainingData(TextSource, Tokenised):
    """Text in columns of inputs [reuse | A SEP B SEP CLS] whose tokens are predicted in any order, as XLNet's are."""

    more: tuple[Path, ...] = ()
    """More training texts, read after `train`."""
    tokeniser: str = "unigram"
    """What a token is: bytes, characters, words, bpe, unigram (or another entry of TOKENISERS)."""
    length: Count = 128
    """Tokens in an input, special ones counted; `training.batch_size` columns are read side by side."""
    reuse: Natural = 64
    """How many of them a column goes on by, and its memory holds; the rest are the texts A and B."""
    predict: Predict = "permutation"
    """In an order drawn at random; or all tokens replaced by a mask at once, as BERT; or each from those left of it."""
    partial: Count = 6
    """Of how many tokens one is predicted (K); from left to right all are."""
    spans: bool = True
    """Predict spans of 1 to 5 tokens from the beginning of a word on; otherwise single tokens."""
    block: Count | None = None
    """Shuffle blocks of so many places alike, and let them follow one another; by default a whole part is shuffled."""
    bidirectional: bool = True
    """Read half of the columns from right to left, in each epoch the other half."""
    clean: bool = False
    """The text is in WikiText's form: undo its spellings (@-@, <unk>, = Heading =), begin documents at titles."""
    limit: Count | None = None
    """Most tokens of the training text, from its beginning on; by default all."""
    held_out_limit: Count | None = None
    """Most tokens of the validation text and of the test text; by default all."""

    kind = "pretraining"
    defaults = {**Tokenised.defaults, "softmax": {"tied": True}}  # noqa: RUF012 — read, never written

    @property
    def form(self) -> Form:
        """What inputs look like."""
        return Form(
            length=self.length, reuse=self.reuse, predict=self.predict, partial=self.partial, spans=self.spans,
            block=self.block, bidirectional=self.bidirectional,
        )  # fmt: skip

    def read(self, *, seed: int = 0, maximal_length: int | None = None, folder: Path | None = None) -> Corpus:
        """A tokeniser that `folder` holds is read from there; the text is read when a part of it is asked for.

        So a pretrained model is loaded at once, and where its text is not.
        """
        if maximal_length is not None:
            raise UserError("Inputs of pretraining have data.length tokens: leave out training.maximal_length.")
        if self.cache is not None:
            raise UserError("Text to pretrain on is read into memory as a whole: leave out data.cache.")
        form = self.form
        tokeniser = build_tokeniser(self, lambda: (line for line, _ in self._lines("train")), folder)
        texts = cache(lambda: self._texts(tokeniser, form))
        parts = {part: PretrainingPart(part, texts) for part in ("train", "validation", "test")}
        return windowed(self, tokeniser, parts, vocabulary=vocabulary_with_specials(tokeniser))

    def _lines(self, part: str) -> Iterator[tuple[str, bool]]:
        found: list[Texts | None] = [self.texts(part), *(self.more if part == "train" else ())]
        return chain.from_iterable(
            documents(texts_of(texts), wikitext=self.clean) for texts in found if texts is not None
        )

    def _texts(self, tokeniser: Tokeniser, form: Form) -> dict[str, PretrainingText]:
        found = {
            part: read_pretraining_text(
                self._lines(part), tokeniser, form, self.limit if part == "train" else self.held_out_limit
            )
            for part in ("train", "validation", "test")
            if self.texts(part) is not None
        }
        if "validation" not in found:
            total = len(found["train"].tokens)
            cut = total - max(1, total // 10)
            found["validation"] = found["train"].part(cut, total).up_to(self.held_out_limit)
            found["train"] = found["train"].part(0, cut)
        found.setdefault("test", found["validation"])
        for name, text in found.items():
            if text.inputs(1) == 0:
                raise UserError(
                    f"The {name} text has {len(text.tokens):,} tokens, too few for one input of {self.length:,}: give "
                    "more text or a smaller data.length."
                )
        return found


def read_pretraining_text(
    lines: Iterable[tuple[str, bool]], tokeniser: Tokeniser, form: Form, limit: int | None = None
) -> PretrainingText:
    """Lines as one text, block by block; line breaks are left out, and each line begins a sentence and a word.

    Each line comes with whether it begins a document.
    """
    starts = word_starts(tokeniser)
    tokens, words, begun, titles = [], [], [], []
    rest, number, total = iter(lines), 1, 0
    while (limit is None or total < limit) and (together := list(islice(rest, AT_ONCE))):
        cut = [sentences(line) for line, _ in together]
        flat = encode_lines(tokeniser, [one for line in cut for one in line], number, lambda n: f"Sentence {n}")
        sizes = np.array([len(one) for one in flat])
        places = total + np.cumsum(sizes) - sizes
        of_line = np.cumsum([0, *(len(line) for line in cut[:-1])])  # the first sentence of each
        block = np.fromiter(chain.from_iterable(flat), np.int32, count=int(sizes.sum()))
        first = places[of_line] - total
        word = starts[block]
        word[first[first < len(block)]] = True
        tokens.append(block)
        words.append(word)
        begun.append(places[sizes > 0])
        titles.append(places[of_line][[begins for _, begins in together]])
        number, total = number + len(flat), total + len(block)
    empty = np.zeros(0, np.int64)
    text = PretrainingText(
        tokens=np.concatenate([np.zeros(0, np.int32), *tokens]),
        words=np.concatenate([np.zeros(0, bool), *words]),
        sentences=np.unique(np.concatenate([empty, *begun])),
        documents=np.unique(np.concatenate([empty, *titles])),
        specials=specials_of(tokeniser),
        size=tokeniser.size,
        form=form,
    )
    return text.up_to(limit)


def word_starts(tokeniser: Tokeniser) -> Bool[np.ndarray, " tokens"]:
    """Which tokens begin a word wherever they stand: those that begin with a blank, and punctuation.

    Where tokens are no pieces of words, all of them do.
    """
    if not isinstance(tokeniser, Spells):
        return np.ones(tokeniser.size, bool)
    return np.array([spelling is not None and not _goes_on(spelling) for spelling in tokeniser.spellings()])


def _goes_on(spelling: bytes) -> bool:
    """A letter, a digit, or a part of a character outside ASCII."""
    first = spelling[:1]
    return first.isalnum() or first >= b"\x80"
