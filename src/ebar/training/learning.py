"""Checkpoints of a network of which only some parameters learn."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Learning(nn.Module):
    """A module whose `state_dict` leaves out parameters that have no gradient.

    They are the same whenever the network is loaded, so that a pretrained network with LoRA has checkpoints of a few
    megabytes.
    """

    def __init__(self, module: nn.Module, *, keep_mode: bool = False):
        super().__init__()
        self.module = module
        self.keep_mode = keep_mode

    def train(self, mode: bool = True) -> "Learning":
        """With `keep_mode`, the module stays in training or evaluation mode, as it was given."""
        return self if self.keep_mode else super().train(mode)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        fixed = {
            name
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if not parameter.requires_grad
        }
        return {name: value for name, value in self.module.state_dict().items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        wanted = self.state_dict()
        if set(wanted) != set(state):
            other = sorted(set(wanted) ^ set(state))
            raise RuntimeError(f"the stored weights are of another network: {other[0]} is in one of them only")
        self.module.load_state_dict({**self.module.state_dict(), **state})
