"""Inputs of pretraining: by hand on a text of known sentences, and what holds for every input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebar.data import DATA, read_pretraining
from ebar.data.pretraining import PretrainingData, read_pretraining_text, word_starts
from ebar.data.pretraining_inputs import Form, Pairs, PretrainingText, compose, read_inputs, trimmed
from ebar.data.specials import Specials
from ebar.data.tokenisers import Alphabet, Bytes, Words
from ebar.errors import UserError

SPECIALS = Specials(separator=1000, classification=1001, mask=1002, padding=1003)


def text(tokens: int = 60, sentence: int = 4, form: Form | None = None, documents: Any = (0,)) -> PretrainingText:
    """Tokens 0, 1, 2 …, a sentence at every fourth, each token a word."""
    return PretrainingText(
        tokens=np.arange(tokens, dtype=np.int32),
        words=np.ones(tokens, bool),
        sentences=np.arange(0, tokens, sentence),
        documents=np.array(documents),
        specials=SPECIALS,
        size=tokens,
        form=form or Form(length=17, reuse=4),
    )


def coins(*values: float) -> np.ndarray:
    return np.array([values], dtype=float)


def row(pairs: Pairs) -> list[int]:
    return [int(token) for token in pairs.tokens[0]]


def test_a_pair_that_follows_by_hand():
    """One column, reuse 4, room for 10. Cuts lie at 8 and 12; the second is drawn. So A = 4 … 11 and B = 12 … 15, of
    which A, the longer, loses two."""
    pairs = compose(text(), np.array([0]), 1, 0, coins(0.7, 0.2, 0.0))
    assert row(pairs) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1000, 12, 13, 14, 15, 1000, 1001]
    assert pairs.segments[0].tolist() == [0] * 11 + [1] * 5 + [2]
    assert pairs.follows.tolist() == [True]
    assert pairs.begins.tolist() == [True]
    assert not pairs.words[0, [10, 15, 16]].any()


def test_a_pair_drawn_at_random_by_hand():
    """A = 4 … 7 (the first cut), B from the sentence that holds place 34 + 0.5·(60 − 10 − 34) = 42, which begins at 40.

    Two inputs of 17 tokens, up to place 34, are too near, and so are the last 10, the length of a pair.
    """
    pairs = compose(text(), np.array([0]), 1, 0, coins(0.3, 0.9, 0.5))
    assert row(pairs) == [0, 1, 2, 3, 4, 5, 6, 7, 1000, 40, 41, 42, 43, 44, 45, 1000, 1001]
    assert pairs.follows.tolist() == [False]


def test_a_random_b_is_no_copy_of_what_stands_near():
    """Of a text of 600 tokens in 3 columns: nothing of the reused part or of A comes again, wherever the coin falls."""
    for number in range(40):
        for share in (0.0, 0.3, 0.6, 0.999):
            pairs = compose(text(600), np.arange(3), 3, number, np.tile([0.3, 0.9, share], (3, 1)))
            for tokens in pairs.tokens:
                plain = [token for token in tokens.tolist() if token < 1000]
                assert len(set(plain)) == len(plain)


def test_without_a_sentence_to_cut_at_b_is_random_and_the_longer_loses():
    """One sentence of 30: A could have 26 tokens and B, drawn at place 34 + 14, those from 34 on."""
    pairs = compose(text(sentence=30), np.array([0]), 1, 0, coins(0.9, 0.1, 0.9))
    assert row(pairs) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 1000, 34, 35, 36, 37, 38, 1000, 1001]
    assert pairs.follows.tolist() == [False]


def test_columns_go_on_by_what_is_reused():
    for number in range(text().inputs(2)):
        pairs = compose(text(), np.array([0, 1]), 2, number, np.zeros((2, 3)))
        assert pairs.tokens[:, :4].tolist() == [
            [*range(4 * number, 4 * number + 4)], [*range(30 + 4 * number, 34 + 4 * number)],
        ]  # fmt: skip
    assert text().inputs(2) == (30 - 17) // 4 + 1 == 4
    assert text(form=Form(length=17, reuse=0)).inputs(2) == (30 - 17) // 14 + 1 == 1


def test_memory_is_of_the_same_document():
    """Documents at 0, 6 and 8: the inputs begin at 0, 4, 8, 12, so that those at 8 begin anew, and no other."""
    found = [
        compose(text(documents=(0, 6, 8)), np.array([0]), 1, number, coins(0, 0, 0)).begins.tolist()
        for number in range(4)
    ]
    assert found == [[True], [False], [True], [False]]


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_the_longer_is_cut_first(a, b, data):
    total = data.draw(st.integers(2, a + b)) if a + b > 2 else 2
    left, right = a, b
    while left + right > total:
        if left > right:
            left -= 1
        else:
            right -= 1
    assert trimmed(np.array([a]), np.array([b]), total).tolist() == [left]


def test_read_backwards_what_ends_begins():
    forth = PretrainingText(
        tokens=np.arange(7, dtype=np.int32), words=np.array([True, False] * 3 + [True]), sentences=np.array([0, 2, 5]),
        documents=np.array([0, 5]), specials=SPECIALS, size=7, form=Form(length=17, reuse=4),
    )  # fmt: skip
    back = forth.backwards()
    assert back.tokens.tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert back.sentences.tolist() == [0, 2, 5]  # 6 5 | 4 3 2 | 1 0
    assert back.documents.tolist() == [0, 2]
    again = back.backwards()
    assert again.tokens.tolist() == forth.tokens.tolist()
    assert again.sentences.tolist() == forth.sentences.tolist()


FORMS = st.builds(
    lambda half, extra, **rest: Form(length=2 * half + 3 + extra, reuse=half, **rest),
    half=st.integers(0, 12), extra=st.integers(2, 9),
    predict=st.sampled_from(["permutation", "denoising", "left_to_right"]),
    partial=st.integers(1, 9), spans=st.booleans(), block=st.sampled_from([None, 1, 3, 8]), bidirectional=st.booleans(),
)  # fmt: skip


@given(FORMS, st.integers(0, 2**40), st.integers(1, 9), st.integers(1, 5), st.lists(st.integers(0, 299), max_size=4))
@settings(max_examples=200)
def test_every_input(form, seed, sentence, columns, some):
    """The first input, the last and some between them: what holds of one is independent of the others."""
    whole = text(300, sentence, form)
    back, last = whole.backwards(), whole.inputs(columns) - 1
    for number in {0, last, *(one % (last + 1) for one in some)}:
        batch = read_inputs(whole, back, columns, number, seed=seed, epoch=seed % 3)
        again = read_inputs(whole, back, columns, number, seed=seed, epoch=seed % 3)
        assert all(torch.equal(one, other) for one, other in zip(batch, again, strict=True))
        for one in range(columns):
            check_row(form, whole, columns, number, {name: value[one] for name, value in batch._asdict().items()})


def check_row(form: Form, whole: PretrainingText, columns: int, number: int, one: dict[str, Any]) -> None:
    tokens, targets, labels = one["tokens"].clone(), one["targets"], one["labels"]
    assert len(targets) == len(set(targets.tolist()))
    tokens[targets] = labels  # what was there before any corruption
    if form.predict != "denoising":
        assert torch.equal(tokens, one["tokens"])
    special = tokens >= 1000
    reuse, length = form.reuse, form.length
    # [reuse | A SEP B SEP CLS]
    assert tokens[-2:].tolist() == [1000, 1001]
    assert special[reuse:].sum() == 3
    assert not special[:reuse].any()
    first = reuse + int(special[reuse:].nonzero()[0])
    assert one["segments"].tolist() == [0] * (first + 1) + [1] * (length - first - 2) + [2]
    step = -1 if one["backwards"] else 1
    each, column = len(whole.tokens) // columns, int(one["column"])
    begin = (
        len(whole.tokens) - 1 - (columns - 1 - column) * each - number * form.advance
        if one["backwards"]
        else column * each + number * form.advance
    )
    assert tokens[:first].tolist() == [begin + step * place for place in range(first)]
    b = tokens[first + 1 : -2]
    assert len(b) >= 1
    assert first > reuse
    assert b.tolist() == [int(b[0]) + step * place for place in range(len(b))]
    if one["follows"]:
        assert form.pair == first - reuse + len(b)
    assert not special[targets].any()
    hidden = one["hidden_from"]
    assert hidden[:reuse, reuse:].all()  # the reused part never sees the pair
    if form.predict == "left_to_right":
        assert len(targets) == length - 3
        assert torch.equal(~hidden, torch.ones_like(hidden).tril(-1))
        return
    assert not hidden[reuse:, :reuse].any()  # the pair sees all of the reused part
    assert len(targets) == max(1, length // form.partial) or form.partial < 6  # specials are never predicted
    if form.predict == "permutation":
        assert hidden[targets, targets].all()
        others = [place for place in range(length) if place not in set(targets.tolist()) and not special[place]]
        assert not hidden[reuse:][:, others].any()
    else:
        assert not hidden[reuse:].any()


def test_epochs_and_batches_and_columns_differ():
    whole = text(4000, 5, Form(length=64, reuse=32))
    back = whole.backwards()

    def made(number: int, **given: int) -> Any:
        return read_inputs(whole, back, 4, number, **{"seed": 0, "epoch": 0, **given})

    assert made(0).backwards.tolist() == [False, True, False, True]
    assert made(0, epoch=1).backwards.tolist() == [True, False, True, False]
    assert not torch.equal(made(0).targets, made(0, epoch=2).targets)
    assert not torch.equal(made(0).targets, made(0, seed=1).targets)
    assert not torch.equal(made(0).targets, made(1).targets)
    assert len({tuple(targets) for targets in made(3).targets.tolist()}) == 4
    followed = torch.stack([made(number).follows for number in range(20)])
    assert 20 < followed.sum() < 60  # of 80, each with chance ½: a false alarm in 100,000


def test_words_begin_with_a_blank_or_punctuation():
    starts = word_starts(Bytes())
    assert [starts[byte] for byte in b" .aZ7\n"] == [True, True, False, False, False, True]
    assert not starts[0xC3]
    assert word_starts(Words(("a", "b"))).all()


def test_lines_become_tokens_sentences_and_documents():
    lines = [("ab. Cd", True), ("e", False), ("fg", True)]
    found = read_pretraining_text(lines, Alphabet("abcdefgC. "), Form(length=17, reuse=4))
    assert Alphabet("abcdefgC. ").decode(found.tokens.tolist()) == "ab. Cdefg"
    assert found.sentences.tolist() == [0, 3, 6, 7]
    assert found.documents.tolist() == [0, 7]
    assert found.words.tolist() == [True, False, True, True, False, False, True, True, False]  # " Cd" from its blank
    assert found.up_to(7).sentences.tolist() == [0, 3, 6]
    assert found.part(6, 9).sentences.tolist() == [0, 1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    lines = (f"Line {number} has some words . It ends ." for number in range(60))
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_corpus_of_files(path):
    corpus: Any = read_pretraining(path, path, tokeniser="bytes", length=32, reuse=16, clean=True)
    assert corpus.space.vocabulary == 260
    assert corpus.space.length == 32
    sizes = {name: len(part.text.tokens) for name, part in corpus.parts.items()}
    each = sum(len(line) for line in path.read_text().splitlines())
    assert sizes == {"train": 2 * each - 2 * each // 10, "validation": 2 * each // 10, "test": 2 * each // 10}
    assert corpus.train.tokens.shape == (len(corpus.parts["train"]), 32)
    assert corpus.tokeniser.decode(corpus.train.tokens[0].tolist()) == "Line 0 has some words . It ends "
    assert corpus.origin["kind"] == "pretraining"
    assert isinstance(DATA.make("pretraining", {"train": path}), PretrainingData)


def test_the_text_is_not_read_until_it_is_asked_for(path, tmp_path):
    made = read_pretraining(path, tokeniser="bytes", length=32, reuse=16)
    path.unlink()
    with pytest.raises(UserError, match="There is no file"):
        len(made.parts["train"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 10, "reuse": 6}, "no room for two texts and 3 special tokens"),
        ({"length": 40, "reuse": 21}, "at most half can be reused, not 21"),
        ({"length": 100_000, "reuse": 10}, r"The train text has .* too few for one input of 100,000"),
        ({"cache": "x"}, "leave out data.cache"),
    ],
)
def test_what_cannot_be_is_one_sentence(options, message, path):
    with pytest.raises(UserError, match=message):
        len(read_pretraining(path, tokeniser="bytes", **options).parts["train"])


def test_spans_begin_at_words_in_both_directions():
    """Words of four tokens: as the text stands, nine of ten runs of targets begin one (single ones left over may not).

    Half of 50 columns run backwards.
    """
    whole = text(20_000, 30, Form(length=203, reuse=100, partial=10))
    whole = replace(whole, words=np.arange(20_000) % 4 == 0)
    batch = read_inputs(whole, whole.backwards(), 50, 0, seed=1, epoch=0)
    for direction in (False, True):
        runs: list[int] = []
        for labels in batch.labels[batch.backwards == direction].tolist():
            found = sorted(set(labels))
            runs += [one for one in found if one - 1 not in found and one + 1 in found]  # of two tokens or more
        assert len(runs) > 50
        assert np.mean([one % 4 == 0 for one in runs]) > 0.9
