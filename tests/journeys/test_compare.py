"""Costs of two models on the same items, paired; per byte where tokens differ."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ebar
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.evaluation.cross_entropy import cross_entropy_difference
from ebar.journeys.compare import compare
from ebar.journeys.train import Trained
from ebar.training.train import History

LINE = "the cat sat on the mat\n"


class Equal(nn.Module):
    """Every token has the same chance, so that a token costs log of their number."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.vocabulary, self.anything = vocabulary, nn.Parameter(torch.zeros(1))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.vocabulary) + 0 * self.anything


def of(model: Any, data: Corpus) -> Trained[Any]:
    return Trained(model=model, data=data, history=History())


def equal(data: Corpus) -> Trained[Any]:
    return of(ebar.wrap(Equal(data.space.vocabulary), data), data)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(LINE.replace("cat", "cat" * (number % 3)) for number in range(400)))
    return path


def test_characters_and_bytes_by_hand(text: Path) -> None:
    """11 characters cost log₂ 11 bits each, a byte costs 8: on every block, so that nothing is uncertain."""
    characters = ebar.read_text(text, tokeniser="characters", length=16)
    found = compare(equal(characters), equal(ebar.read_text(text, tokeniser="bytes", length=10)))
    assert found.unit == "bits per byte"
    assert characters.space.vocabulary == 11
    assert found.first.value == pytest.approx(math.log2(11))
    assert found.second.value == pytest.approx(8)
    assert found.difference.value == pytest.approx(math.log2(11) - 8)
    assert found.difference.high - found.difference.low < 1e-9
    assert found.better == 0
    assert "bytes of test text" in found.over


def test_pieces_cost_what_their_tokens_cost_over_the_bytes_that_they_spell(text: Path) -> None:
    """Held-out texts begin with a window of each tokeniser's own, so at different places of the file."""
    pieces = ebar.read_text(text, tokeniser="bpe", vocabulary=270, length=12)
    characters = ebar.read_text(text, tokeniser="characters", length=16)
    assert pieces.text(pieces.test)[0] != characters.text(characters.test)[0]
    found = compare(equal(pieces), equal(characters))
    assert pieces.tokeniser is not None
    whole = "".join(pieces.text(pieces.test))
    each = math.log2(pieces.space.vocabulary) * pieces.test.tokens.numel() / len(whole.encode())
    assert found.first.value == pytest.approx(each, rel=0.02)  # but for what is at the edges
    assert found.first.low < each < found.first.high
    assert found.second.value == pytest.approx(math.log2(11))
    turned = compare(equal(characters), equal(pieces))
    assert turned.difference.value == pytest.approx(-found.difference.value)


def test_the_same_tokens_are_paired_one_by_one() -> None:
    data = ebar.language(motif="11", length=5, size=40, test_size=30)
    torch.manual_seed(0)
    one, other = (ebar.lstm(data, hidden=4, layers=1, dropout=0.5) for _ in range(2))
    found = compare(of(one, data), of(other, data))
    wanted = cross_entropy_difference(one.eval(), other.eval(), data.test)
    assert found.unit == "nats per token"
    assert found.difference.value == pytest.approx(wanted.value)
    assert (found.difference.low, found.difference.high) == pytest.approx((wanted.low, wanted.high))
    same = compare(of(one, data), of(one, data))
    assert same.difference.value == 0
    assert same.better is None


def test_lines_of_other_alphabets_are_paired_by_text(tmp_path: Path) -> None:
    """A line of n symbols and its end is n + 1 bytes, and as many tokens of log 3 or log 4."""
    (tmp_path / "lines.txt").write_text("01\n110\n0\n11\n0110\n" * 6)
    path = tmp_path / "lines.txt"
    one, other = ebar.read_lines(path), ebar.read_lines(path, alphabet="012")
    found = compare(equal(one), equal(other))
    assert found.unit == "bits per byte"
    # The last place of a sequence can only hold the end, but these are shorter.
    assert found.first.value == pytest.approx(math.log2(3))
    assert found.difference.value == pytest.approx(math.log2(3) - 2)


def test_a_stream_and_windows_of_the_same_text(text: Path) -> None:
    stream, windows = ebar.read_stream(text, length=8), ebar.read_text(text, length=20)
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden": 4, "layers": 1, "heads": 2}
    found = compare(of(ebar.transformer(stream, **options), stream), equal(windows))
    assert found.unit == "nats per token"
    assert found.second.value == pytest.approx(math.log(256))


def test_different_data_are_refused_in_a_sentence(text: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("something else entirely, of about the same length " * 100)
    one = equal(ebar.read_text(text))
    with pytest.raises(UserError, match=r"different test data .*: compare runs whose test items are the same"):
        compare(one, equal(ebar.read_text(tmp_path / "other.txt", tokeniser="characters")))
    first, second = (ebar.language(motif="11", length=5, size=40, test_size=size) for size in (30, 20))
    with pytest.raises(UserError, match=r"different test data .30 items and 20."):
        compare(equal(first), equal(second))
    with pytest.raises(UserError, match=r"item \d+ is"):
        compare(equal(first), equal(ebar.language(motif="00", length=5, size=40, test_size=30)))
    with pytest.raises(UserError, match="tokens of words spell none"):
        compare(one, equal(ebar.read_text(text, tokeniser="words", length=8)))
