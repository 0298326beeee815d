"""A distillation draws from p, and ends in the same file however often it was killed."""

import json
import math
import os
import re
import signal
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Generator

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.counts import NgramCount
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.progress import shown
from ebar.samplers.importance import Importance, Resampling
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.samplers.smc import Smc
from ebar.samplers.trade_off import trade_off
from ebar.store.stages import Header
from ebar.testing.enumeration import whole_space
from ebar.training.distillation import Distilled, distil, distilled, rounds
from ebar.types import Sampler, Sequences, Space, Weighted

SPACE = Space(vocabulary=3, length=4, end=2)  # the 15 strings of at most 3 bits
FALSE_ALARM = 1e-5  # of each statistical test here; seeds are fixed


def spelled(tokens: list[int]) -> str:
    return "".join("01"[token] for token in tokens)


def tilted(*, seed: int = 3, coefficient: float = -3.0) -> Tilted:
    base = Tabular.random(SPACE, scale=0.7, generator=Generator().manual_seed(seed))
    absent = Motif(motif="11", alphabet="01", end=2, absent=True)
    count = NgramCount(ngram="0", alphabet="01", end=2, longest=SPACE.length)
    coefficients = torch.tensor([coefficient, 0.4], dtype=torch.float64)
    return Tilted(base, Linear(Features((absent, count)), coefficients))


def exact(target: Tilted) -> dict[str, float]:
    """p of every string."""
    x = whole_space(SPACE)
    with torch.no_grad():
        shares = torch.softmax(target.log_score(x), 0).tolist()
    return {spelled(x.prefix(row)[:-1]): share for row, share in enumerate(shares)}


def run(path: Path, n: int = 300, **options: Any) -> Distilled:
    settings = {"decode": spelled, "seed": 5, "round_size": 50}
    return distil(options.pop("target", None) or tilted(), n, path, **{**settings, **options})


def read_record(path: Path) -> distilled.Record:
    header = Header.read(distilled.record_path(path))
    assert header is not None
    found = distilled.Record.of(header, path)
    assert found is not None
    return found


def told(found: Distilled) -> dict[str, Any]:
    """All figures but the time, which no run repeats."""
    return {name: value for name, value in found.to_dict().items() if name not in {"seconds", "path"}}


def statistic(lines: list[str], p: dict[str, float]) -> float:
    """Pearson's X²."""
    counts, n = Counter(lines), len(lines)
    assert set(counts) <= set(p)
    return math.fsum((counts[string] - n * share) ** 2 / (n * share) for string, share in p.items())


@pytest.mark.parametrize(
    ("sampler", "look_ahead"),
    [
        (QuasiRejection(), True),
        (QuasiRejection(), False),
        (QuasiRejection(log_beta=0.5), True),
        (Rejection(), False),
        (Importance(), False),
        (LookAhead(), True),
        (Resampling(), False),
        (Smc(particles=500), False),
        (Metropolis(chains=2000, burn_in=25), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lines_are_of_p(sampler: Sampler, look_ahead: bool, tmp_path: Path) -> None:
    target = tilted()
    found = run(tmp_path / "x", 6000, target=target, sampler=sampler, look_ahead=look_ahead, round_size=2000)
    lines = (tmp_path / "x").read_text().splitlines()
    assert found.n == len(lines) == 6000
    assert found.complete
    # Resampling adds noise to that of 6,000 draws, by at most a factor of 2 here: chosen among 4 times as many.
    slack = 1.0 if sampler in (QuasiRejection(), Rejection()) else 2.0
    assert statistic(lines, exact(target)) < slack * chi2.isf(FALSE_ALARM, len(exact(target)) - 1)


def test_the_test_of_lines_would_tell_p_from_its_base_and_from_a_wrong_sign() -> None:
    target, bound = tilted(), 2.0 * chi2.isf(FALSE_ALARM, 14)
    for other in (tilted(coefficient=0.0), tilted(coefficient=3.0)):
        with torch.no_grad():
            shares = torch.softmax(other.log_score(whole_space(SPACE)), 0)
        strings = list(exact(target))
        drawn = torch.multinomial(shares, 6000, replacement=True, generator=Generator().manual_seed(0)).tolist()
        assert statistic([strings[index] for index in drawn], exact(target)) > bound


def test_rounds_are_not_copies_of_one_another_and_seeds_matter(tmp_path: Path) -> None:
    run(tmp_path / "x", 200)
    lines = (tmp_path / "x").read_text().splitlines()
    assert len({tuple(lines[start : start + 50]) for start in range(0, 200, 50)}) == 4
    run(tmp_path / "y", 200, seed=6)
    assert (tmp_path / "y").read_text().splitlines() != lines


def test_where_every_proposal_is_accepted_as_many_are_counted_as_lines(tmp_path: Path) -> None:
    found = run(tmp_path / "x", 120, sampler=QuasiRejection(log_beta=-50.0))
    assert found.proposed == 120


def test_figures_are_those_of_the_file(tmp_path: Path) -> None:
    found = run(tmp_path / "x", 730)
    lines = (tmp_path / "x").read_text().split("\n")[:-1]
    assert len(lines) == 730
    assert found.mean_length.value == pytest.approx(sum(map(len, lines)) / 730, abs=1e-12)
    absent, zeros = found.moments.values()
    assert absent.value == pytest.approx(sum("11" not in line for line in lines) / 730, abs=1e-12)
    assert zeros.value == pytest.approx(sum(line.count("0") for line in lines) / 730, abs=1e-12)
    spread = torch.tensor([line.count("0") for line in lines], dtype=torch.float64).std()
    assert zeros.high - zeros.value == pytest.approx(1.959964 * float(spread) / math.sqrt(730), rel=1e-6)
    assert found.acceptance_rate is not None
    assert found.proposed is not None
    assert found.acceptance_rate.value == 730 / found.proposed
    assert Distilled.read(tmp_path / "x") == found


@pytest.mark.parametrize("sampler", [QuasiRejection(), Rejection(), Importance(), Smc(particles=200)])
def test_log_z_and_the_acceptance_rate_cover_the_truth(sampler: Sampler, tmp_path: Path) -> None:
    target = tilted()
    with torch.no_grad():
        truth = float(torch.logsumexp(target.log_score(whole_space(SPACE)), 0))
    found = run(tmp_path / "x", 6000, target=target, sampler=sampler, look_ahead=False, round_size=500)
    assert found.log_z is not None
    width = found.log_z.high - found.log_z.value
    assert abs(found.log_z.value - truth) < 2.5 * width  # 5 standard errors
    if isinstance(sampler, Rejection):
        assert found.acceptance_rate is not None
        bound = sampler.bound(target)
        assert found.acceptance_rate.low / 1.05 < math.exp(truth - bound) < found.acceptance_rate.high * 1.05


def test_a_low_ceiling_has_the_total_variation_and_the_rate_that_enumeration_gives(tmp_path: Path) -> None:
    target, x = tilted(), whole_space(SPACE)
    with torch.no_grad():
        log_q, log_p = target.base.log_prob(x).double(), target.log_score(x).double()
    log_beta = -0.5
    w = (log_p - log_q).exp()
    m = w.clamp(max=math.exp(log_beta))
    z, z_beta = (log_q.exp() * w).sum(), (log_q.exp() * m).sum()
    variation = 0.5 * (log_q.exp() * (w / z - m / z_beta).abs()).sum()
    assert variation > 0.05
    sampler = QuasiRejection(log_beta=log_beta)
    found = run(tmp_path / "x", 10_000, target=target, sampler=sampler, look_ahead=False, round_size=2000)
    assert found.total_variation is not None
    assert found.acceptance_rate is not None
    assert found.total_variation.value == pytest.approx(float(variation), rel=0.1)
    assert found.acceptance_rate.value == pytest.approx(float(z_beta) / math.exp(log_beta), rel=0.05)
    assert any("total variation" in warning for warning in found.warnings)
    pool = torch.tensor([read_record(tmp_path / "x").pool], dtype=torch.float64)
    assert found.total_variation == trade_off(pool, torch.tensor([log_beta]).double())[0].total_variation


def test_weights_that_carry_little_warn(tmp_path: Path) -> None:
    found = run(tmp_path / "x", 60, target=tilted(coefficient=-12.0), sampler=Importance(), look_ahead=False,
                round_size=20, weighted_draws=1)  # fmt: skip
    assert any("effective sample size of only" in warning for warning in found.warnings)


DISK = ("write", "rename", "ftruncate", "fsync", "unlink")


def forked(action: Callable[[], object], *, dying_at: int = 0) -> int:
    """In a process of its own that is killed just before its n-th change of the disk: -9; else how many there were."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        tell, count = os.write, 0

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal count
                count += 1
                if count == dying_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments)

            return call

        for name in DISK:
            setattr(os, name, counted(getattr(os, name)))
        try:
            action()
            tell(writing, str(count).encode())
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(process, 0)
    with os.fdopen(reading) as answer:
        said = answer.read()
    return -signal.SIGKILL if os.WIFSIGNALED(status) else int(said)


@pytest.mark.parametrize("sampler", [QuasiRejection(), Importance()])
def test_killed_before_any_one_change_of_the_disk_it_ends_in_the_same_file(sampler: Sampler, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n": 70, "sampler": sampler, "look_ahead": False}
    whole = run(tmp_path / "whole", **options)
    operations = forked(lambda: run(tmp_path / "counted", **options))
    assert operations >= 2 * 6
    for operation in range(1, operations + 1):
        path = tmp_path / f"killed-{operation}"
        assert forked(partial(run, path, **options), dying_at=operation) == -signal.SIGKILL
        found = run(path, **options)
        assert path.read_bytes() == (tmp_path / "whole").read_bytes(), operation
        assert told(found) == told(whole), operation


def test_20_000_lines_killed_twice_are_the_same_file(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n": 20_000, "round_size": 2000}
    whole = run(tmp_path / "whole", **options)
    killed = tmp_path / "killed"
    for operation in (23, 31):
        assert forked(lambda: run(killed, **options), dying_at=operation) == -signal.SIGKILL
        found = Distilled.read(killed)
        assert 0 < found.n < 20_000
        assert not found.complete
    found = run(killed, **options)
    assert found.complete
    assert killed.read_bytes() == (tmp_path / "whole").read_bytes()
    assert killed.read_text().count("\n") == 20_000
    assert told(found) == told(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_the_round_and_the_same_call_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    calls = 0

    def interrupting(tokens: list[int]) -> str:
        nonlocal calls
        calls += 1
        if calls == 60:  # in the second round of 50
            os.kill(os.getpid(), number)
        return spelled(tokens)

    found = run(tmp_path / "x", decode=interrupting)
    assert (found.n, found.complete) == (100, False)
    assert told(run(tmp_path / "x")) == told(whole)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_finished_one_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path / "x")
    monkeypatch.setattr(rounds, "weigh", None)
    assert run(tmp_path / "x") == found


@pytest.mark.parametrize("sampler", [QuasiRejection(), Importance()], ids=lambda one: type(one).__name__)
def test_how_long_it_will_take_is_said_first_and_changes_no_line(
    sampler: Sampler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"sampler": sampler, "look_ahead": False, "n": 400}
    run(tmp_path / "silent", **options)
    assert capsys.readouterr().err == ""
    with shown():
        run(tmp_path / "told", **options)
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"distilling: about \d+:\d\d:\d\d for 400, to judge by a trial of 20", first)
    assert (tmp_path / "told").read_bytes() == (tmp_path / "silent").read_bytes()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 6}, "seed"),
        ({"n": 301}, "n"),
        ({"round_size": 51}, "round_size"),
        ({"sampler": QuasiRejection(log_beta=1.0)}, r"sampler\.log_beta\)"),
        ({"look_ahead": False}, "proposal"),
        ({"target": tilted(coefficient=-3.1)}, r"target\.energy\."),
        ({"target": tilted(seed=4)}, r"target\.base\."),
        ({"about": {"run": "other"}}, "run"),
    ],
)
def test_other_settings_are_refused_and_the_file_is_left_alone(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    run(tmp_path / "x")
    before = (tmp_path / "x").read_bytes(), (tmp_path / "x.json").read_bytes()
    with pytest.raises(UserError, match=rf"x was made from something else \(what differs: {named}"):
        run(tmp_path / "x", **changed)
    assert ((tmp_path / "x").read_bytes(), (tmp_path / "x.json").read_bytes()) == before


def test_a_damaged_or_foreign_record_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    run(tmp_path / "x")
    good = json.loads((tmp_path / "x.json").read_text())
    state = good["state"]
    states: list[Any] = [3, {**state, "lines": "x"}, {**state, "lines": -1}, {**state, "n": 1}, {**state, "pool": 3}]
    states += [{**state, "sums": []}, {**state, "sums": [{"name": "a"}]}]
    states += [{name: value for name, value in state.items() if name != absent} for absent in state]
    bad: list[Any] = [{**good, "state": other} for other in states]
    bad += [{name: value for name, value in good.items() if name != absent} for absent in good if absent != "format"]
    foreign: list[Any] = [[], 3, {}, {**good, "format": "ebar distillation 1"}]
    for content in ["", "{", "\x00", *map(json.dumps, bad + foreign)]:
        (tmp_path / "x.json").write_text(content)
        known = content in map(json.dumps, foreign)
        message = r"x\.json is not of this version of ebar" if known else r"x\.json is damaged \(.*\): delete"
        with pytest.raises(UserError, match=message):
            run(tmp_path / "x")
        with pytest.raises(UserError, match=message):
            Distilled.read(tmp_path / "x")


def test_a_file_that_is_not_ours_or_was_cut_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious\n")
    with pytest.raises(UserError, match="exists and is no distillation"):
        run(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "precious\n"
    run(tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-3])
    with pytest.raises(
        UserError, match=r"x is damaged \(it is not as it was left, with 300 lines .*\): delete .*x and x\.json, and"
    ):
        run(tmp_path / "x")
    with pytest.raises(UserError, match="is no distillation"):
        Distilled.read(tmp_path / "nowhere")


def test_a_failure_before_the_first_line_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds a line's end"):
        run(tmp_path / "x", decode=lambda tokens: "\n")
    with pytest.raises(UserError, match="gains nothing by looking ahead"):
        run(tmp_path / "x", sampler=Rejection(), look_ahead=True)
    with pytest.raises(UserError, match="plain text"):
        run(tmp_path / "x.gz")
    with pytest.raises(UserError, match="not both"):
        run(tmp_path / "x", proposal=tilted().base, look_ahead=True)
    with pytest.raises(UserError, match="at least 1"):
        run(tmp_path / "x", n=0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    def nested(tokens: list[int]) -> str:
        with pytest.raises(UserError, match="in use by another process"):
            run(tmp_path / "x")
        return spelled(tokens)

    assert run(tmp_path / "x", n=2, decode=nested).complete


def test_memory_is_that_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of earlier rounds at most the last is alive when another begins, and the record keeps no more than its pool."""
    module = sys.modules["ebar.training.distillation.distil"]
    drawn: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def watched(*arguments: Any, **options: Any) -> rounds.DistillationRound:
        alive.append(sum(tokens() is not None for tokens in drawn))
        found = rounds.draw_round(*arguments, **options)
        drawn.append(weakref.ref(found.x.tokens))
        return found

    monkeypatch.setattr(module, "draw_round", watched)
    monkeypatch.setattr(distilled, "POOL", 120)
    run(tmp_path / "x", n=1000, look_ahead=False)
    assert len(alive) == 20
    assert max(alive) <= 1
    kept = read_record(tmp_path / "x")
    assert len(kept.pool) == 120
    assert kept.round_means == ()


def test_the_ceiling_is_the_lowest_that_keeps_the_pilot_within_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand weights: 1 but for ten of `rare` and ten of 1.2."""

    def ceiling(rare: float) -> rounds.Ceiling:
        log_w = torch.zeros(1, 1000, dtype=torch.float64)
        log_w[0, :10], log_w[0, 10:20] = math.log(rare), math.log(1.2)
        drawn = Sequences(torch.zeros(1000, 1, dtype=torch.long), torch.ones(1000, dtype=torch.long))
        monkeypatch.setattr(rounds, "weigh", lambda *_: Weighted(drawn, log_w))
        return rounds.find_ceiling(tilted(), tilted().base, 1000, Generator())

    # Forty times as much, once in a hundred, is more than a quarter of p: nothing of it may be cut off.
    high = ceiling(40.0)
    assert high.log_beta == pytest.approx(math.log(40))
    # Cutting 1.5 and 1.2 down to 1 takes 0.7 % of the mass from them: less than a hundredth goes astray.
    low = ceiling(1.5)
    assert low.log_beta == pytest.approx(0.0)
    assert low.rate == pytest.approx(1.0)
    assert high.rate < 0.05
