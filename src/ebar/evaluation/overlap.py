"""ROUGE and METEOR: other ways of counting what a hypothesis and its reference share."""

import re
from collections.abc import Sequence
from typing import Any

import torch

from ebar.errors import UserError
from ebar.estimators.moments import weighted_mean
from ebar.evaluation.translation import check_pairs
from ebar.types import Estimate

WORD = re.compile(r"\w+|[^\w\s]")


def rouge(
    hypotheses: Sequence[str], references: Sequence[str], *, stemmer: bool = False, level: float = 0.95
) -> dict[str, Estimate]:
    """F-measures of shared unigrams, bigrams and the longest common subsequence, 0 to 100; means over sentences.

    Lin 2004, as rouge-score counts them: lower case, letters and digits only.
    """
    check_pairs(hypotheses, references)
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError("ROUGE needs rouge-score: install it with `pip install 'ebar[metrics]'`.") from None
    names = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
    scorer = RougeScorer(list(names), use_stemmer=stemmer)
    scores = [scorer.score(reference, own) for own, reference in zip(hypotheses, references, strict=True)]
    return {
        shown: _mean([100 * score[name].fmeasure for score in scores], shown, level) for name, shown in names.items()
    }


def meteor(hypotheses: Sequence[str], references: Sequence[str], *, level: float = 0.95) -> Estimate:
    """METEOR, 0 to 100, the mean over sentences, as NLTK computes it (Lavie & Agarwal 2007; α .9, β 3, γ .5).

    Words and single punctuation marks, in lower case, match as they are, by Porter stem or by a shared meaning in
    WordNet, which speaks English only. NLTK looks up stems there, so it misses synonyms whose stem is no word.
    """
    check_pairs(hypotheses, references)
    score = _meteor_score()
    found = [
        100 * float(score(WORD.findall(reference), WORD.findall(own)))
        for own, reference in zip(hypotheses, references, strict=True)
    ]
    return _mean(found, "METEOR", level)


def _meteor_score() -> Any:
    try:
        from nltk.corpus import wordnet
        from nltk.translate.meteor_score import single_meteor_score
    except ImportError:
        raise UserError("METEOR needs nltk: install it with `pip install 'ebar[metrics]'`.") from None
    try:
        # Without WordNet it would answer where all words match, and fail elsewhere: better not to begin.
        wordnet.synsets("word")
    except (LookupError, OSError, ValueError, AttributeError):
        raise UserError(
            "METEOR needs WordNet, which is not installed: run `python -m nltk.downloader wordnet`, or unpack it as "
            "corpora/wordnet in a folder that NLTK_DATA names."
        ) from None
    return single_meteor_score


def _mean(values: list[float], name: str, level: float) -> Estimate:
    column = torch.tensor(values, dtype=torch.float64)[None]
    found = weighted_mean(torch.zeros_like(column), column, name=name, level=level)[0]
    return found._replace(low=max(0.0, found.low), high=min(100.0, found.high))
