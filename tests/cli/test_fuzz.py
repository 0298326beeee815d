"""Whatever is typed, no command ends in a traceback: at least 2,000 generated cases over this file."""

import contextlib
import functools
import io
import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ebar.build import gam
from ebar.build.train import load_trained
from ebar.cli import main
from ebar.errors import UserError
from tests.cli.conftest import TINY

NUMBERS = ["-1", "0", "1", "2", "3", "0.5", "1.5", "nan", "inf", "-inf", "1e999", "1000000000000", "-7", "3j", "٣"]
WORDS = ["", " ", "null", "true", "[]", "{}", "[1,2]", "{a: b}", "--", "-", "=", ":", "!", "0", "01", "11", "ab",
         "é", "\U0001f600", "*", "(", "0{9999}", "[", "\\", "~", "&", "0|", "(0|1)*", "..", "/",
         "/dev/null", "no/such/file", "\t", "a\nb"]  # fmt: skip
value = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=12))
TERMS = ["motif:11=1", "!motif:11=-inf", "expression:0{2}=2", "whole:0*=1", "starts_with:0=-1", "ngram_count:10=0.5",
         "length:=-0.1", "motif:=1", "motif:2=1", "expression:(=1", "predicate:x=1", "predicate:/dev/null:f=1",
         "nothing:1=1", "!length:=1", "motif:11=nan", "motif:11=inf", "length:=-inf",
         "motif:11=x", "=1", "motif:11"]  # fmt: skip
FLAGS = {
    "language": ["--motif", "--expression", "--length", "--presence", "--alphabet", "--stop", "--end", "--n", "--seed",
                 "--other.motif", "--other.length", "--draws", "--json", "describe", "entropy", "sample", "compare"],
    "train": ["--data.kind", "--data.motif", "--data.expression", "--data.length", "--data.presence", "--data.alphabet",
              "--data.stop", "--data.size", "--data.train", "--backbone.kind", "--backbone.layers", "--backbone.hidden",
              "--backbone.dropout", "--backbone.embedding", "--head.kind", "--objective.kind", "--objective.per",
              "--optimiser.kind", "--optimiser.learning_rate", "--optimiser.betas", "--schedule.kind",
              "--schedule.warmup", "--schedule.steps", "--training.batch_size", "--training.accumulate",
              "--training.patience", "--training.clip", "--training.maximal_length", "--seed",
              "--device", "--dtype", "--config", "--name"],
    "gam": ["--features", "--ft", "--rounds", "--regime", "--fresh", "--student_backbone", "--matching.kind",
            "--matching.draws", "--matching.ridge", "--matching.schedule.patience", "--sampler.kind",
            "--distillation.size", "--distillation.proposal", "--base.epochs", "--base.clip", "--continuation.schedule",
            "--data.kind", "--data.motif", "--data.train", "--backbone.hidden", "--seed", "--dtype", "--config"],
    "sample": ["--n", "--tilt", "--temperature", "--top_k", "--top_p", "--maximal_length", "--sampler.kind",
               "--sampler.batch_size", "--sampler.log_bound", "--sampler.moves", "--sampler.particles", "--proposal",
               "--seed", "--json", "--config", "--prompt", "--separator", "--complete", "--given"],
    "evaluate": ["--n", "--feature", "--seed", "--json"],
    "estimate": ["--n", "--feature", "--divergence", "--tilt", "--temperature", "--top_k", "--top_p", "--sampler.kind",
                 "--sampler.batch_size", "--proposal", "--seed", "--json"],
    "reproduce": ["--scale", "--workers", "--fresh", "--render", "--json", "nothing/here", "spine", "../samplers"],
    "doctor": ["--json", "--nothing"],
}  # fmt: skip
CASES = {"language": 500, "train": 200, "sample": 300, "evaluate": 150, "estimate": 200, "reproduce": 450}
CASES["doctor"] = 250
CASES["gam"] = 100
assert sum(CASES.values()) >= 2000

KINDS = [
    "ancestral",
    "rejection",
    "importance",
    "quasi_rejection",
    "resampling",
    "metropolis",
    "smc",
    "annealed",
    "look_ahead",
]


def options(command: str) -> st.SearchStrategy[list[str]]:
    real, unreal = st.sampled_from(FLAGS[command]), st.text(max_size=8).map(lambda text: "--" + text)
    flag = st.integers(0, 9).flatmap(lambda chance: unreal if chance == 9 else real)  # mostly real: they go deeper
    argument = value
    if command in {"sample", "estimate", "evaluate"}:
        argument = st.one_of(value, st.sampled_from(TERMS), st.sampled_from(KINDS))
    pair = st.tuples(flag, argument).map(list)
    parts = st.lists(st.one_of(pair, flag.map(lambda text: [text])), max_size=4)
    return parts.map(lambda words: list(itertools.chain(*words))).filter(ends)


def ends(words: list[str]) -> bool:
    """A trillion draws are a lawful request, which streams until someone interrupts it."""
    return not any(word in ("--n", "--draws") and "000" in after for word, after in itertools.pairwise(words))


def run(words: list[str]) -> None:
    """What every command line must come to: success, or one sentence and exit code 2."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = main(words)
        except SystemExit as ended:  # --help
            code = 0 if ended.code in (0, None) else 99
    assert code in (0, 2), (words, code, err.getvalue())
    assert "Traceback" not in err.getvalue()
    if code == 2:
        last = err.getvalue().splitlines()[-1]
        assert last.startswith("ebar: "), words
        assert len(last) > len("ebar: ") + 10, words


def fuzz(command: str):
    return settings(
        max_examples=CASES[command] * int(os.environ.get("EBAR_FUZZ", "1")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """A run is loaded once and no plot is drawn: neither depends on what was typed."""
    with pytest.MonkeyPatch.context() as patch:
        loaded = functools.cache(load_trained)
        for place in ("ebar.build.drawing", "ebar.cli.evaluate", "ebar.cli.sample"):
            patch.setattr(f"{place}.load_trained", loaded)
        patch.setattr("ebar.journeys.evaluate.write_run_page", lambda folder, **__: folder)
        yield


@fuzz("language")
@given(words=options("language"))
@example(words=["--motif", "1" * 400, "--length", "300"])
def test_language_never_ends_in_a_traceback(words: list[str]) -> None:
    run(["language", "--length", "6", *words])


names = itertools.count()


@fuzz("train")
@given(words=options("train"))
def test_train_never_ends_in_a_traceback(words: list[str], tmp_path: Path) -> None:
    run(["train", "--runs", str(tmp_path), "--name", f"run{next(names)}", *TINY, "--training.epochs", "1", *words])


@fuzz("gam")
@given(words=options("gam"))
def test_gam_never_ends_in_a_traceback(words: list[str], tmp_path: Path) -> None:
    """Until the first stage begins: what comes after is that of other commands, and takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gam, "train_as", stopped)
        run(
            ["gam", "--runs", str(tmp_path), "--name", f"run{next(names)}", *TINY[:8], "--features", "motif:11", *words]
        )


def stopped(*_: object, **__: object) -> None:
    raise UserError("Nothing is trained here, whatever was asked for.")


@fuzz("sample")
@given(words=options("sample"))
def test_sample_never_ends_in_a_traceback(words: list[str], trained: Path) -> None:
    run(["sample", str(trained), "--n", "3", *words])


@fuzz("evaluate")
@given(words=options("evaluate"))
def test_evaluate_never_ends_in_a_traceback(words: list[str], trained: Path) -> None:
    run(["evaluate", str(trained), "--n", "5", *words])


@fuzz("estimate")
@given(words=options("estimate"))
def test_estimate_never_ends_in_a_traceback(words: list[str], trained: Path) -> None:
    run(["estimate", str(trained), "--tilt", "motif:11=1", "--n", "20", *words])


@fuzz("reproduce")
@given(words=options("reproduce"))
def test_reproduce_never_ends_in_a_traceback(words: list[str], tmp_path: Path) -> None:
    run(["reproduce", "--output", str(tmp_path), "--work", str(tmp_path), *words])


@fuzz("doctor")
@given(words=options("doctor"))
def test_doctor_never_ends_in_a_traceback(words: list[str]) -> None:
    run(["doctor", *words])


@settings(max_examples=100)
@given(words=st.lists(value, max_size=3))
def test_any_command_at_all_never_ends_in_a_traceback(words: list[str]) -> None:
    if words[:1] and words[0] in FLAGS:
        return
    run(words)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1, 2", b"- a\n- b", b"seed: x", b"data: 3", b"data: {kind: 3}", b"a: &a [*a]", b"42"],
)
def test_a_broken_configuration_never_ends_in_a_traceback(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    run(["train", "--runs", str(tmp_path), *TINY, "--training.epochs", "1", "--config", str(path)])
