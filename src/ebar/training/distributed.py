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
from torch import nn

from ebar.errors import UserError
from ebar.together import gather, is_share, rank, world_size

__all__ = [
    "add",
    "add_gradients",
    "any_of",
    "barrier",
    "check_batch",
    "gather",
    "processes",
    "rank",
    "same_everywhere",
    "world_size",
]


@contextmanager
def processes(device: str = "cpu") -> Iterator[None]:
    """Inside, the processes that torchrun launched can talk. Launched alone, nothing happens.

    A device without a number, such as cuda, is each process's own.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    kind = torch.device(device).type
    if kind != "cpu" and torch.device(device).index is None:
        torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")))
    backend = dist.get_default_backend_for_device(kind)
    # Numbers that processes agree on are on the CPU, wherever the model is.
    dist.init_process_group(backend if kind == "cpu" else f"cpu:gloo,{kind}:{backend}")
    try:
        yield
    finally:
        dist.destroy_process_group()


def check_batch(rows: int, parts: int) -> None:
    """The global batch is the user's; what each process computes at a time follows from it, and must be whole rows."""
    pieces = world_size() * parts
    if rows % pieces:
        raise UserError(
            f"A batch of {rows:,} sequences cannot be shared out evenly to {world_size()} processes × {parts} parts: "
            f"choose a training.batch_size that is a multiple of {pieces}."
        )


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


def barrier() -> None:
    """Wait for all processes."""
    if world_size() > 1:
        dist.barrier()


def same_everywhere(modules: Iterable[nn.Module]) -> None:
    """Parameters and buffers as they are in rank 0."""
    if world_size() > 1:
        for module in modules:
            for tensor in module.state_dict().values():
                if not is_share(tensor):  # which is each process's own
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
