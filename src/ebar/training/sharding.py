"""Weights spread over processes, for a model that one has no room for: torch's `fully_shard` (FSDP2).

Each process keeps its share of every weight, of its gradient and of what the optimiser remembers of it. Weights are
whole only while something is computed with them: those of a Transformer's layer for the time of its call, all others
for the time of a step. With `replicate` above 1 there are so many groups of `shard` processes, each with all weights
among them (hybrid sharding). Gradients are summed over all processes, as they are without sharding.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ebar import together
from ebar.backbones.transformer_layer import TransformerLayer
from ebar.errors import UserError
from ebar.training.distributed import same_everywhere

Found = TypeVar("Found")


class Sharded(nn.Module):
    """A module whose weights are spread over processes. What is computed with them is computed in a call of this one.

    It has no weights of its own: `module` goes on to be what it is, with the names that its weights have. `blank` is a
    copy of it, made before, whose weights are empty.
    """

    def __init__(self, module: nn.Module, blank: nn.Module):
        super().__init__()
        self.module = module
        self._blank = (blank,)  # no part of this module

    def plain(self) -> nn.Module:
        """The module with whole weights in each process, to use as any other; all processes must call it."""
        (blank,) = self._blank
        given = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        for name, own in (*blank.named_parameters(), *blank.named_buffers()):
            own.data = whole(given[name]).detach().clone()
        return blank.train(self.module.training)

    def forward(self, compute: Callable[[], Found]) -> Found:
        """What is computed, and its gradient, with weights that are whole."""
        return compute()

    def put_away(self) -> None:
        """Weights that are whole are shares again."""
        for part in self.modules():
            if together.is_spread(part):
                cast(Any, part).reshard()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, the module can be called, without gradients; a Transformer's layers are gathered one by one."""
        cast(Any, self).unshard()
        try:
            yield
        finally:
            self.put_away()


def check_degrees(replicate: int | None, shard: int) -> tuple[int, int]:
    """How many copies of the weights there are, and over how many processes each is spread."""
    processes = together.world_size()
    copies = processes // shard if replicate is None else replicate
    if replicate is None and processes % shard:
        raise UserError(
            f"training.shard {shard} must divide the number of processes, {processes}: choose another, or launch as "
            "many with torchrun."
        )
    if copies * shard != processes:
        raise UserError(
            f"training.shard {shard} × training.replicate {copies} must be the number of processes, {processes}: "
            "choose degrees that make it up, or launch as many with torchrun."
        )
    return copies, shard


def spread_weights(module: nn.Module, *, replicate: int | None = None, shard: int) -> Sharded | None:
    """The weights of rank 0, spread over `shard` processes; None where one process has them all.

    Optimisers are made afterwards, of the parameters that the module has then.
    """
    copies, shard = check_degrees(replicate, shard)
    if shard == 1:
        return None
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    # A layer's memory is a view of what it computed, and nobody writes to it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    same_everywhere([module])
    empty = {id(one): nn.Parameter(one.new_empty(0), one.requires_grad) for one in module.parameters()}
    blank = copy.deepcopy(module, empty)
    kind = next(module.parameters()).device.type
    mesh = init_device_mesh(kind, (copies, shard), mesh_dim_names=("replicate", "shard"))
    mesh = mesh["shard"] if copies == 1 else mesh
    for layer in module.modules():
        if isinstance(layer, TransformerLayer) and layer.cross is None:
            fully_shard(layer, mesh=mesh)
    shell = Sharded(module, blank)
    fully_shard(shell, mesh=mesh)
    for part in shell.modules():
        if isinstance(part, FSDPModule):
            # A mean over tokens needs Σ sums / Σ counts, which the loop divides by; gloo knows no other sum.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    return shell


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, of which this process may have a share; all processes must call it."""
    return cast(Any, tensor).full_tensor() if together.is_share(tensor) else tensor


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's share of a whole tensor, as it has one of another; without a share of that, all of it."""
    if not together.is_share(like) or together.is_share(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    model = cast(Any, like)
    return distribute_tensor(tensor.to(like.device), model.device_mesh, model.placements, src_data_rank=None)


def clip_gradients(parameters: Sequence[nn.Parameter], most: float | None) -> float:
    """Scales gradients down to at most this Euclidean norm, and returns the norm that they had."""
    shares = [one for one in parameters if together.is_share(one)]
    others = [one for one in parameters if not together.is_share(one)] if shares else list(parameters)
    norm = get_total_norm([one.grad for one in others if one.grad is not None])
    if shares:
        spread = whole(get_total_norm([one.grad for one in shares if one.grad is not None]))
        norm = torch.tensor(math.hypot(float(norm), float(spread)), dtype=spread.dtype, device=spread.device)
    if most is not None:
        for some in filter(None, (others, shares)):
            clip_grads_with_norm_(some, most, norm)
    return float(norm)
