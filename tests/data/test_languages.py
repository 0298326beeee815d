import pytest
import torch

from ebar.automata.measures import kl
from ebar.data import languages
from ebar.data.languages import Language
from ebar.errors import UserError
from ebar.types import Space

MOTIF = "10001011111000"


@pytest.mark.parametrize(
    "how", [{"motif": MOTIF}, {"expression": f".*{MOTIF}.*"}, {"expression": ".*1000101{5}0{3}.*"}]
)
def test_the_documents_language_has_the_documents_entropy(how):
    pure = Language(**how, length=30).describe()
    assert pure["entropy"] == pytest.approx(13.923144, abs=5e-7)
    assert pure["entropy_per_token"] == pytest.approx(0.449134, abs=5e-7)
    assert pure["strings"] == pure["strings_present"] == 1_113_640
    assert pure["noise_presence"] == pytest.approx(1_113_640 / 2**30, rel=1e-12)
    mixed = Language(**how, length=30, presence=0.9).describe()
    assert mixed["entropy"] == pytest.approx(14.935251, abs=5e-7)
    assert mixed["entropy_per_token"] == pytest.approx(0.481782, abs=5e-7)
    assert mixed["strings"] == 2**30
    assert mixed["strings_present"] == 1_113_640
    assert mixed["presence"] == pytest.approx(0.9, abs=1e-12)
    assert mixed["noise_entropy_per_token"] == pytest.approx(0.6708, abs=5e-5)


def test_noise_alone_and_the_anti_motif_are_languages_too():
    assert Language(length=4).describe()["strings"] == 16
    anti = Language(motif="11", length=4, presence=0.0).describe()
    assert anti["strings"] == 8  # 0000 0001 0010 0100 0101 1000 1001 1010
    assert anti["presence"] == 0


def test_a_count_of_too_many_digits_to_print_is_left_out(monkeypatch):
    assert Language(length=1000).describe()["strings"] == 2**1000
    monkeypatch.setattr(languages, "DIGITS", 300)
    assert Language(length=1000).describe()["strings"] is None
    assert Language(motif="1", length=900).describe()["strings_present"] == 2**900 - 1


def test_without_an_end_token_sequences_have_their_symbols_only(generator):
    language = Language(motif="ba", alphabet="abc", length=5, end=False)
    x = language.distribution().sample(200, generator=generator)
    assert language.space == Space(3, 5)
    assert x.tokens.shape == (200, 5)
    assert language.describe()["mean_length"] == pytest.approx(5)
    assert language.condition().accepts(x).all()


def test_a_language_of_variable_length_is_conditioned_on_its_largest(generator):
    language = Language(motif="101", length=20, stop=0.1, presence=0.9)
    distribution = language.distribution()
    x, log_prob = distribution.sample_with_log_prob(4000, generator=generator)
    assert distribution.space == Space(3, 21, 2)
    assert len(set(x.lengths.tolist())) > 10
    assert int(x.lengths.max()) <= 21
    figures = language.describe()
    assert figures["presence"] == pytest.approx(0.9, abs=1e-12)
    # Five standard errors: wrong less than once in a million, for any seed.
    for draws, name in ((-log_prob, "entropy"), (x.lengths.double(), "mean_length")):
        assert abs(draws.mean().item() - (figures[name] or 0)) < 5 * draws.std().item() / 4000**0.5
    assert torch.isfinite(log_prob).all()


def test_languages_can_be_compared():
    pure = Language(motif="101", length=8).distribution()
    mixed = Language(motif="101", length=8, presence=0.9).distribution()
    assert kl(pure, mixed) == pytest.approx(0.10536051565782628, abs=1e-12)  # −log 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"motif": MOTIF, "length": 13}, "has 14 symbols and does not fit in sequences of 13"),
        ({"motif": "12"}, "'2' at position 1"),
        ({"motif": ""}, "at least one"),
        ({"motif": "1", "expression": "1"}, "not both"),
        ({"expression": "(1"}, "position 0"),
        ({"expression": "101", "length": 8}, "No sequence of 8 symbols satisfies the expression 101 .*whole"),
        ({"expression": ".*", "presence": 0.5}, "Every sequence of 30 symbols"),
        ({"motif": "1", "presence": 1.5}, "between 0 and 1"),
        ({"motif": "1", "presence": float("nan")}, "between 0 and 1"),
        ({"presence": 0.5}, "needs a motif or an expression"),
        ({"length": 0}, "at least one symbol"),
        ({"length": 10**9}, "too large"),
        ({"alphabet": "00"}, "different characters"),
        ({"alphabet": ""}, "different characters"),
        ({"stop": 0.0}, "probability to stop"),
        ({"stop": 0.5, "end": False}, "need an end token"),
    ],
)
def test_a_language_that_cannot_be_is_refused_in_one_sentence(options, message):
    with pytest.raises(UserError, match=message):
        Language(**options).describe()
