"""What was exported is read by transformers, and by ebar, as the same model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ebar
from ebar.errors import UserError
from ebar.journeys.export import export, logit_difference
from ebar.journeys.train import Trained

transformers = pytest.importorskip("transformers", reason="needs the extra ebar[hf]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained[Any]:
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("".join(f"{'ab' * (number % 5)}c\n" for number in range(60)))
    data = ebar.read_lines(path)
    torch.manual_seed(0)
    model = ebar.transformer(data, layers=1, hidden=8, heads=2)
    return ebar.train(model, data, training=ebar.Training(epochs=2), seed=0)


@torch.no_grad()
def test_transformers_reads_the_same_model(trained: Trained[Any], tmp_path: Path) -> None:
    done = export(trained, tmp_path / "hf")
    assert done.tokenizer
    assert done.difference is not None
    assert done.difference < 1e-5
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert type(network).__name__ == "GPT2LMHeadModel"
    assert "auto_map" not in json.loads((tmp_path / "hf" / "config.json").read_text())  # no code of ours
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    own, space = trained.model, trained.data.space
    end = space.end
    text = "ababc"
    tokens = torch.tensor([[*trained.data.alphabet.encode(text), end]])
    read = tokenizer(text, return_tensors="pt")["input_ids"]
    log_probs = network(read).logits.log_softmax(-1)
    theirs = log_probs.gather(-1, tokens[..., None]).sum()
    ours = own.log_prob(ebar.Sequences(tokens, torch.tensor([6])))[0]
    assert float(theirs) == pytest.approx(float(ours), abs=1e-5)
    # And ebar, as any pretrained model.
    same = ebar.from_pretrained(tmp_path / "hf", length=space.length, ends=True)
    x = trained.data.test
    kept = x.select(x.lengths < space.length)
    assert torch.allclose(same.log_prob(kept), own.log_prob(kept), atol=1e-5)


def test_a_wrong_weight_would_be_seen(trained: Trained[Any], tmp_path: Path) -> None:
    export(trained, tmp_path)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        network.transformer.h[0].mlp.c_fc.bias.add_(0.1)
    assert logit_difference(trained.model, network) > 1e-4


def test_what_cannot_be_read_is_refused_and_any_can_be_kept(trained: Trained[Any], tmp_path: Path) -> None:
    lstm = ebar.lstm(trained.data, hidden=4)
    with pytest.raises(UserError, match=r"Lstm, not Transformer: a transformer .* any other as safetensors"):
        export(lstm, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    done = export(lstm, tmp_path / "weights", to="safetensors")
    kept = load_file(str(done.folder / "model.safetensors"))
    assert all(torch.equal(kept[name], value) for name, value in lstm.state_dict().items())
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        export(trained, tmp_path / "notes")
    assert (tmp_path / "notes" / "mine.txt").exists()
