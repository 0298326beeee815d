"""The same work on several processes, forked from one that has torch already: one start for worlds of any size."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # these three before there are children, each of which would import them
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp


def in_world(processes: int, work: Callable[[], object], store: Path) -> None:
    """Calls `work` on each of so many processes, which can talk; an error of one of them ends them all.

    A process that takes a step more than the others waits for them until gloo's own limit, half an hour, ends it.
    """
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                address = f"file://{store}"
                dist.init_process_group("gloo", init_method=address, rank=rank, world_size=processes)
                work()
                dist.destroy_process_group()
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    store.unlink(missing_ok=True)
    if any(codes):
        raise SystemExit(f"a world of {processes} failed: {codes}")
