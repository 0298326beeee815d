"""Which of two continuations people find the better one: blinded pairs, ratings files, and the sign test.

Pairs are shown in an order drawn by a seed; the key that tells which is which is a file of its own. Ties (and pairs
whose two texts are the same, which are not shown at all) are left out of the test and counted beside it.

What the verdicts of a discriminator say of generated text has the same intervals and tests.
"""

import csv
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.types import Estimate

Choice = Literal["A", "B", "tie"]
CHOICES: tuple[str, ...] = get_args(Choice)


class Pair(NamedTuple):
    """What a rater sees; nothing of it tells which system wrote which."""

    name: str
    prefix: str
    a: str
    b: str


class Key(NamedTuple):
    """What a rater must not see."""

    study: str  # of the pairs as shown, so that ratings cannot be read with the key of others
    ours: str  # the system whose share is asked for
    theirs: str
    ours_is_a: dict[str, bool]  # by the pair's name
    same: int  # pairs not shown, their two texts being one

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=1, ensure_ascii=False) + "\n"


class Blinded(NamedTuple):
    """A study: the pairs for its page, and the key for afterwards."""

    pairs: list[Pair]
    key: Key


class Ratings(NamedTuple):
    """One person's choices, by the pair's name."""

    study: str
    rater: str
    choices: dict[str, Choice]


class SignTest(NamedTuple):
    """How often ours was preferred among the pairs that were decided."""

    share: Estimate  # Clopper and Pearson's interval
    p_value: float  # two-sided, exact: how often a fair coin would be at least as far from the middle
    wins: int
    losses: int
    ties: int
    unrated: int  # pairs shown that nobody rated
    same: int
    raters: int

    def __str__(self) -> str:
        return (
            f"{self.share}, p = {self.p_value:.3g}: {self.wins} of {self.wins + self.losses} pairs "
            f"({self.ties} ties, {self.same} with one text twice, {self.unrated} unrated; {self.raters} raters)"
        )


def blind(
    prefixes: Sequence[str], ours: Sequence[str], theirs: Sequence[str], *, seed: int,
    names: tuple[str, str] = ("joint", "base"),
) -> Blinded:  # fmt: skip
    """Pairs in an order of their own, and which text stands first in each, both drawn by the seed."""
    if not len(prefixes) == len(ours) == len(theirs) > 0:
        raise UserError(
            f"{len(prefixes):,} prefixes, {len(ours):,} and {len(theirs):,} continuations do not go in pairs: "
            "give one of each kind for every prefix."
        )
    generator = Generator().manual_seed(seed)
    order = torch.randperm(len(prefixes), generator=generator).tolist()
    first = (torch.rand(len(prefixes), generator=generator) < 0.5).tolist()
    different = [row for row in order if ours[row] != theirs[row]]
    if not different:
        raise UserError("Both systems wrote the same everywhere: there is no pair to rate.")
    pairs, ours_is_a = [], {}
    for number, row in enumerate(different, 1):
        name = f"{number:0{len(str(len(different)))}d}"
        a, b = (ours[row], theirs[row]) if first[row] else (theirs[row], ours[row])
        pairs.append(Pair(name, prefixes[row], a, b))
        ours_is_a[name] = first[row]
    study = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]
    return Blinded(pairs, Key(study, *names, ours_is_a, len(prefixes) - len(different)))


def read_key(path: Path) -> Key:
    """The key that `Key.to_json` has written."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        key = Key(**tree)
        right = isinstance(key.ours_is_a, dict) and all(isinstance(each, bool) for each in key.ours_is_a.values())
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a key ({error}): give the file written beside the page.") from None
    if not right:
        raise UserError(f"{path} does not say which text is whose: give the file written beside the page.")
    return key


def read_ratings(path: Path) -> Ratings:
    """What the page has exported, as .json or .csv."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        study, rater, rows = _from_csv(text) if path.suffix == ".csv" else _from_json(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read as ratings ({type(error).__name__}: {error}): give a file exported from the page."
        ) from None
    choices: dict[str, Choice] = {}
    for name, choice in rows:
        if choice not in CHOICES:
            raise UserError(f"{path}: the choice for pair {name} is {choice!r}, not one of {', '.join(CHOICES)}.")
        if name in choices:
            raise UserError(f"{path} rates pair {name} twice: keep one of the two.")
        choices[name] = choice
    return Ratings(study, rater, choices)


def _from_json(text: str) -> tuple[str, str, list[tuple[str, Any]]]:
    tree = json.loads(text)
    rows = [(str(row["pair"]), row["choice"]) for row in tree["ratings"]]
    return str(tree["study"]), str(tree.get("rater", "")), rows


def _from_csv(text: str) -> tuple[str, str, list[tuple[str, Any]]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    owners = {(row["study"], row["rater"]) for row in rows}
    if len(owners) != 1:
        raise ValueError(f"{len(owners)} raters or studies where there should be one")
    return *owners.pop(), [(row["pair"], row["choice"]) for row in rows]


def sign_test(
    ratings: Ratings | Iterable[Ratings], key: Key, *, unit: Literal["pair", "rating"] = "pair", level: float = 0.95
) -> SignTest:
    """Is ours preferred more often than not?

    With several raters a pair counts once, by its majority of A and B, an even split being a tie: ratings of one pair
    are not independent. `unit` "rating" counts each, and its interval is too narrow as soon as a pair has two.
    """
    people = [ratings] if isinstance(ratings, Ratings) else list(ratings)
    votes: dict[str, list[int]] = {name: [] for name in key.ours_is_a}  # +1 ours, −1 theirs, 0 a tie
    for person in people:
        if person.study != key.study:
            raise UserError(
                f"The ratings of {person.rater or 'a rater'} are of study {person.study}, the key of {key.study}: "
                "give the key written beside that page."
            )
        for name, choice in person.choices.items():
            if name not in votes:
                raise UserError(
                    f"The ratings of {person.rater or 'a rater'} have a pair {name}, which the key has not."
                )
            votes[name].append(0 if choice == "tie" else 1 if (choice == "A") == key.ours_is_a[name] else -1)
    rated = [some for some in votes.values() if some]
    if unit == "pair":
        rated = [[sum(some)] for some in rated]
    found = Counter((vote > 0) - (vote < 0) for some in rated for vote in some)
    wins, losses = found[1], found[-1]
    if wins + losses == 0:
        raise UserError("Nobody preferred either text anywhere: there is nothing to test.")
    share = exact_share(wins, wins + losses, level=level)
    if unit == "rating" and any(len(some) > 1 for some in rated):
        share = share._replace(warning="ratings of one pair by several people are not independent")
    unrated = sum(not some for some in votes.values())
    return SignTest(share, coin_p_value(wins, losses), wins, losses, found[0], unrated, key.same, len(people))


def sign_test_power(pairs: int, share: float, *, level: float = 0.95) -> float:
    """How often the exact two-sided sign test tells a true share of preferences from one half.

    With fewer than k losses (or wins) it rejects, k the largest number with 2·P(X < k | ½) ≤ 1 − level. Ties do not
    count as pairs.
    """
    if pairs < 1 or not 0 <= share <= 1:
        raise ValueError(f"{pairs} pairs and a share of {share} are no test")
    return float(_powers(np.array([pairs]), share, level)[0])


def _powers(pairs: np.ndarray, share: float, level: float) -> np.ndarray:
    from scipy.stats import binom

    few = binom.ppf((1 - level) / 2, pairs, 0.5)  # the smallest number whose tail reaches (1 − level)/2
    few = np.where(2 * binom.cdf(few, pairs, 0.5) <= 1 - level, few, few - 1)
    found: np.ndarray = binom.cdf(few, pairs, share) + binom.sf(pairs - few - 1, pairs, share)
    return np.where(few < 0, 0.0, found)


def pairs_needed(share: float, *, power: float = 0.8, level: float = 0.95) -> int:
    """The least number of pairs from which on the exact sign test has this power against a share.

    The power of an exact test goes up and down with the number of pairs: from this number on it is never less.
    """
    from scipy.stats import norm

    if share == 0.5 or not 0 <= share <= 1 or not 0 < power < 1:
        raise ValueError(f"no number of pairs tells a share of {share} from one half with power {power}")
    gap = abs(share - 0.5)
    spread = norm.ppf((1 + level) / 2) / 2 + norm.ppf(max(power, 0.5)) * math.sqrt(share * (1 - share))
    most = 2 * math.ceil((spread / gap) ** 2) + 100  # far beyond what the normal approximation asks for
    weak = np.flatnonzero(_powers(np.arange(1, most), share, level) < power)
    return int(weak[-1]) + 2 if len(weak) else 1


def exact_share(successes: int, trials: int, *, level: float = 0.95) -> Estimate:
    """A share of independent trials with Clopper and Pearson's interval (1934): it covers at least as often as it says.

    Its ends are quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k).
    """
    from scipy.stats import binomtest

    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials} is no share")
    ends = binomtest(successes, trials).proportion_ci(level, "exact")
    return Estimate(successes / trials, float(ends.low), float(ends.high), float(trials), None, level)


def coin_p_value(wins: int, losses: int) -> float:
    """min(1, 2·P(a fair coin tossed wins + losses times falls on one side at most min(wins, losses) times))."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5)))


FEWEST_CONTEXTS = 30  # to judge: below, a rate says little, however exact its interval


class Verdict(NamedTuple):
    """What one discriminator made of one system's text; real is what has an energy below 0."""

    accuracy: Estimate
    false_positive_rate: Estimate  # generated texts taken for real: how often it was fooled
    true_positive_rate: Estimate  # real texts taken for real


class Compared(NamedTuple):
    """Both systems, judged on the same contexts."""

    base: Verdict
    joint: Verdict
    difference: Estimate  # the joint model's false positive rate minus q's
    p_value: float  # McNemar's exact test that there is none


Decisions = tuple[Bool[Tensor, " contexts"], Bool[Tensor, " contexts"]]
"""Whether the real and the generated text of each context were taken for real."""


def compare_verdicts(base: Decisions, joint: Decisions, *, level: float = 0.95) -> Compared:
    """From decisions on the same contexts."""
    fooled_once, fooled_other = joint[1], base[1]
    difference = paired_difference(fooled_once, fooled_other, level=level)
    only_joint = int((fooled_once & ~fooled_other).sum())
    only_base = int((fooled_other & ~fooled_once).sum())
    p_value = coin_p_value(only_joint, only_base)
    return Compared(verdict(*base, level=level), verdict(*joint, level=level), difference, p_value)


def verdict(real: Bool[Tensor, " contexts"], generated: Bool[Tensor, " contexts"], *, level: float = 0.95) -> Verdict:
    """Rates have exact binomial intervals. The two decisions on one context are no independent trials, so accuracy,
    (1 + P(real taken for real) − P(generated taken for real)) / 2, has that of the paired difference.
    """
    gap = paired_difference(real, generated, level=level)
    return Verdict(gap.mapped(lambda end: (1 + end) / 2), _rate(generated, level), _rate(real, level))


def paired_difference(one: Bool[Tensor, " pairs"], other: Bool[Tensor, " pairs"], *, level: float = 0.95) -> Estimate:
    """P(one) − P(other) of outcomes that come in pairs.

    Wald's interval with half an outcome added to each of the four cells (Agresti & Min 2005): it has a width even
    where no pair disagrees.
    """
    from scipy.special import ndtri

    pairs = len(one)
    more, less = int((one & ~other).sum()), int((other & ~one).sum())
    first, second = (more + 0.5) / (pairs + 2), (less + 0.5) / (pairs + 2)
    centre = first - second
    width = float(ndtri((1 + level) / 2)) * math.sqrt((first + second - centre**2) / (pairs + 2))
    low, high = max(-1.0, centre - width), min(1.0, centre + width)
    return Estimate((more - less) / pairs, low, high, float(pairs), _few(pairs), level)


def _rate(outcomes: Bool[Tensor, " contexts"], level: float) -> Estimate:
    found = exact_share(int(outcomes.sum()), len(outcomes), level=level)
    return found._replace(warning=_few(len(outcomes)))


def _few(contexts: int) -> str | None:
    return None if contexts >= FEWEST_CONTEXTS else f"{contexts} contexts are few to judge by"
