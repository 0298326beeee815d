"""Numbers of the special tokens: after a tokeniser of ours, a pretrained one's own."""

import pytest

from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.specials import NAMES, Specials, specials_of, vocabulary_with_specials
from ebar.data.tokenisers import Alphabet, Bytes

tokenizers = pytest.importorskip("tokenizers")


def test_they_come_after_the_last_token_of_our_own():
    assert specials_of(Alphabet("abc")) == Specials(separator=3, classification=4, mask=5, padding=6)
    assert vocabulary_with_specials(Alphabet("abc")) == 7
    assert vocabulary_with_specials(Bytes()) == 260


def pretrained(special):
    words = {"a": 0, "b": 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    tokenizer.add_special_tokens(list(special))
    return PretrainedTokeniser(tokenizer.to_str())


@pytest.mark.parametrize("names", NAMES)
def test_a_pretrained_tokenizer_has_its_own(names):
    separator, classification, mask, padding = names
    tokeniser = pretrained([padding, mask, classification, separator])
    assert specials_of(tokeniser) == Specials(separator=5, classification=4, mask=3, padding=2)
    assert vocabulary_with_specials(tokeniser) == tokeniser.size == 6


def test_one_that_lacks_some_gets_four_new_ones():
    tokeniser = pretrained(["<sep>", "<cls>", "<mask>"])
    assert tokeniser.size == 5
    assert specials_of(tokeniser) == Specials(5, 6, 7, 8)
    assert vocabulary_with_specials(tokeniser) == 9
