"""What of a network learns: all that a checkpoint needs to keep of one whose other weights are somebody else's."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Moving(nn.Module):
    """A module whose `state_dict` leaves out the parameters that do not want gradients.

    They are the same at every start: a pretrained network with LoRA is kept as a few megabytes.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        still = {
            name
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if not parameter.requires_grad
        }
        return {name: value for name, value in self.module.state_dict().items() if name not in still}

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        wanted = self.state_dict()
        if set(wanted) != set(state):
            other = sorted(set(wanted) ^ set(state))
            raise RuntimeError(f"the weights kept are of another network: {other[0]} is in one of them only")
        self.module.load_state_dict({**self.module.state_dict(), **state})
