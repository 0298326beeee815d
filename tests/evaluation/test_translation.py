"""BLEU is sacreBLEU's; intervals resample sentences; ROUGE and METEOR agree with hand counts."""

import math
import os
from pathlib import Path

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.translation import (
    bleu,
    bleu_by_length,
    bleu_counts,
    bleu_difference,
    bleu_of_counts,
    meteor,
    resampled_sums,
    rouge,
)

sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra metrics")

HYPOTHESES = ["the cat sat on the mat", "a dog", "hello there my old friend of mine", "nothing alike", ""]
REFERENCES = ["the cat is on the mat", "a dog barks", "hello my old friend of mine", "quite another thing", "gone"]


def random_sentences(number: int, generator: Generator) -> tuple[list[str], list[str]]:
    """References of 3 to 14 words out of nine, and hypotheses that get about three words in four right."""
    hypotheses, references = [], []
    for _ in range(number):
        length = int(torch.randint(3, 15, (), generator=generator))
        words = torch.randint(0, 9, (length,), generator=generator)
        other = torch.randint(0, 9, (length,), generator=generator)
        kept = torch.rand(length, generator=generator) < 0.75
        references.append(" ".join(f"w{word}" for word in words.tolist()))
        hypotheses.append(" ".join(f"w{word}" for word in torch.where(kept, words, other).tolist()))
    return hypotheses, references


def test_by_hand() -> None:
    # 6 words against 6: 5 unigrams of 6 match, 3 bigrams of 5, 1 trigram of 4, no 4-gram of 3 (smoothed to ½).
    score, signature = bleu(["the cat sat on the mat"], ["the cat is on the mat"])
    assert bleu_counts(HYPOTHESES[:1], REFERENCES[:1]).tolist() == [[6, 6, 5, 3, 1, 0, 6, 5, 4, 3]]
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25)
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    # One word short: the brevity penalty is exp(1 − 6/5).
    score, _ = bleu(["the cat is on the"], ["the cat is on the mat"])
    assert score.value == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_the_score_is_sacrebleus(generator: Generator) -> None:
    for number in (1, 3, 40):
        hypotheses, references = random_sentences(number, generator)
        for some in (hypotheses, [text[: len(text) // 2] for text in hypotheses], HYPOTHESES[:1] * number):
            found = bleu(some, references)
            assert found.score.value == pytest.approx(sacrebleu.corpus_bleu(some, [references]).score, abs=1e-9)
    everything = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True, tokenize="char")
    found = bleu([text.upper() for text in HYPOTHESES], REFERENCES, lowercase=True, tokenise="char")
    assert found.score.value == pytest.approx(everything.score)
    assert "case:lc" in found.signature
    assert "tok:char" in found.signature


def test_sums_of_counts_are_enough(generator: Generator) -> None:
    hypotheses, references = random_sentences(30, generator)
    counts = bleu_counts(hypotheses, references)
    rows = torch.tensor([3, 3, 7, 20])
    again = sacrebleu.corpus_bleu([hypotheses[row] for row in rows], [[references[row] for row in rows]])
    assert float(bleu_of_counts(counts[rows].sum(0))) == pytest.approx(again.score)


def test_the_interval_is_that_of_resampled_sentences(generator: Generator) -> None:
    hypotheses, references = random_sentences(200, generator)
    score, _ = bleu(hypotheses, references, resamples=400)
    assert score.low < score.value < score.high
    assert score.warning is None
    sums = resampled_sums(bleu_counts(hypotheses, references), 400, 0)
    drawn = bleu_of_counts(sums).sort().values
    assert float(drawn[9]) <= score.low <= float(drawn[11])
    assert float(drawn[388]) <= score.high <= float(drawn[390])
    assert bleu(hypotheses, references, resamples=400) == bleu(hypotheses, references, resamples=400)
    assert "few for an interval" in str(bleu(HYPOTHESES, REFERENCES).score.warning)


def test_differences_are_paired(generator: Generator) -> None:
    hypotheses, references = random_sentences(200, generator)
    nothing = bleu_difference(hypotheses, hypotheses, references, resamples=50)
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 0.0)
    # Where few sentences differ, the paired interval is far narrower than either score's own.
    others = [references[row] if row < 20 else text for row, text in enumerate(hypotheses)]
    better = bleu_difference(others, hypotheses, references, resamples=400)
    own = bleu(hypotheses, references, resamples=400).score
    assert 0 < better.low < better.value < better.high
    assert better.value == pytest.approx(bleu(others, references, resamples=2).score.value - own.value)
    assert better.high - better.low < 0.8 * (own.high - own.low)


def test_by_length(generator: Generator) -> None:
    hypotheses, references = random_sentences(150, generator)
    found = bleu_by_length(hypotheses, references, resamples=20)
    assert [bin.name for bin in found] == ["[0, 6)", "[6, 10)", "[10, ∞)"]
    assert sum(bin.sentences for bin in found) == 150
    for bin, (low, high) in zip(found, [(0, 6), (6, 10), (10, 99)], strict=True):
        rows = [row for row, text in enumerate(references) if low <= len(text.split()) < high]
        expected = sacrebleu.corpus_bleu([hypotheses[row] for row in rows], [[references[row] for row in rows]])
        assert bin.sentences == len(rows)
        assert bin.score is not None
        assert bin.score.value == pytest.approx(expected.score)
    empty = bleu_by_length(hypotheses, references, edges=[25, 50], resamples=20)
    assert [(bin.sentences, bin.score is None) for bin in empty] == [(150, False), (0, True), (0, True)]
    with pytest.raises(UserError, match="must rise"):
        bleu_by_length(hypotheses, references, edges=[10, 6])


def test_what_does_not_pair_up_is_refused() -> None:
    for score in (bleu, rouge, meteor):
        with pytest.raises(UserError, match="go in pairs"):
            score(["a"], ["a", "b"])
        with pytest.raises(UserError, match="go in pairs"):
            score([], [])


def test_rouge_by_hand() -> None:
    pytest.importorskip("rouge_score", reason="needs the extra metrics")
    # 5 of 6 unigrams, 3 of 5 bigrams, "the cat on the mat" of 6; and a hypothesis with 2 of 3 words.
    found = rouge(["the cat sat on the mat", "a dog"], ["the cat is on the mat", "a dog barks"])
    f_measure = 2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3)
    assert found["ROUGE-1"].value == pytest.approx(100 * (5 / 6 + f_measure) / 2)
    assert found["ROUGE-2"].value == pytest.approx(100 * (3 / 5 + 2 * 1 * 0.5 / 1.5) / 2)
    assert found["ROUGE-L"].value == pytest.approx(100 * (5 / 6 + f_measure) / 2)


def test_meteor_without_wordnet_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nltk = pytest.importorskip("nltk", reason="needs the extra metrics")
    from nltk.corpus import wordnet

    if "WordNetCorpusReader" in type(wordnet).__name__:
        pytest.skip("WordNet has been loaded already")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(UserError, match=r"METEOR needs WordNet.*NLTK_DATA"):
        meteor(["the same"], ["the same"])


def test_meteor_by_hand() -> None:
    pytest.importorskip("nltk", reason="needs the extra metrics")
    folders = [Path(folder) for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    if not any((folder / "corpora" / "wordnet").exists() for folder in folders):
        pytest.skip("needs WordNet in a folder that NLTK_DATA names")
    # Six words in one chunk: the penalty is ½·(1/6)³.
    assert meteor(["The cat sat on the mat"], ["the cat sat on the mat"]).value == pytest.approx(100 * (1 - 0.5 / 216))
    # "cats" matches "cat" by stem: 2 matches of 2, one chunk.
    assert meteor(["cats sleep"], ["cat sleep"]).value == pytest.approx(100 * (1 - 0.5 / 8))
    # One word of three on either side: F = 1/3, penalty ½.
    assert meteor(["a b c"], ["a x y"]).value == pytest.approx(100 / 6)
