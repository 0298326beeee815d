"""The tuned model of `ebar control tune`, exported: transformers has the logits of the π that was tuned."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.build.control import open_control
from ebar.cli import dispatch
from ebar.journeys.export import logit_difference
from ebar.models.stepwise import teacher_forced
from ebar.modes import evaluation_mode
from ebar.recipes.control.tables import write_toy

transformers = pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
pytest.importorskip("peft", reason="needs the extra ebar[hf]")

DRAWS = ["--draws", "200", "--checks", "100", "--surrogate_draws", "100"]
TUNING: dict[str, Any] = {"steps": 2, "draws": 16, "evaluation_draws": 50, "learning_rate": 0.01}


def tuned(model: Path, runs: Path, *words: str, **tuning: Any) -> Any:
    """π as it is in memory; its run is runs/control, and runs/exported what was exported of it."""
    fit = ["fit", "--runs", str(runs), "--name", "control", "--model", str(model), *DRAWS, *words]
    assert dispatch(["control", *fit]) == 0
    found = open_control(runs / "control").tune(runs / "control" / "tune", **{**TUNING, **tuning})
    assert found.best_step > 0  # else π would be q
    assert dispatch(["export", str(runs / "control"), "--to", "hf", "--output", str(runs / "exported")]) == 0
    return found.model


def test_a_model_of_hugging_face_whose_adapters_are_merged(tmp_path: Path) -> None:
    toy = write_toy(tmp_path / "toy")
    pi = tuned(toy, tmp_path, "--length", "6", "--features", "expression:ab=1", lora_rank=2)
    before, after = (transformers.AutoModelForCausalLM.from_pretrained(path) for path in (toy, tmp_path / "exported"))
    tokens = torch.randint(3, 60, (4, 6), generator=torch.Generator().manual_seed(0))
    began = torch.cat([torch.full_like(tokens[:, :1], before.config.bos_token_id), tokens[:, :-1]], 1)
    with torch.no_grad(), evaluation_mode(pi):
        own = teacher_forced(pi, tokens).log_softmax(-1)
        differences = [
            float((network(began).logits.log_softmax(-1) - own)[own > -30].abs().max()) for network in (before, after)
        ]
    assert differences[1] < 1e-5
    assert differences[0] > 1e-3  # tuning has changed it
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "exported").vocab_size > 2


@pytest.mark.parametrize("length", ["8", "20"])  # shorter than the texts of the run, or as long
def test_a_run_of_ebar_s_own_becomes_a_gpt2(length: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{'ab' * (number % 5)}c\n" for number in range(60)))
    words = (
        f"--data.kind lines --data.train {lines} --backbone.kind transformer --backbone.layers 1 --backbone.hidden 8"
    )
    more = f"--backbone.heads 2 --training.epochs 2 --runs {tmp_path} --name base"
    assert dispatch(["train", *words.split(), *more.split()]) == 0
    pi = tuned(tmp_path / "base", tmp_path, "--length", length, "--features", "expression:ab=1", lora_rank=None)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert type(network).__name__ == "GPT2LMHeadModel"
    assert logit_difference(getattr(pi, "model", pi), network) < 1e-5
