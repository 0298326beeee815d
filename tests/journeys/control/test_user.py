"""Control as a user writes it: on a model of transformers in memory, and on runs of ebar's own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ebar
from ebar.automata.lift import Reading
from ebar.cli import main
from ebar.errors import UserError
from ebar.journeys.control.constraints import Constraints

FEW: dict[str, Any] = {"draws": 600, "checks": 300, "surrogate_draws": 200, "rows": 600}
BRIEF: dict[str, Any] = {"steps": 2, "draws": 16, "evaluate_every": 1, "evaluation_draws": 60, "lora_rank": 2}


def wanted() -> dict[Any, float]:
    return {ebar.Expression("ab"): 1, ebar.Expression("c"): 0.5}


@pytest.fixture
def in_memory(folder: Path) -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    return (
        transformers.AutoModelForCausalLM.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
    )


def test_a_model_in_memory_is_controlled_in_two_lines(in_memory: tuple[Any, Any]) -> None:
    torch.manual_seed(3)
    lm = ebar.from_pretrained(in_memory, length=8)
    ruled = ebar.control(lm, wanted(), **FEW)
    texts = ruled.sample(200)
    assert all("ab" in text for text in texts)
    assert str(texts) == "\n".join(texts)
    weights = texts.draws.log_weights[0].exp()
    share = sum(float(weight) for weight, text in zip(weights, texts, strict=True) if "c" in text) / float(
        weights.sum()
    )
    assert share == pytest.approx(0.5, abs=0.15)
    assert isinstance(ruled.p, ebar.Tilted)
    checked = ruled.check()
    assert checked.after["text ab"].value == 1
    assert checked.after["text c"].low - 0.05 < 0.5 < checked.after["text c"].high + 0.05
    tuned = ruled.tune(**BRIEF)
    assert tuned.folder is None
    x = tuned.model.sample(3, generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(tuned.model.log_prob(x)).all()
    torch.manual_seed(3)
    again = ebar.control(ebar.from_pretrained(in_memory, length=8), wanted(), **FEW)
    assert torch.equal(again.fitted.coefficients, ruled.fitted.coefficients)
    assert again.sample(200) == texts


def test_a_folder_keeps_it_and_load_opens_what_a_command_left(in_memory: tuple[Any, Any], tmp_path: Path) -> None:
    lm = ebar.from_pretrained(in_memory, length=8)
    ruled = ebar.control(lm, wanted(), folder=tmp_path / "ruled", **FEW)
    ruled.check()
    ruled.tune(**BRIEF)
    assert {path.name for path in (tmp_path / "ruled").iterdir()} >= {
        "config.yaml", "lambda.json", "results.json", "report.html", "tune"
    }  # fmt: skip
    assert ebar.from_pretrained(tmp_path / "ruled" / "tune" / "model").space.vocabulary == 6
    again = ebar.control(lm, wanted(), folder=tmp_path / "ruled", **FEW)
    assert torch.equal(again.fitted.coefficients, ruled.fitted.coefficients)
    with pytest.raises(ebar.UserError, match=r"another configuration.*what differs: constraints"):
        ebar.control(lm, {ebar.Expression("ab"): 1}, folder=tmp_path / "ruled", seed=again.seed, **FEW)


@pytest.mark.parametrize("tokeniser", ["characters", "bytes", "bpe"])
def test_a_run_of_ebar_whose_tokens_spell_text_is_controlled_too(tokeniser: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a cat sat on a mat. the hat is on the cat. a rat ran at the mat. " * 40)
    size = {"vocabulary": 270} if tokeniser == "bpe" else {}
    data = ebar.read_text(tmp_path / "text.txt", length=16, tokeniser=tokeniser, **size)
    torch.manual_seed(0)
    q = ebar.lstm(data, hidden=16)
    ruled = ebar.control(q, {ebar.Word("[a-z]?at"): 1, ebar.Expression("e"): 0.4}, **FEW)
    assert all(re.search(r"\b[a-z]?at\b", text, re.ASCII) for text in ruled.sample(20))
    assert list(ruled.check().after.values())[1].value == pytest.approx(0.4, abs=0.15)
    before = {name: weight.clone() for name, weight in q.state_dict().items()}
    tuned = ruled.tune(tmp_path / "tune", **BRIEF)
    assert all(torch.equal(weight, before[name]) for name, weight in q.state_dict().items())
    assert tuned.steps == [0, 1, 2]
    assert (tmp_path / "tune" / "model" / "model.safetensors").exists()
    with pytest.raises(ebar.UserError, match="16 tokens at most, and 17 are asked for"):
        ebar.control(q, {ebar.Expression("e"): 0.4}, length=17, **FEW)
    shorter = ebar.control(q, {ebar.Expression("e"): 0.4}, length=8, prompt="a ", reads_prompt=True, **FEW)
    assert shorter.q.space.length == 8


def test_a_model_that_knows_no_text_needs_its_data() -> None:
    model = ebar.Autoregressive(ebar.Lstm(4, hidden=4), ebar.Softmax(4, 4), ebar.Space(4, 3))
    with pytest.raises(ebar.UserError, match="give data="):
        ebar.control(model, {ebar.Expression("a"): 1})


def test_the_command_controls_a_run_of_ebar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("abab\nbaab\naabb\nbbaa\n" * 20)
    words = ["--data.kind", "lines", "--data.train", str(tmp_path / "lines.txt"), "--backbone.hidden", "8"]
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "--name", "lm", *runs, *words, "--training.epochs", "1"]) == 0
    few = [word for name, value in FEW.items() for word in (f"--{name}", str(value))]
    term = ["--features", "expression:bab=1"]
    assert main(["control", "fit", "--name", "ruled", *runs, "--model", str(tmp_path / "lm"), *few, *term]) == 0
    capsys.readouterr()
    assert main(["control", "sample", str(tmp_path / "ruled"), "--n", "4", "--json"]) == 0
    assert all("bab" in one["text"] for one in json.loads(capsys.readouterr().out)["samples"])
    loaded = ebar.load(tmp_path / "ruled")
    assert all("bab" in text for text in loaded.sample(3))


def test_a_word_in_place_of_a_feature_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"'rabbit' is no feature: .* ebar\.Word\('rabbit'\)"):
        Constraints.of({"rabbit": 1}, Reading(alphabet="abirt"))


def test_a_network_without_its_tokenizer_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"A Linear in memory needs its tokenizer .* the pair \(model, tokenizer\)"):
        ebar.from_pretrained(nn.Linear(2, 2))
