"""Answers in a passage against gold ones: exact match and F1 as SQuAD counts them, with unanswerable questions."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from ebar.errors import UserError
from ebar.evaluation.means import plain_mean, plain_share
from ebar.types import Estimate

ARTICLE = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised_answer(text: str) -> str:
    """Lower case, without punctuation and articles, words with single blanks between them (Rajpurkar et al. 2016)."""
    return " ".join(ARTICLE.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def matches(predicted: str, gold: Sequence[str]) -> float:
    """1 where the prediction is one of the gold answers, both normalised; no gold answers: where it is empty."""
    own = normalised_answer(predicted)
    return float(any(own == normalised_answer(answer) for answer in gold or [""]))


def overlap(predicted: str, gold: Sequence[str]) -> float:
    """F1 of the words shared with a gold answer, each as often as it occurs in both; the best of the gold answers.

    Where one of the two has no word left, as the answer to an unanswerable question has not, 1 if both have none,
    else 0 (Rajpurkar et al. 2018).
    """
    return max(_f1(normalised_answer(predicted).split(), normalised_answer(answer).split()) for answer in gold or [""])


def _f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    return 2 * (Counter(predicted) & Counter(gold)).total() / (len(predicted) + len(gold))


def exact_match(predicted: Sequence[str], gold: Sequence[Sequence[str]], *, level: float = 0.95) -> Estimate:
    """The share of questions answered exactly, between 0 and 1.

    `gold` has all right answers of each question, none where the passage has no answer; "" predicts that it has none.
    Wilson's interval over questions, taken to be independent.
    """
    _check(predicted, gold)
    right = sum(matches(own, answers) for own, answers in zip(predicted, gold, strict=True))
    return plain_share(right, float(len(gold)), level=level)


def answer_f1(predicted: Sequence[str], gold: Sequence[Sequence[str]], *, level: float = 0.95) -> Estimate:
    """The mean over questions of F1 with the best gold answer, between 0 and 1; the jackknife's interval."""
    _check(predicted, gold)
    scores = [overlap(own, answers) for own, answers in zip(predicted, gold, strict=True)]
    return plain_mean(scores, low=0.0, high=1.0, name="F1", level=level)


def answer_scores(
    predicted: Sequence[str], gold: Sequence[Sequence[str]], *, level: float = 0.95
) -> dict[str, Estimate]:
    """Exact match and F1, of all questions and, where some are unanswerable, of those with and without an answer."""
    _check(predicted, gold)
    found = {"exact_match": exact_match(predicted, gold, level=level), "f1": answer_f1(predicted, gold, level=level)}
    answerable = [place for place, answers in enumerate(gold) if answers]
    others = [place for place, answers in enumerate(gold) if not answers]
    for name, places in (("answerable", answerable), ("unanswerable", others)) if answerable and others else ():
        own, truth = [predicted[place] for place in places], [gold[place] for place in places]
        found[f"exact_match_{name}"] = exact_match(own, truth, level=level)
        found[f"f1_{name}"] = answer_f1(own, truth, level=level)
    return found


def _check(predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> None:
    if len(predicted) != len(gold) or not gold:
        raise UserError(
            f"{len(predicted):,} answers cannot be scored against those of {len(gold):,} questions: give one for each."
        )
