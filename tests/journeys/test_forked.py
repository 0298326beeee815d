"""Branches that share their history to the last bit."""

import shutil

import pytest
import torch
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.heads.softmax import Softmax
from ebar.journeys.forked import Fork, train_forked
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.training import Batches
from ebar.types import Sequences, Space

SPACE = Space(vocabulary=3, length=5)


def data(seed: int) -> Sequences:
    tokens = torch.randint(3, (24, 5), generator=Generator().manual_seed(seed))
    return Sequences(tokens, torch.full((24,), 5))


def build() -> Autoregressive:
    backbone = Lstm(3, layers=1, hidden=6, dropout=0.2)
    return Autoregressive(backbone, Softmax(backbone.width, 3), SPACE)


def mle(model):
    return MaximumLikelihood(model=model)


def run(folder, branches, epochs=4, at=2):
    batches = Batches(data=data(0), batch_size=8, seed=1)
    held_out = Batches(data=data(1), batch_size=24, shuffle=False)
    fork = Fork(epochs=epochs, at=at, seed=3, log_every=1)
    return train_forked(folder, fork, build, mle, branches, batches, lambda model: (mle(model), held_out))


def weights(branch):
    return torch.cat([parameter.detach().flatten() for parameter in branch.module.parameters()])


def test_a_branch_that_goes_on_as_the_trunk_did_is_a_run_that_never_forked(tmp_path):
    forked = run(tmp_path / "forked", {"base": mle})["base"]
    whole = run(tmp_path / "whole", {"base": mle}, at=4)["base"]
    assert torch.equal(weights(forked), weights(whole))
    assert forked.curve("loss") == whole.curve("loss")


def test_branches_agree_before_the_fork_and_differ_after_it(tmp_path):
    branches = run(tmp_path, {"base": mle, "twin": lambda model: Earm(model=model, weight=1.0)})
    base, twin = (dict(branch.curve("nll_per_token")) for branch in branches.values())
    steps = 2 * 3  # two epochs of three batches
    assert [base[step] for step in range(1, steps + 1)] == [twin[step] for step in range(1, steps + 1)]
    assert base[steps + 2] != twin[steps + 2]  # the step after the fork moved them apart
    assert branches["twin"].curve("effective_share")[0][0] == steps + 1


def test_a_branch_killed_while_it_was_copied_is_copied_anew(tmp_path):
    before = weights(run(tmp_path, {"base": mle})["base"])
    shutil.rmtree(tmp_path / "base")
    (tmp_path / ".saving-base").mkdir()  # half a copy
    assert torch.equal(weights(run(tmp_path, {"base": mle})["base"]), before)


def test_the_module_has_the_best_held_out_weights(tmp_path):
    branch = run(tmp_path, {"base": mle}, epochs=6)["base"]
    held_out = Batches(data=data(1), batch_size=24, shuffle=False)
    (batch,) = held_out.at(0, 0)
    cost = -float(branch.module.log_prob(batch).detach().sum()) / 120
    assert cost == pytest.approx(min(value for _, value in branch.curve("validation.loss")), rel=1e-6)
