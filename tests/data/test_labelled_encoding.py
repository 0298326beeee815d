"""From labelled texts to tensors: special tokens, segments, cuts, windows, and characters back from places."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebar.data.built_tokeniser import Bpe, Unigram
from ebar.data.labelled import Answer, Encoding, Example, LabelledCorpus, LabelledData, Task
from ebar.data.specials import Specials, specials_of
from ebar.data.tokenisers import Alphabet, Bytes, Tokeniser, Words
from ebar.errors import UserError

LETTERS = Words(tuple("abcdefgh"))  # a is token 1, b is 2 …; unknown words are 0
SEP, CLS, PAD = 9, 10, 12


def encoding(task: Task, **options: Any) -> Encoding:
    own: dict[str, Any] = {"tokeniser": LETTERS, "specials": specials_of(LETTERS), "length": 10, **options}
    return Encoding(task=task, **own)


def rows(task: Task, *examples: Example, **options: Any) -> list[Any]:
    return encoding(task, **options).encode(examples).labelled.inputs.tokens.tolist()


def test_a_text_a_pair_and_their_segments() -> None:
    single, pair = Example("", "a b", label="x"), Example("", "a b", "c", label="y")
    found = encoding("classification", names=("x", "y")).encode([single, pair])
    assert found.characters is None
    inputs, labels, group = found.labelled
    assert inputs.tokens.tolist() == [[[1, 2, SEP, CLS, PAD, PAD]], [[1, 2, SEP, 3, SEP, CLS]]]
    assert inputs.segments.tolist() == [[[0, 0, 0, 2, 0, 0]], [[0, 0, 0, 1, 1, 2]]]
    assert inputs.lengths.tolist() == [[4], [6]]
    assert (labels.tolist(), group.tolist()) == ([0, 1], [0, 1])
    assert labels.dtype == torch.long


def test_special_tokens_are_those_that_are_given() -> None:
    found = rows("classification", Example("", "a"), specials=Specials(5, 6, 7, 8))
    assert found == [[[1, 5, 6]]]


def test_a_long_text_is_cut_from_the_right_and_of_a_pair_the_longer() -> None:
    assert rows("classification", Example("", "a b c d e"), length=5) == [[[1, 2, 3, SEP, CLS]]]
    cut = [
        rows("regression", Example("", first, second, label=1.0), length=8)[0][0]
        for first, second in [("a b c d e f g", "h"), ("a", "b c d e f g h"), ("a b c d e", "f g h a b")]
    ]
    assert cut[0] == [1, 2, 3, 4, SEP, 8, SEP, CLS]
    assert cut[1] == [1, SEP, 2, 3, 4, 5, SEP, CLS]
    assert cut[2] == [1, 2, 3, SEP, 6, 7, SEP, CLS]


@given(first=st.integers(0, 12), second=st.integers(0, 12), room=st.integers(1, 14))
def test_a_pair_is_cut_as_if_tokens_were_dropped_one_by_one_from_the_longer(first: int, second: int, room: int) -> None:
    left, right = first, second
    while left + right > room:
        left, right = (left - 1, right) if left > right else (left, right - 1)
    example = Example("", " ".join("a" * first), " ".join("b" * second), label=0.0)
    found = rows("regression", example, length=room + 3)[0][0]
    assert (found.count(1), found.count(2)) == (left, right)


def test_a_query_and_a_question_are_never_cut() -> None:
    assert rows("ranking", Example("", "a b c", "d e f g", label=1.0), length=8) == [[[1, 2, 3, SEP, 4, 5, SEP, CLS]]]
    asked = Example("", "a b c d e", "f g", options=("h", "a"), label=0)
    assert rows("choice", asked, length=8) == [[[1, 2, SEP, 6, 7, 8, SEP, CLS], [1, 2, SEP, 6, 7, 1, SEP, CLS]]]
    with pytest.raises(UserError, match=r"here: 12 tokens are more than the 6 allowed.*give a larger data.length\."):
        rows("choice", asked._replace(where="here", pair="f g h"), length=6)


def test_an_option_goes_into_the_gap_and_rows_may_have_fewer_options() -> None:
    gap = Example("", "a", "b _ c", options=("d", "e", "f"), label=2)
    plain = Example("", "a", "b", options=("d", "e"), label=1)
    found = encoding("choice").encode([gap, plain]).labelled
    assert found.inputs.tokens[0, 0].tolist() == [1, SEP, 2, 4, 3, SEP, CLS]
    assert found.inputs.lengths.tolist() == [[7, 7, 7], [6, 6, 0]]
    assert found.labels.tolist() == [2, 1]


def test_a_long_passage_is_read_in_windows_that_overlap() -> None:
    example = Example("", "a b c d e f g", "h", answers=(Answer("d e", 6),))
    found = encoding("span", length=8, stride=2).encode([example, example._replace(answers=())])
    own = found.labelled  # four places of the passage in each window
    assert own.inputs.tokens[:3, 0].tolist() == [
        [1, 2, 3, 4, SEP, 8, SEP, CLS],
        [3, 4, 5, 6, SEP, 8, SEP, CLS],
        [5, 6, 7, SEP, 8, SEP, CLS, PAD],
    ]
    assert own.labels.tolist() == [[-1, -1], [1, 2], [-1, -1]] + 3 * [[-1, -1]]
    assert own.group.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.characters is not None
    assert found.characters[2].tolist() == [[8, 9], [10, 11], [12, 13], *5 * [[-1, -1]]]


@given(tokens=st.integers(0, 30), stride=st.integers(1, 12), length=st.integers(5, 14))
def test_windows_leave_no_token_out(tokens: int, stride: int, length: int) -> None:
    passage = "x " * tokens
    found = encoding("span", length=length, stride=stride).encode([Example("", passage, "h")])
    assert found.characters is not None
    seen = {int(first) for first in found.characters[..., 0].flatten() if first >= 0}
    assert seen == set(range(0, 2 * tokens, 2))
    assert int(found.labelled.inputs.lengths.max()) <= length


TEXTS = st.text(alphabet="ab é中😀\n.", max_size=25)
PIECES = Bpe.train(["ab é中 ab a.b 中中"] * 3, 290)
TOKENISERS: list[Tokeniser] = [
    Bytes(),
    Alphabet("ab é中😀\n."),
    Alphabet("ab ", unknown=True),
    Words(("ab", "a")),
    PIECES,
]


@pytest.mark.parametrize("tokeniser", TOKENISERS, ids=lambda own: type(own).__name__)
@given(passage=TEXTS, ends=st.tuples(st.integers(0, 25), st.integers(1, 6)))
def test_the_places_of_an_answer_spell_at_least_the_answer(
    tokeniser: Tokeniser, passage: str, ends: tuple[int, int]
) -> None:
    answer = passage[ends[0] : sum(ends)]
    if not answer.strip():
        return
    gold = Answer(answer, ends[0])
    specials = specials_of(tokeniser)
    found = Encoding(task="span", tokeniser=tokeniser, specials=specials, length=200).encode(
        [Example("", passage, "b", answers=(gold,))]
    )
    corpus = LabelledCorpus(
        encoding=encoding("span"), written={"test": [Example("", passage)]}, parts={"test": found.labelled},
        characters={} if found.characters is None else {"test": found.characters},
    )  # fmt: skip
    first, last = found.labelled.labels[0].tolist()
    spelt = corpus.answer("test", 0, first, last)
    assert answer.strip() in spelt
    assert found.labelled.inputs.tokens[0, 0, : len(tokeniser.encode(passage))].tolist() == tokeniser.encode(passage)
    if not isinstance(tokeniser, Words | Bpe | Unigram):  # a token is at most a character
        assert spelt.strip() == answer.strip()
    assert first <= last


def test_no_answer_is_spelt_as_nothing() -> None:
    path_free = encoding("span").texts([("a b", "c")])
    corpus = LabelledCorpus(
        encoding=encoding("span"), written={"test": [Example("", "a b")]}, parts={"test": path_free.labelled},
        characters={} if path_free.characters is None else {"test": path_free.characters},
    )  # fmt: skip
    assert [corpus.answer("test", 0, *ends) for ends in [(0, 1), (1, 1), (-1, -1), (1, 0), (0, 2), (3, 3)]] == [
        "a b", "b", "", "", "", "",
    ]  # fmt: skip


def test_new_texts_have_no_labels() -> None:
    assert encoding("classification").texts(["a", ("b", "c")]).labelled.labels.tolist() == [-1, -1]
    assert encoding("regression").texts(["a"]).labelled.labels.isnan().all()
    assert encoding("choice").texts([("a", "b", "c", "d")]).labelled.inputs.lengths.tolist() == [[6, 6]]
    with pytest.raises(UserError, match="Text 0 has no second text"):
        encoding("span").texts(["a"])
    with pytest.raises(UserError, match="Text 0 has 1 options"):
        encoding("choice").texts([("a", "b", "c")])


def test_the_same_examples_in_the_tokens_of_another_tokeniser(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("ab cd\t1\nab\t0\n")
    data = LabelledData(train=path, validation=path, test=path)
    words = data.read()
    characters = words.with_tokeniser(Bytes())
    assert characters.vocabulary == 260
    assert characters.train.inputs.tokens[1, 0].tolist()[:4] == [97, 98, 256, 257]
    again = data.read(tokeniser=Bytes(), specials=specials_of(Bytes()))
    assert torch.equal(again.train.inputs.tokens, characters.train.inputs.tokens)
    assert again.files == characters.files != words.files
    # A run folder that holds a tokeniser is read with it.
    (tmp_path / "tokeniser.json").write_text(characters.files["tokeniser.json"])
    assert data.read(folder=tmp_path).tokeniser == Bytes()


def test_a_tokeniser_that_does_not_tell_where_its_tokens_stand() -> None:
    class Sorted:
        size = 256

        def encode(self, text: str) -> list[int]:
            return sorted(text.encode())

        def decode(self, tokens: list[int]) -> str:
            return bytes(tokens).decode()

    class Lengths(Sorted):
        def encode(self, text: str) -> list[int]:
            return [len(word) for word in text.split()]

    example = Example("here", "ba ab c", "q", answers=(Answer("b", 4),))
    with pytest.raises(UserError, match="here: Sorted does not tell where in a text its tokens stand"):
        encoding("span", tokeniser=Sorted(), length=30).encode([example])
    found = encoding("span", tokeniser=Lengths(), length=30).encode([example])
    assert found.labelled.labels.tolist() == [[1, 1]]
    assert found.characters is not None
    assert found.characters[0, 1].tolist() == [3, 5]


def test_offsets_of_a_pretrained_tokenizer_that_changes_its_text() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from ebar.data.built_tokeniser import PretrainedTokeniser

    pieces = [("<unk>", -9.0), ("▁", -2.0), ("▁the", -1.5), *((letter, -4.0) for letter in "acefhiost")]
    own = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 0))
    normal = tokenizers.normalizers
    own.normalizer = normal.Sequence([normal.NFKD(), normal.StripAccents(), normal.Lowercase()])
    own.pre_tokenizer, own.decoder = tokenizers.pre_tokenizers.Metaspace(), tokenizers.decoders.Metaspace()
    passage = "The  Café is — it"
    answer = Answer("Café", 5)
    tokeniser = PretrainedTokeniser(own.to_str())
    example = Example("", passage, "the", answers=(answer,))
    found = encoding("span", tokeniser=tokeniser, specials=specials_of(tokeniser), length=40).encode([example])
    first, last = found.labelled.labels[0].tolist()
    assert found.characters is not None
    assert passage[int(found.characters[0, first, 0]) : int(found.characters[0, last, 1])] == "Café"
