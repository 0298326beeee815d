"""A sequence classifier's probability as a feature."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.automata.lift import Reading
from ebar.build.control import read_constraints
from ebar.errors import UserError
from ebar.features.functions import classifier, reward_model
from ebar.journeys.control.constraints import Constraints
from ebar.types import Sequences


@pytest.fixture(scope="module")
def place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    made = tmp_path_factory.mktemp("classifier")
    configuration = transformers.GPT2Config(
        vocab_size=6, n_positions=16, n_embd=8, n_layer=1, n_head=1, num_labels=2, pad_token_id=5,
        id2label={0: "sad", 1: "glad"}, label2id={"sad": 0, "glad": 1}, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.GPT2ForSequenceClassification(configuration).save_pretrained(made)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = "<end>"
    tokenizer.save_pretrained(made)
    return made


def test_labels_are_probabilities(place: Path, reading: Reading) -> None:
    texts = ["ab", "c ab", "a" * 10]
    glad, sad = (classifier(f"{place}:{label}").function(texts) for label in ("glad", "sad"))
    assert [one + other for one, other in zip(glad, sad, strict=True)] == pytest.approx([1, 1, 1])
    assert len(set(glad)) == 3
    (term,) = Constraints.of(read_constraints([f"classifier:{place}:glad=0.6"]), reading)
    x = Sequences(torch.tensor([[2, 5, 0], [4, 3, 2]]), torch.tensor([2, 3]))
    assert term.feature(x).tolist() == pytest.approx(glad[:2], abs=1e-5)
    assert not term.pointwise


def test_a_label_it_has_not_is_one_sentence(place: Path, reading: Reading) -> None:
    for argument in (str(place), f"{place}:merry"):
        with pytest.raises(UserError, match="it has glad, sad"):
            classifier(argument)
    with pytest.raises(UserError, match="a degree, which cannot be 0 or 1 in every text"):
        Constraints.of(read_constraints([f"classifier:{place}:glad=1"]), reading)


def test_a_reward_model_gives_its_output_as_it_is(place: Path, tmp_path: Path) -> None:
    """One output is no probability: a classifier takes its logistic function, a reward is the number itself."""
    transformers = pytest.importorskip("transformers")
    network = transformers.GPT2ForSequenceClassification.from_pretrained(
        place, num_labels=1, ignore_mismatched_sizes=True
    )
    network.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(place).save_pretrained(tmp_path)
    texts = ["ab", "c ab"]
    rewards = reward_model(tmp_path)(texts)
    chances = classifier(tmp_path).function(texts)
    assert torch.sigmoid(torch.tensor(rewards)).tolist() == pytest.approx(chances, abs=1e-6)
    assert reward_model(f"{place}:glad")(texts) == classifier(f"{place}:glad").function(texts)
