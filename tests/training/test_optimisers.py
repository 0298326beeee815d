import pytest
import torch
from torch import nn, optim

from ebar.training.optimisers import OPTIMISERS, SCHEDULES
from ebar.training.players import Player, averaged, evaluating
from ebar.types import Clock


def player(name: str, **options: float) -> Player:
    module = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        module.weight.fill_(1.0)
    return Player(module=module, optimiser=OPTIMISERS[name](**options).build(module.parameters()))


def step(one: Player, gradient: float) -> float:
    (weight,) = one.parameters()
    weight.grad = torch.full_like(weight, gradient)
    assert one.optimiser is not None
    one.optimiser.step()
    return weight.item()


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", optim.Adam), ("adamw", optim.AdamW), ("sgd", optim.SGD), ("asgd", optim.ASGD)]
)
def test_a_name_gives_that_optimiser_and_no_other(name, kind):
    assert type(player(name).optimiser) is kind


@pytest.mark.parametrize(
    ("name", "options", "weight"),
    [
        ("sgd", {"learning_rate": 0.5}, 0.0),  # 1 − 0.5·2
        ("sgd", {"learning_rate": 0.5, "weight_decay": 1.0}, -0.5),  # 1 − 0.5·(2 + 1)
        ("adam", {"learning_rate": 0.1}, 0.9),  # the first step is the sign of the gradient
        ("adam", {"learning_rate": 0.1, "weight_decay": 1.0}, 0.9),  # rescaled away
        ("fused_adam", {"learning_rate": 0.1, "weight_decay": 1.0}, 0.9),
        ("adamw", {"learning_rate": 0.1, "weight_decay": 1.0}, 0.8),  # 1·(1 − 0.1) − 0.1
        ("asgd", {"learning_rate": 0.5}, 0.0),
    ],
)
def test_a_first_step_worked_out_by_hand(name, options, weight):
    assert step(player(name, **options), 2.0) == pytest.approx(weight, abs=1e-7)


def test_averaged_adam_takes_adams_steps_and_keeps_their_mean_from_a_step_on():
    plain, one = player("adam", learning_rate=0.1), player("averaged_adam", learning_rate=0.1, average_from=2)
    (weight,) = one.parameters()
    weights = []
    for gradient in (1.0, -3.0, 2.0, 0.5, -1.0):
        weights.append(step(one, gradient))
        assert weights[-1] == step(plain, gradient)
        with averaged(one):
            last = weights[2:] or weights[-1:]
            assert weight.item() == pytest.approx(sum(last) / len(last), abs=1e-12)
        assert weight.item() == weights[-1]
    with pytest.raises(ValueError, match="average_from must be at least 0"):
        player("averaged_adam", average_from=-1)


def test_evaluation_sees_the_average_and_training_does_not():
    one = player("asgd", learning_rate=1.0)
    weights = [step(one, gradient) for gradient in (1.0, -3.0, 2.0)]
    assert weights == [0.0, 3.0, 1.0]
    with averaged(one):
        assert one.parameters()[0].item() == 2.0  # torch's average leaves the first out: (3 + 1)/2
    assert one.parameters()[0].item() == 1.0


def test_a_weight_is_restored_even_when_the_evaluation_fails():
    one = player("asgd", learning_rate=1.0)
    for gradient in (1.0, -3.0, 2.0):
        step(one, gradient)
    with pytest.raises(ZeroDivisionError), averaged(one):
        _ = 1 / 0
    assert one.parameters()[0].item() == 1.0


def test_evaluating_leaves_each_module_in_the_mode_it_was_in():
    module = nn.Sequential(nn.Dropout(), nn.Dropout())
    module[1].eval()
    with evaluating(Player(module=module)):
        assert not module[0].training
        assert not torch.is_grad_enabled()
    assert (module.training, module[0].training, module[1].training) == (True, True, False)


def test_the_schedule_scales_the_learning_rate_given_not_the_last_one():
    module = nn.Linear(1, 1)
    one = Player(
        module=module,
        optimiser=OPTIMISERS["sgd"](learning_rate=0.8).build(module.parameters()),
        schedule=SCHEDULES["inverse_epoch"](),
    )
    assert [one.set_learning_rate(Clock(0, epoch)) for epoch in (1, 1, 3)] == [0.4, 0.4, 0.2]
