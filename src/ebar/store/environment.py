"""What a number depends on besides the configuration: versions, commit, machine."""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed

PACKAGES = ("ebar", "torch", "numpy", "safetensors")


@cache
def versions() -> dict[str, str]:
    """Of Python, of ebar and of what it computes with."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def environment(seed: int) -> dict[str, Any]:
    """For environment.json."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return {
        "seed": seed,
        "versions": versions(),
        "commit": _commit(),
        "command": sys.argv,
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else None,
        },
        "processes": torch.distributed.get_world_size() if several else 1,
    }


@cache
def _commit() -> str | None:
    """The commit of the source this is run from, with a + where it was changed since: of when it was first asked for,
    as the code that runs does not change with its files."""
    here = Path(__file__).parents[1]
    answers = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(here)]):
        try:
            done = subprocess.run(["git", "-C", str(here), *command], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+" if answers[1] else "")
