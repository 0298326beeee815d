"""How near a text is to its reference: BLEU by sacreBLEU, with its signature, ROUGE and METEOR; with intervals."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.evaluation.means import few, plain_mean
from ebar.types import Estimate

RESAMPLES = 1000


class Bleu(NamedTuple):
    """A corpus score, 0 to 100, and how it was computed: a score without its signature cannot be compared."""

    score: Estimate
    signature: str


class OfLength(NamedTuple):
    """BLEU of the sentences whose reference has at least `low` and fewer than `high` words, blanks between them."""

    low: int
    high: int | None  # None: no limit
    sentences: int
    score: Estimate | None  # None: there is no such sentence

    @property
    def name(self) -> str:
        return f"[{self.low}, {'∞' if self.high is None else self.high})"


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, resamples: int = RESAMPLES, level: float = 0.95,
    lowercase: bool = False, tokenise: str = "13a", seed: int = 0,
) -> Bleu:  # fmt: skip
    """Corpus BLEU (Papineni et al. 2002) as sacreBLEU computes it (Post 2018); the interval resamples sentences."""
    metric = _metric(lowercase, tokenise)
    counts = _counts(metric, hypotheses, references)
    return Bleu(_estimate(counts, resamples, level, seed), str(metric.get_signature()))


def bleu_difference(
    hypotheses: Sequence[str], others: Sequence[str], references: Sequence[str], *, resamples: int = RESAMPLES,
    level: float = 0.95, lowercase: bool = False, tokenise: str = "13a", seed: int = 0,
) -> Estimate:  # fmt: skip
    """BLEU of the hypotheses minus that of the others, paired: both are resampled by the same sentences. Koehn 2004."""
    both = [bleu_counts(some, references, lowercase=lowercase, tokenise=tokenise) for some in (hypotheses, others)]
    value = bleu_of_counts(both[0].sum(0)) - bleu_of_counts(both[1].sum(0))
    sums = resampled_sums(torch.cat(both, 1), resamples, seed)
    low, high = _interval(bleu_of_counts(sums[:, :10]) - bleu_of_counts(sums[:, 10:]), level)
    return Estimate(float(value), low, high, float(len(references)), few(len(references), "sentences"), level)


def bleu_by_length(
    hypotheses: Sequence[str], references: Sequence[str], *, edges: Sequence[int] = (6, 10),
    resamples: int = RESAMPLES, level: float = 0.95, lowercase: bool = False, tokenise: str = "13a", seed: int = 0,
) -> list[OfLength]:  # fmt: skip
    """BLEU of the sentences in each bin of target length: [0, 6), [6, 10) and [10, ∞) unless other edges are given."""
    counts = bleu_counts(hypotheses, references, lowercase=lowercase, tokenise=tokenise)
    words = torch.tensor([len(reference.split()) for reference in references])
    if list(edges) != sorted(set(edges)) or any(edge < 1 for edge in edges):
        raise UserError(f"The edges of the bins must rise and be at least 1, not {', '.join(map(str, edges))}.")
    found = []
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        inside = words >= low if high is None else (words >= low) & (words < high)
        own = counts[inside]
        found.append(OfLength(low, high, len(own), _estimate(own, resamples, level, seed) if len(own) else None))
    return found


def _estimate(counts: Float[Tensor, "sentences 10"], resamples: int, level: float, seed: int) -> Estimate:
    low, high = _interval(bleu_of_counts(resampled_sums(counts, resamples, seed)), level)
    warning = few(len(counts), "sentences")
    return Estimate(float(bleu_of_counts(counts.sum(0))), low, high, float(len(counts)), warning, level)


def bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenise: str = "13a"
) -> Float[Tensor, "sentences 10"]:
    """Sufficient statistics of each sentence: two lengths, then matches and totals of 1- to 4-grams."""
    return _counts(_metric(lowercase, tokenise), hypotheses, references)


def _counts(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Float[Tensor, "sentences 10"]:
    check_pairs(hypotheses, references)
    found = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return torch.tensor(found, dtype=torch.float64)


def bleu_of_counts(counts: Float[Tensor, "*batch 10"]) -> Float[Tensor, "*batch"]:
    """BLEU from summed statistics, with sacreBLEU's exponential smoothing of absent matches."""
    length, reference = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2:6], counts[..., 6:10]
    # The n-th zero in a row of orders counts as 2⁻ⁿ matches.
    halvings = torch.exp2(-(matches == 0).to(counts).cumsum(-1))
    shares = torch.where(matches > 0, matches, halvings) / totals.clamp(min=1)
    brevity = torch.exp((1 - reference / length.clamp(min=1)).clamp(max=0))
    score = 100 * brevity * shares.log().mean(-1).exp()
    # No 4-gram at all in the hypotheses, or no word that matches: 0.
    return torch.where((totals > 0).all(-1) & (matches > 0).any(-1), score, 0.0)


def resampled_sums(
    counts: Float[Tensor, "sentences statistics"], resamples: int, seed: int
) -> Float[Tensor, "resamples statistics"]:
    """Sums over sentences drawn with replacement; the same seed draws the same sentences, so differences are paired."""
    generator = Generator().manual_seed(seed)
    parts = []
    for _ in range(resamples):
        rows = torch.randint(len(counts), (len(counts),), generator=generator)
        times = torch.bincount(rows, minlength=len(counts)).to(counts)
        parts.append(times @ counts)
    return torch.stack(parts)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """As many of the ones as of the others, and at least one."""
    if len(hypotheses) != len(references) or not hypotheses:
        raise UserError(
            f"{len(hypotheses):,} hypotheses cannot be scored against {len(references):,} references: they go in pairs."
        )


def _interval(drawn: Float[Tensor, " resamples"], level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    low, high = drawn.quantile(torch.tensor([tail, 1 - tail], dtype=drawn.dtype)).tolist()
    return low, high


def _metric(lowercase: bool, tokenise: str) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise UserError("BLEU needs sacrebleu: install it with `pip install 'ebar[metrics]'`.") from None
    return BLEU(lowercase=lowercase, tokenize=tokenise)


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
    if (missing := missing_for_meteor()) is not None:
        raise UserError(missing)
    from nltk.translate.meteor_score import single_meteor_score as score

    found = [
        100 * float(score(WORD.findall(reference), WORD.findall(own)))
        for own, reference in zip(hypotheses, references, strict=True)
    ]
    return _mean(found, "METEOR", level)


def missing_for_meteor() -> str | None:
    """What METEOR lacks here, in a sentence that says how to get it; None where nothing is missing."""
    try:
        from nltk.corpus import wordnet
    except ImportError:
        return "METEOR needs nltk: install it with `pip install 'ebar[metrics]'`."
    try:
        # Without WordNet METEOR would answer where all words match, and fail elsewhere: better not to begin.
        wordnet.synsets("word")
    except (LookupError, OSError, ValueError, AttributeError):
        return (
            "METEOR needs WordNet, which is not installed: run `python -m nltk.downloader wordnet`, or unpack it as "
            "corpora/wordnet in a folder that NLTK_DATA names (Debian's packages wordnet-base and wordnet-sense-index "
            "hold all of it but the file lexnames)."
        )
    return None


def _mean(values: list[float], name: str, level: float) -> Estimate:
    found = plain_mean(values, name=name, level=level)
    return found._replace(low=max(0.0, found.low), high=min(100.0, found.high))
