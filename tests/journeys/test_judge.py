"""Rates, differences and protocols by hand; then a discriminator that can be told exactly when it is fooled."""

import math
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.neural import bit
from ebar.errors import UserError
from ebar.evaluation.ratings import compare_verdicts, paired_difference, verdict
from ebar.journeys.judge import Judge, energies, fooling
from ebar.training.optimisers import Adam
from ebar.types import Context, Sequences

LENGTH, VOCABULARY = 5, 4


def booleans(*counts: int) -> Tensor:
    """So many true, then so many false, and so on."""
    return torch.cat([torch.full((count,), place % 2 == 0) for place, count in enumerate(counts)])


def up_to(successes: int, trials: int, chance: float) -> float:
    return math.fsum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(successes + 1))


def test_rates_by_hand() -> None:
    # Deng et al. 2020's first line, of 1,000 contexts: 97.6 % of the real and 17.8 % of the generated texts pass.
    found = verdict(booleans(976, 24), booleans(178, 822))
    assert found.true_positive_rate.value == 0.976
    assert found.false_positive_rate.value == 0.178
    assert found.accuracy.value == pytest.approx(0.899)
    # Its second: the same real texts, and 31.8 %.
    assert verdict(booleans(976, 24), booleans(318, 682)).accuracy.value == pytest.approx(0.829)
    # Clopper and Pearson: at the ends, what was seen or more, or less, has a chance of 2.5 %.
    low, high = found.false_positive_rate[1:3]
    assert 1 - up_to(177, 1000, low) == pytest.approx(0.025)
    assert up_to(178, 1000, high) == pytest.approx(0.025)
    assert found.accuracy.warning is None
    assert "few to judge by" in str(verdict(booleans(3), booleans(0, 3)).accuracy.warning)


def test_paired_differences_by_hand() -> None:
    # Of 10 pairs 4 are true in the one only, 1 in the other only: cells 4.5/12 and 1.5/12.
    one, other = booleans(4, 1, 2, 3), booleans(0, 4, 1, 0, 2, 3)
    assert (one & other).sum() == 2
    found = paired_difference(one, other)
    centre, spread = 3 / 12, 1.959964 * math.sqrt((6 / 12 - (3 / 12) ** 2) / 12)
    assert found[:3] == pytest.approx((0.3, centre - spread, centre + spread))
    # No pair disagrees, and still it is not known to be nothing.
    nothing = paired_difference(one, one)
    assert nothing.value == 0
    assert nothing.high == -nothing.low == pytest.approx(1.959964 * math.sqrt((1 / 12) / 12))


def test_the_interval_of_a_difference_covers(generator: Generator) -> None:
    # Pairs of a common cause: P(one) − P(other) = 0.2. Of 2,000 intervals of 95 % fewer than 1,870 would happen once
    # in 1,000 runs at the true coverage, which Agresti and Min keep at 95 % or above.
    cause = torch.rand(2000, 60, generator=generator)
    one, other = cause < 0.5, (cause + 0.2 * torch.randn(2000, 60, generator=generator)) < 0.3
    truth = float((one.double() - other.double()).mean())
    ends = [paired_difference(a, b) for a, b in zip(one, other, strict=True)]
    assert sum(each.low <= truth <= each.high for each in ends) >= 1870


def test_mcnemars_test_by_hand() -> None:
    # The joint model fools in 9 contexts where q does not, and q in 1 where it does not: 2·(1 + 10)/1024.
    joint, base = booleans(9, 1, 5, 25), booleans(0, 9, 1, 0, 5, 25)
    real = booleans(40)
    found = compare_verdicts((real, base), (real, joint))
    assert found.p_value == pytest.approx(22 / 1024)
    assert found.difference.value == pytest.approx(8 / 40)
    assert (found.base.false_positive_rate.value, found.joint.false_positive_rate.value) == (6 / 40, 14 / 40)
    assert 0 < found.difference.low < 0.2 < found.difference.high


class Counting(nn.Module):
    """E = w·(how often each token occurs) + b, zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(VOCABULARY))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        counts = nn.functional.one_hot(x.tokens, VOCABULARY).float()
        return (counts * x.mask()[:, :, None]).sum(1) @ self.weight + self.bias


def text(rows: int, token: int, generator: Generator) -> Sequences:
    """Tokens 0 and 1 at will, and one place with a token that tells who wrote it."""
    tokens = torch.randint(2, (rows, LENGTH), generator=generator)
    tokens[torch.arange(rows), torch.randint(LENGTH, (rows,), generator=generator)] = token
    return Sequences(tokens, torch.full((rows,), LENGTH))


JUDGE = Judge(epochs=3, batch_size=16, optimiser=Adam(learning_rate=0.5))


def test_who_is_known_and_who_fools(tmp_path: Path, generator: Generator) -> None:
    # Real text holds a 0 or 1 where q's holds a 2. Half of the joint model's holds a 3, which the judge of q's text has
    # never seen, and which the judge of its own text knows for it; the other half is q's.
    rows = 200
    real, base = text(rows, 1, generator), text(rows, 2, generator)
    own = text(rows, 3, generator)
    even = (torch.arange(rows) % 2 == 0)[:, None]
    joint = Sequences(torch.where(even, own.tokens, base.tokens), base.lengths)
    context = Context(Sequences(torch.zeros(rows, 1, dtype=torch.long), torch.ones(rows, dtype=torch.long)))
    found = fooling(tmp_path, Counting, real, base, joint, context, judge=JUDGE)
    same, other = found.same, found.own
    assert same.base.false_positive_rate.value == 0.0
    assert same.base.false_positive_rate.high == pytest.approx(1 - 0.025 ** (1 / 100))
    assert same.base.true_positive_rate.value == 1.0
    # Where the 3 stands one place fewer is 0 or 1; that alone must not give it away.
    assert same.joint.false_positive_rate.value == 0.5
    assert same.joint.true_positive_rate == same.base.true_positive_rate
    assert same.difference.value == 0.5
    assert same.p_value == pytest.approx(2 * 0.5**50)
    assert other.base == same.base
    assert other.joint.false_positive_rate.value == 0.0
    assert other.difference.value == 0.0
    assert [row[:2] for row in found.rows()] == [
        ["trained against q", "q"], ["trained against q", "joint"],
        ["trained against each", "q"], ["trained against each", "joint"],
    ]  # fmt: skip
    # Called again nothing is trained again, and the answer is the same; other texts have other folders.
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert [name[: name.rindex("-")] for name in folders] == ["against-joint", "against-q"]
    assert fooling(tmp_path, Counting, real, base, joint, context, judge=JUDGE) == found
    assert sorted(path.name for path in tmp_path.iterdir()) == folders
    # The first half alone teaches: what stands in the second does not change the judges' folders' number of steps,
    # and a system whose second half is real text fools as often as real text passes.
    half = torch.cat([base.tokens[:100], real.tokens[100:]])
    fooled = fooling(tmp_path / "half", Counting, real, Sequences(half, base.lengths), joint, context, judge=JUDGE)
    assert fooled.same.base.false_positive_rate == fooled.same.base.true_positive_rate


def test_a_network_judges_as_well(tmp_path: Path, generator: Generator) -> None:
    # Real text is made of 0 and 1, q's of 2 and 3, the joint model's is real text.
    assert_a_network_tells(tmp_path, 0, generator)


def assert_a_network_tells(folder: Path, seed: int, generator: Generator) -> None:
    rows = 120
    context = Context(Sequences(torch.randint(VOCABULARY, (rows, 2), generator=generator), torch.full((rows,), 2)))
    real = Sequences(torch.randint(2, (rows, 3), generator=generator), torch.full((rows,), 3))
    base = Sequences(real.tokens + 2, real.lengths)

    def build() -> nn.Module:
        return bit(BidirectionalTransformer(VOCABULARY, layers=1, hidden=16, heads=2, dropout=0.1))

    judge = Judge(epochs=4, batch_size=8, optimiser=Adam(learning_rate=0.02), seed=seed)
    found = fooling(folder, build, real, base, real, context, judge=judge)
    assert found.same.base.accuracy.value > 0.95
    assert found.same.joint.false_positive_rate == found.same.joint.true_positive_rate
    assert found.same.joint.accuracy.value == 0.5


class Watching(Counting):
    """Remembers whose contexts it has learnt from, and whose it has judged."""

    learnt: ClassVar[set[int]] = set()
    judged: ClassVar[set[int]] = set()

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        assert context is not None
        (self.learnt if self.training else self.judged).update(context.given.tokens.flatten().tolist())
        return super().forward(x, context)


def test_no_context_is_both_learnt_from_and_judged(tmp_path: Path, generator: Generator) -> None:
    x = text(40, 1, generator)
    context = Context(Sequences(torch.arange(40)[:, None], torch.ones(40, dtype=torch.long)))
    fooling(tmp_path, Watching, x, text(40, 2, generator), x, context, judge=Judge(epochs=1, batch_size=7))
    # Of the first 20 a tenth is held out, to choose the epoch by.
    assert Watching.learnt == set(range(18))
    assert Watching.judged == set(range(18, 40))


def test_an_untrained_judge_takes_nothing_for_real(tmp_path: Path, generator: Generator) -> None:
    x = text(8, 1, generator)
    assert energies(Counting(), x, batch=3).tolist() == [0.0] * 8
    found = fooling(tmp_path, Counting, x, x, x, judge=Judge(epochs=1))
    assert found.same.base.accuracy.value == 0.5
    assert found.same.difference.value == 0.0


def test_texts_that_do_not_belong_together_are_refused(tmp_path: Path, generator: Generator) -> None:
    x = text(8, 1, generator)
    with pytest.raises(UserError, match="give as many of each"):
        fooling(tmp_path, Counting, x, x, text(7, 1, generator))
    with pytest.raises(UserError, match="give as many of each"):
        fooling(tmp_path, Counting, x, x, x, Context(text(4, 1, generator)))
    few = text(3, 1, generator)
    with pytest.raises(UserError, match="cannot be halved"):
        fooling(tmp_path, Counting, few, few, few)
