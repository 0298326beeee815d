"""Where modules are found, and what evaluation mode does to them."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebar.modes import evaluation_mode, in_evaluation_mode, modules_in

NETWORK = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))


class Holder:
    def __init__(self, held: Any):
        self.held = held

    def __call__(self, x: Tensor) -> Tensor:
        return self.held(x)  # type: ignore[no-any-return]

    def method(self, x: Tensor) -> Tensor:
        return self.held(x)  # type: ignore[no-any-return]


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any):
        self.held = held


def uses_a_global(x: Tensor) -> Tensor:
    return NETWORK(x)  # type: ignore[no-any-return]


def uses_a_default(x: Tensor, network: nn.Module = NETWORK) -> Tensor:
    return network(x)  # type: ignore[no-any-return]


def closed_over(network: nn.Module) -> Any:
    return lambda x: network(x)


WAYS = {
    "the module": NETWORK,
    "an object": Holder(NETWORK),
    "an object of slots": Slotted(NETWORK),
    "an object in an object": Holder(Holder(NETWORK)),
    "a method": Holder(NETWORK).method,
    "a global name": uses_a_global,
    "a default": uses_a_default,
    "a closure": closed_over(NETWORK),
    "a partial": partial(closed_over(NETWORK)),
    "a partial's argument": partial(lambda network, x: network(x), NETWORK),
    "a list": [1, NETWORK],
    "a dictionary": {"network": NETWORK},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_module_is_found_wherever_it_is_held(way):
    found = modules_in(WAYS[way])
    assert {id(module) for module in found} == {id(module) for module in NETWORK.modules()}
    NETWORK.train()
    NETWORK[0].eval()
    with evaluation_mode(WAYS[way]):
        assert not any(module.training for module in NETWORK.modules())
    assert [module.training for module in NETWORK.modules()] == [True, False, True]


def test_what_holds_none_has_none():
    for nothing in (None, 1, "text", torch.zeros(2), torch, nn.Linear, [0] * 1000, len, partial(len)):
        assert modules_in(nothing) == []


def test_modes_come_back_after_an_error_and_nested_ones_in_turn():
    NETWORK.train()

    @in_evaluation_mode
    def fails(network: nn.Module) -> None:
        with evaluation_mode(network):
            assert not network.training
        assert not network.training
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails(network=NETWORK)
    assert all(module.training for module in NETWORK.modules())


def test_a_recurrent_layer_that_is_to_have_a_gradient_loses_its_dropout_and_keeps_its_mode():
    """CUDA computes no gradient of one in evaluation mode."""
    layer = nn.LSTM(2, 3, num_layers=2, dropout=0.5).train()
    x = torch.randn(4, 1, 2, generator=torch.Generator().manual_seed(0))
    wanted = layer.eval()(x)[0]
    layer.train()
    with evaluation_mode(layer):
        assert (layer.training, layer.dropout) == (True, 0.0)
        torch.testing.assert_close(layer(x)[0], wanted, rtol=0, atol=0)
    with torch.no_grad(), evaluation_mode(layer):
        assert (layer.training, layer.dropout) == (False, 0.5)
        torch.testing.assert_close(layer(x)[0], wanted)
    assert (layer.training, layer.dropout) == (True, 0.5)
