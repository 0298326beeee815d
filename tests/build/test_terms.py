import pytest
import torch

from ebar.build.terms import read_feature, terms_of
from ebar.data.languages import Language
from ebar.data.tokenisers import Alphabet, reading_of_space
from ebar.errors import UserError
from ebar.evaluation.moments import true_moments
from ebar.features.feature import Features, bind

MOTIF = "10001011111000"


def test_the_seven_features_of_the_documents_motif_by_hand():
    assert terms_of(MOTIF, "1111111") == [
        "!motif:10001011111000",
        "!motif:100010111110000",
        "!motif:1000101",
        "!starts_with:1",
        "!motif:10101101011010",
        "!motif:1001001100100110",
        "!motif:0011001",
    ]


def test_a_bit_chooses_its_feature():
    assert terms_of("101", "0001000") == ["!starts_with:1"]
    assert terms_of(MOTIF, "1001111") == [terms_of(MOTIF, "1111111")[place] for place in (0, 3, 4, 5, 6)]


def test_their_means_on_the_motifs_strings_are_those_of_the_authors_code():
    language = Language(motif=MOTIF, length=30)
    terms = terms_of(MOTIF, "1111111")
    features = Features([bind(read_feature(term), reading_of_space(Alphabet("01"), language.space)) for term in terms])
    means = list(true_moments(language.distribution(), features).values())
    expected = torch.tensor([0.0, 0.52921, 0.0, 0.47061, 0.999885, 0.999987, 0.91106])
    torch.testing.assert_close(torch.tensor(means), expected, atol=6e-6, rtol=0)


@pytest.mark.parametrize("bits", ["", "0000000", "111111", "11111112", "111111x"])
def test_anything_but_seven_bits_is_refused(bits):
    with pytest.raises(UserError, match="one for each"):
        terms_of(MOTIF, bits)


def test_a_motif_over_another_alphabet_is_refused():
    with pytest.raises(UserError, match="give features instead"):
        terms_of("abc", "1000000")
