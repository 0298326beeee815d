"""Training ends after so many steps, stops after so many minutes, evaluates every so many steps."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from ebar.data import LanguageData
from ebar.data.corpus import Corpus
from ebar.errors import Interrupted, UserError
from ebar.journeys.train import Trained, train
from ebar.models.construction import Autoregressive, lstm
from ebar.training.course import Training
from ebar.training.optimisers import LinearDecay

AT_ONCE = 1e-9  # minutes: over after any step
LIMITED = Training(epochs=9, max_steps=11, evaluate_steps=4, batch_size=16, checkpoint_every=3)


@pytest.fixture(scope="module")
def data() -> Corpus:
    return LanguageData(motif="11", length=5, size=40, test_size=10).read()


def run(data: Corpus, training: Training, folder: Path | None = None) -> Trained[Autoregressive]:
    torch.manual_seed(1)
    model = lstm(data, layers=1, hidden=4, dropout=0.3)
    return train(model, data, training=training, schedule=LinearDecay(), seed=1, folder=folder)


def test_steps_end_it_are_evaluated_at_and_known_to_the_schedule(data: Corpus) -> None:
    """3 steps are an epoch: 11 of them end in the fourth."""
    trained = run(data, LIMITED)
    assert trained.result is not None
    assert (trained.result.reason, trained.result.position.step) == ("steps", 11)
    assert [step for step, _ in trained.history.curve("validation.loss")] == [4, 8, 11]
    rates = dict(trained.history.curve("learning_rate"))
    assert rates[10] == pytest.approx(1e-3 * 2 / 11)  # the tenth step's, of 11
    fewer = run(data, replace(LIMITED, epochs=2))
    assert fewer.result is not None
    assert (fewer.result.reason, fewer.result.position.step) == ("epochs", 6)


def test_stopped_by_the_clock_after_every_step_it_ends_as_if_it_never_was(data: Corpus, tmp_path: Path) -> None:
    whole = run(data, LIMITED, tmp_path / "whole")
    limited = replace(LIMITED, max_minutes=AT_ONCE)
    for step in range(1, 11):
        with pytest.raises(Interrupted) as stopped:
            run(data, limited, tmp_path / "stopped")
        result = stopped.value.args[0]
        assert (result.status, result.reason, result.position.step) == ("interrupted", "time", step)
        assert not (tmp_path / "stopped" / "results.json").exists()
    again = run(data, limited, tmp_path / "stopped")
    # config.yaml too: a limit is no part of a run. (Of the checkpoints before the last, another one is kept.)
    for name in ("config.yaml", "metrics.jsonl", "results.json", "checkpoints/step-000000011/model.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert again.result == whole.result
    assert "max_minutes" not in yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())["training"]


def test_a_folder_of_an_earlier_version_goes_on(data: Corpus, tmp_path: Path) -> None:
    """Where new options are as by default, what is kept of a run made in Python has none of them."""
    run(data, Training(epochs=1), tmp_path)
    described = yaml.safe_load((tmp_path / "config.yaml").read_text())["training"]
    assert not {"max_steps", "evaluate_steps", "autocast", "max_minutes"} & set(described)
    with pytest.raises(UserError, match=r"training\.max_steps"):
        run(data, Training(epochs=1, max_steps=1), tmp_path)


def test_autocast_is_checked_before_anything_is_written(
    data: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(UserError, match="computes no bfloat16"):
        run(data, Training(epochs=1, autocast=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    half, whole = (run(data, Training(epochs=1, autocast=on)).result for on in (True, False))
    assert half is not None
    assert whole is not None
    assert half.best.value != whole.best.value
    assert half.best.value == pytest.approx(whole.best.value, abs=0.01)
