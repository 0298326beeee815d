"""Several processes, launched by torchrun, that together take the steps one process would.

Gradients are summed explicitly after the backward pass rather than by DistributedDataParallel. Its hooks fire
only for a module called through the wrapper's `forward`, whereas ours are asked for `log_prob`; it averages over
processes, whereas a mean over tokens needs Σ sums / Σ counts; and it knows nothing of several players.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn


@contextmanager
def processes(device: str = "cpu") -> Iterator[None]:
    """Inside, the processes that torchrun launched can talk. Launched alone, nothing happens."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    dist.init_process_group(dist.get_default_backend_for_device(device))
    try:
        yield
    finally:
        dist.destroy_process_group()


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is. Rank 0 writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def add(numbers: list[float]) -> list[float]:
    """Each number summed over processes, in double precision."""
    if world_size() == 1:
        return numbers
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return [float(number) for number in total]


def any_of(flag: bool) -> bool:
    """Whether it is true for any process."""
    return add([float(flag)])[0] > 0


def gather(tensor: Tensor) -> list[Tensor]:
    """The tensor of each process, by rank; they share their shape."""
    if world_size() == 1:
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(gathered, tensor)
    return gathered


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        dist.barrier()


def same_everywhere(modules: Iterable[nn.Module]) -> None:
    """Parameters and buffers as they are in rank 0."""
    if world_size() > 1:
        for module in modules:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Each gradient summed over processes. One that no process has stays None: zero would decay momentum."""
    if world_size() == 1:
        return
    parameters = list(parameters)
    has = add([float(parameter.grad is not None) for parameter in parameters])
    used = [parameter for parameter, count in zip(parameters, has, strict=True) if count]
    for dtype in sorted({parameter.dtype for parameter in used}, key=str):
        group = [parameter for parameter in used if parameter.dtype == dtype]
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in group]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for parameter, total in zip(group, torch.split(flat, [one.numel() for one in group]), strict=True):
            parameter.grad = total.view_as(parameter)
