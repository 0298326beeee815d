"""`train`: best weights, memory and folders, and branches of one trunk that are the runs trained alone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ebar.backbones.lstm import Lstm
from ebar.build.train import TRUNK, train_as, train_branches
from ebar.config.reader import Chosen
from ebar.config.train import TrainConfig
from ebar.data import LanguageData
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.journeys.train import Trained, train
from ebar.models.construction import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.training.course import Training

LANGUAGE = LanguageData(motif="11", length=5, size=40, test_size=10)
FOUR = Training(epochs=4, batch_size=8)


@pytest.fixture(scope="module")
def data() -> Corpus:
    return LANGUAGE.read()


def lstm(data: Corpus) -> Autoregressive:
    backbone = Lstm(data.space.vocabulary, layers=1, hidden=6, dropout=0.2)
    return Autoregressive(backbone, Softmax(backbone.width, data.space.vocabulary), data.space)


def weights(trained: Trained[Any]) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])


def test_the_model_has_the_weights_of_the_lowest_validation_loss(data: Corpus) -> None:
    trained = train(lstm(data), data, training=replace(FOUR, epochs=6), seed=1)
    assert not trained.model.training
    cost = -float(trained.model.log_prob(data.validation).detach().sum()) / int(data.validation.lengths.sum())
    assert cost == pytest.approx(min(value for _, value in trained.history.curve("validation.loss")), rel=1e-6)
    assert trained.folder is None


def test_in_memory_and_in_a_folder_are_one(data: Corpus, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = lstm(data)
    twin = lstm(data)
    twin.load_state_dict(model.state_dict())
    memory = train(model, data, training=FOUR, seed=1)
    folder = train(twin, data, training=FOUR, seed=1, folder=tmp_path)
    assert torch.equal(weights(memory), weights(folder))
    assert memory.history == folder.history


def test_without_a_seed_torch_decides(data: Corpus) -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return weights(train(lstm(data), data, training=FOUR))

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_a_folder_continues_whatever_the_first_weights_of_the_second_call(data: Corpus, tmp_path: Path) -> None:
    whole = train(lstm(data), data, training=FOUR, folder=tmp_path / "a")
    again = train(lstm(data), data, training=FOUR, folder=tmp_path / "a")
    assert torch.equal(weights(whole), weights(again))
    with pytest.raises(UserError, match=r"what differs: training.batch_size"):
        train(lstm(data), data, training=replace(FOUR, batch_size=4), folder=tmp_path / "a")
    other = replace(LANGUAGE, motif="101").read()
    with pytest.raises(UserError, match=r"what differs: data.motif"):
        train(lstm(data), other, training=FOUR, folder=tmp_path / "a")


def configuration(**objective: Any) -> TrainConfig:
    options = {"motif": "11", "length": 5, "size": 40, "test_size": 10}
    return TrainConfig(
        seed=3, device="cpu", precision="float32", data=Chosen(kind="language", options=options),
        backbone=Chosen(kind="lstm", options={"layers": 1, "hidden": 6, "dropout": 0.2}),
        head=Chosen(kind="softmax", options={}),
        objective=Chosen(kind=objective.pop("kind", "maximum_likelihood"), options=objective),
        optimiser=Chosen(kind="adam", options={}), schedule=Chosen(kind="cosine", options={}), training=FOUR,
    )  # fmt: skip


def test_branches_are_the_runs_that_were_trained_alone(tmp_path: Path) -> None:
    """E-ARM keeps a state of its own in checkpoints, which the trunk has not; its weight grows from where it began.

    The learning rate falls over all epochs, in the trunk too.
    """
    runs = {
        "base": configuration(),
        "earm": configuration(kind="earm", start_epoch=2, weight=0.5, ramp=7),
        "later": configuration(kind="earm", start_epoch=3, weight=0.5, steps="mean"),
        "scheduled": configuration(kind="scheduled_sampling", start_epoch=2, slope=None),
    }
    found = train_branches(runs, tmp_path / "shared", epochs=2)
    for name, run in runs.items():
        alone = train_as(run, tmp_path / name)
        assert torch.equal(weights(found[name]), weights(alone))
        assert found[name].history == alone.history
        assert found[name].result == alone.result
        for file in ("config.yaml", "metrics.jsonl", "results.json"):
            assert (tmp_path / "shared" / name / file).read_bytes() == (tmp_path / name / file).read_bytes()
    shares = found["earm"].history.curve("effective_share")
    assert shares[0][0] > 2 * 5  # five batches an epoch
    assert not torch.equal(weights(found["base"]), weights(found["earm"]))


def test_a_branch_that_was_killed_while_checkpoints_were_copied_copies_them_again(tmp_path: Path) -> None:
    runs = {"earm": configuration(kind="earm", start_epoch=2, weight=0.5)}
    whole = train_branches(runs, tmp_path / "whole", epochs=2)["earm"]
    own = tmp_path / "killed" / "earm"
    shutil.copytree(tmp_path / "whole" / TRUNK, tmp_path / "killed" / TRUNK)
    shutil.copytree(tmp_path / "whole" / TRUNK / "checkpoints", own / ".saving-checkpoints")
    (own / "checkpoints").mkdir()
    (own / "metrics.jsonl").write_text("half a li")
    again = train_branches(runs, tmp_path / "killed", epochs=2)["earm"]
    assert torch.equal(weights(whole), weights(again))
    assert whole.history == again.history


def test_a_branch_of_another_trunk_is_refused(tmp_path: Path) -> None:
    trunk = tmp_path / "trunk"
    train_as(configuration(), trunk)
    other = replace(configuration(), seed=4)
    with pytest.raises(UserError, match=r"cannot branch from .* which has another seed"):
        train_as(other, tmp_path / "branch", trunk=trunk)
    (trunk / "results.json").unlink()
    with pytest.raises(UserError, match="finish that run first"):
        train_as(configuration(), tmp_path / "branch", trunk=trunk)


def test_a_run_of_objects_says_what_it_is_made_of(data: Corpus, tmp_path: Path) -> None:
    model = lstm(data)
    train(model, data, objective=Earm(model=model, weight=0.1), training=FOUR, seed=2, folder=tmp_path)
    told = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert told["objective"]["kind"] == "earm"
    assert told["objective"]["weight"] == 0.1
    assert "model" not in told["objective"]
    assert told["training"]["epochs"] == 4
    assert told["optimiser"] == {
        "kind": "adam", "learning_rate": 1e-3, "betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.0
    }  # fmt: skip
    assert json.loads((tmp_path / "environment.json").read_text())["seed"] == 2


def test_validation_data_may_have_batches_of_their_own(data: Corpus) -> None:
    """The mean over tokens is the same, however it is cut."""

    def first(size: int | None) -> float:
        trained = train(lstm(data), data, training=replace(FOUR, epochs=1, held_out_batch=size), seed=1)
        return trained.history.curve("validation.loss")[0][1]

    torch.manual_seed(0)
    one = first(None)
    torch.manual_seed(0)
    assert first(3) == pytest.approx(one, rel=1e-5)


def test_the_default_objective_is_maximum_likelihood(data: Corpus) -> None:
    torch.manual_seed(0)
    model = lstm(data)
    explicit = train(model, data, objective=MaximumLikelihood(model=model), training=FOUR, seed=1)
    torch.manual_seed(0)
    assert torch.equal(weights(explicit), weights(train(lstm(data), data, training=FOUR, seed=1)))
