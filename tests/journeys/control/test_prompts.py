"""Many prompts against every text that may follow them: one λ or one for each, Z(C), suffixes, streams."""

import json
import math
from itertools import islice, repeat
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from ebar.build.control import read_constraints, read_prompts
from ebar.cli import main
from ebar.errors import UserError
from ebar.journeys.control.constraints import Constraints, solve
from ebar.journeys.control.prompts import Summary, control_prompts, reservoir
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import from_pretrained
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import reading_of_model
from ebar.types import Context, Estimate, Sequences

PROMPTS = ["a", "c ab", "ab"]
HALF = "expression:c=0.5"


def within(found: Estimate, truth: float) -> bool:
    """Twice the 95 % interval: outside once in 10⁴."""
    return 2 * found.low - found.value - 1e-9 <= truth <= 2 * found.high - found.value + 1e-9


def after(model: Pretrained, prompt: str) -> Tensor:
    """log q of every text after the prompt."""
    reading = reading_of_model(model)
    assert reading is not None
    assert reading.encode is not None
    tokens = torch.tensor([reading.encode(prompt)])
    context = Context(Sequences(tokens, torch.tensor([tokens.shape[1]])))
    with torch.no_grad():
        return model.log_prob(all_sequences(model.space), context).double()


def test_one_coefficient_over_contexts_by_hand() -> None:
    """Two contexts of two points, φ = 0 or 1, with odds 1 and 4: E = σ(λ) and σ(λ + log 4), of mean ½ at λ = −log 2.

    Pooled, the odds would be 5 against 2 of weight, and λ another.
    """
    values = torch.tensor([[[0.0], [1.0]], [[0.0], [1.0]]], dtype=torch.float64)
    log_base = torch.tensor([[0.0, 0.0], [0.0, math.log(4)]], dtype=torch.float64)
    found = solve(values, log_base, torch.tensor([0.5], dtype=torch.float64), torch.tensor([False]))
    assert found.coefficients.tolist() == pytest.approx([-math.log(2)], abs=1e-4)
    assert found.moments.tolist() == pytest.approx([0.5], abs=1e-5)
    # What is forbidden leaves a context without anything: it is not counted.
    hard = solve(values[:, 1:], log_base[:, 1:], torch.zeros(1, dtype=torch.float64), torch.tensor([True]))
    assert hard.found.tolist() == [False, False]
    assert hard.coefficients.tolist() == [-math.inf]


@pytest.mark.parametrize("per_prompt", [False, True])
def test_moments_and_normalisers_are_those_of_all_texts(per_prompt: bool, model: Pretrained) -> None:
    pairs = read_constraints([HALF])
    made = control_prompts(
        model, pairs, PROMPTS, per_prompt=per_prompt, draws=1500, sample=3, surrogate_draws=300, rows=3000, seed=1
    )
    reading = reading_of_model(model)
    assert reading is not None
    has = Constraints.of(pairs, reading).features(all_sequences(model.space))[:, 0].double()
    found = list(made.stream(PROMPTS))
    assert [one.prompt for one in found] == PROMPTS
    means = []
    for one in found:
        log_q = after(model, one.prompt)
        log_p = log_q + one.coefficients[0] * has
        log_z = float(log_p.logsumexp(0))
        assert within(one.log_z, log_z)
        means.append(float((log_p - log_z).exp() @ has))
        assert within(one.moments["text c"], means[-1])
        assert len(one.texts) == 3
    # Over the prompts, or after each.
    assert sum(means) / 3 == pytest.approx(0.5, abs=0.06)
    if per_prompt:
        assert all(mean == pytest.approx(0.5, abs=0.1) for mean in means)
    else:
        assert len({tuple(one.coefficients) for one in found}) == 1
        assert max(means) - min(means) > 0.02  # the prompts do differ


def test_what_must_be_is_in_every_text(model: Pretrained) -> None:
    made = control_prompts(
        model, read_constraints(["expression:abc=1"]), PROMPTS, draws=800, sample=2, surrogate_draws=300, seed=2
    )
    reading = reading_of_model(model)
    assert reading is not None
    x = all_sequences(model.space)
    has = torch.tensor(["abc" in reading.text(row) for row in x.rows()])
    for one in made.stream(PROMPTS, weights=True):
        assert within(one.log_z, float(after(model, one.prompt)[has].logsumexp(0)))
        assert one.moments["text abc"].is_exact
        assert all("abc" in text for text in one.texts)
        assert len(one.draws) == 800
        log_weights = torch.tensor([weight for weight, _ in one.draws], dtype=torch.float64)
        assert float(log_weights.logsumexp(0)) - math.log(800) == pytest.approx(one.log_z.value)


@pytest.mark.parametrize("rounds", [0, 1])
def test_z_is_the_probability_of_the_suffix(rounds: int, folder: Path) -> None:
    model = from_pretrained(folder, length=2)
    longer = from_pretrained(folder, length=4)
    made = control_prompts(
        model, {}, ["a", "c"], suffix=" c", draws=1000, rounds=rounds, round_draws=200, rows=2000, seed=3
    )
    whole = all_sequences(longer.space)
    ends = (whole.tokens[:, 2] == 3) & (whole.tokens[:, 3] == 4)
    for one in made.stream(["a", "c"]):
        assert within(one.log_z, float(after(longer, one.prompt)[ends].logsumexp(0)))
    with pytest.raises(UserError, match="no end"):
        control_prompts(from_pretrained(folder, length=2, ends=True), {}, ["a"], suffix="c", draws=10)


def test_a_stream_without_end_is_read_as_far_as_it_is_asked_for(model: Pretrained) -> None:
    made = control_prompts(model, read_constraints([HALF]), PROMPTS, draws=40, surrogate_draws=50, rows=80, seed=4)
    assert len(list(islice(made.stream(repeat("a")), 5))) == 5
    kept = reservoir((str(number) for number in range(3000)), 5, Generator().manual_seed(0))
    assert len(set(kept)) == 5
    assert max(int(one) for one in kept) > 100  # not only the first ones
    assert reservoir(["a", "b"], 5, Generator()) == ["a", "b"]
    with pytest.raises(UserError, match="There are no prompts"):
        reservoir([], 5, Generator())


def test_a_prompt_that_the_model_cannot_read_is_named(model: Pretrained) -> None:
    made = control_prompts(model, read_constraints([HALF]), PROMPTS, draws=40, surrogate_draws=50, seed=5)
    with pytest.raises(UserError, match=r"'c+' … has 20 tokens and 4 are to come, and the model reads 16 at most"):
        list(made.stream(["a", "c" * 20]))


def test_means_over_prompts_name_those_where_nothing_was_found() -> None:
    summary = Summary()
    sure = Estimate.exact(0.25)
    summary.add("one", {"log Z": Estimate(-1.0, -1.5, -0.5, 9.0), "has": sure})
    summary.add("two", {"log Z": Estimate(-math.inf, -math.inf, math.inf, 0.0), "has": Estimate(math.nan, 0, 1, 0.0)})
    summary.add("three", {"log Z": Estimate(-3.0, -3.5, -2.5, 9.0), "has": Estimate.exact(0.75)})
    means = summary.means()
    assert means["has"].value == 0.5
    assert means["log Z"].value == -2.0
    assert means["log Z"].high == pytest.approx(-2.0 + 0.5 / math.sqrt(2))
    assert means["has"].warning == "nothing was found for 1 of 3 prompts: 'two'"


def test_the_command_goes_on_where_it_was_stopped(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in [*PROMPTS, "b", "ba"]))
    words = ["control", "prompts", "--runs", str(tmp_path), "--name", "many", "--model", str(folder)]
    words += ["--prompts", str(prompts), "--features", HALF, "--length", "4", "--ends", "true", "--draws", "40"]
    words += ["--surrogate_draws", "50", "--rows", "80", "--json", "true"]
    assert main(words) == 0
    whole = (tmp_path / "many" / "prompts.jsonl").read_bytes()
    told = json.loads(capsys.readouterr().out)
    assert told["prompts"] == 5
    assert whole.count(b"\n") == 5
    (tmp_path / "many" / "prompts.jsonl").write_bytes(whole[: len(whole) // 2])
    assert main(words) == 0
    assert (tmp_path / "many" / "prompts.jsonl").read_bytes() == whole
    prompts.write_text("{}\n")
    with pytest.raises(UserError, match="Line 1 of"):
        list(read_prompts(prompts))
