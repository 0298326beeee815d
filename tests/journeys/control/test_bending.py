"""How far constraints bend a model, against every text that a tiny model can make."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ebar.build.control import read_constraints
from ebar.cli import main
from ebar.errors import UserError
from ebar.journeys.control.bending import TOGETHER, bend
from ebar.journeys.control.constraints import Constraints
from ebar.maths.enumeration import all_sequences
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import reading_of_model
from ebar.types import Estimate, Sequences

MUST, NEVER, HALF = "expression:abc=1", "expression:c=0", "expression: =0.5"
OPTIONS = {"draws": 3000, "surrogate_draws": 300, "rows": 3000, "seed": 3}


def within(found: Estimate | None, truth: float) -> bool:
    """Twice the 95 % interval: outside once in 10⁴."""
    assert found is not None
    return 2 * found.low - found.value - 1e-9 <= truth <= 2 * found.high - found.value + 1e-9


def masked(model: Pretrained, x: Sequences, log_q: Tensor, allowed: Tensor) -> Tensor:
    """log m of each text, prefix by prefix: a token passes if any allowed text goes on so.

    q of a prefix is the sum over the texts that begin with it, so the mass that passes is a ratio of such sums.
    """
    rows, probs = x.rows(), log_q.exp().tolist()
    prefix_mass: dict[tuple[int, ...], float] = {}
    passing: set[tuple[int, ...]] = set()
    for row, prob, fine in zip(rows, probs, allowed.tolist(), strict=True):
        for cut in range(len(row) + 1):
            prefix_mass[tuple(row[:cut])] = prefix_mass.get(tuple(row[:cut]), 0.0) + prob
            if fine:
                passing.add(tuple(row[:cut]))
    through: dict[tuple[int, ...], float] = {}
    for prefix in passing - {()}:
        through[prefix[:-1]] = through.get(prefix[:-1], 0.0) + prefix_mass[prefix]
    log_m = torch.full_like(log_q, -math.inf)
    for place, row in enumerate(rows):
        if bool(allowed[place]):
            steps = [prefix_mass[tuple(row[: cut + 1])] / through[tuple(row[:cut])] for cut in range(len(row))]
            log_m[place] = math.fsum(math.log(step) for step in steps)
    assert float(log_m.exp().sum()) == pytest.approx(1, abs=1e-6)
    return log_m


def test_every_figure_is_that_of_all_texts(model: Pretrained) -> None:
    pairs = read_constraints([MUST, HALF])
    found = bend(model, pairs, **OPTIONS)
    assert [row.constraint for row in found] == ["text abc", "text  ", TOGETHER]
    x = all_sequences(model.space)
    with torch.no_grad():
        log_q = model.log_prob(x).double()
    reading = reading_of_model(model)
    assert reading is not None
    values = Constraints.of(pairs, reading).features(x).double()
    must = values[:, 0] == 1
    log_p = torch.log_softmax(torch.where(must, log_q, -math.inf), 0)
    log_m = masked(model, x, log_q, must)
    alone, soft, together = found
    assert within(alone.under_q, float(log_q.exp() @ values[:, 0]))
    assert within(alone.log_z, float(log_q[must].logsumexp(0)))
    assert within(alone.kl_from_q, -float(log_q[must].logsumexp(0)))  # of a hard constraint KL(p‖q) = −log Z
    truth = float((log_p.exp() * (log_p - log_m))[must].sum())
    assert truth > 0.1  # masking does bend
    assert within(alone.kl_from_masking, truth)
    for effective, log_own in ((alone.effective_of_q, log_q), (alone.effective_of_masking, log_m)):
        assert within(effective, math.exp(-float((2 * log_p - log_own)[must].logsumexp(0))))
    assert alone.effective_of_look_ahead is not None
    assert alone.effective_of_look_ahead.value > 2 * alone.effective_of_q.value  # type: ignore[union-attr]
    # Nothing is forbidden by a share: there is no mask.
    assert soft.kl_from_masking is None
    assert soft.kl_from_q is not None
    share = float(log_q.exp() @ values[:, 1])
    kl = 0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share))  # of the nearest with this share
    assert soft.kl_from_q.value == pytest.approx(kl, abs=0.1)
    # Together: the mask is of what must be, and p is further from it by the share.
    assert together.under_q is None
    among = float((log_p.exp() * values[:, 1])[must].sum())  # of what must be, the share that has the other too
    ratio = torch.where(values[:, 1] == 1, 0.5 / among, 0.5 / (1 - among)).log()
    both = log_p + ratio
    assert together.kl_from_masking is not None
    assert together.kl_from_q is not None
    for estimate, own in ((together.kl_from_masking, log_m), (together.kl_from_q, log_q)):
        assert estimate.value == pytest.approx(float((both.exp() * (both - own))[must].sum()), abs=0.2)


def test_what_nothing_satisfies_is_said_in_its_row_and_all_together_is_an_error(model: Pretrained) -> None:
    """Each can be had, and both cannot: no text has both."""
    alone, other, together = bend(model, read_constraints([MUST, NEVER]), **OPTIONS)
    assert alone.problem is None
    assert other.problem is None
    assert together.problem is not None
    assert together.log_z is None
    with pytest.raises(UserError, match=r"satisf|None of the"):
        bend(model, read_constraints(["expression:aaaaaaaaaaaa=1"]), **OPTIONS)
    with pytest.raises(UserError, match="share of texts"):
        bend(model, [(read_constraints([MUST])[0][0], 3.0)], **OPTIONS)


def test_the_command_shows_one_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["control", "check", str(folder), "--features", MUST, HALF, "--length", "4", "--ends", "true"]
    more = ["--draws", "300", "--surrogate_draws", "100"]
    assert main([*words, *more, "--json", "true"]) == 0
    rows = json.loads(capsys.readouterr().out)["constraints"]
    assert [row["constraint"] for row in rows] == ["text abc", "text  ", TOGETHER]
    assert main([*words, *more]) == 0
    assert "KL(p‖masking)" in capsys.readouterr().out
