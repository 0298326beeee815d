"""Checkpoints on disk: safetensors and JSON, nothing that is unpickled.

    checkpoints/step-000000100/
      <player>.safetensors    the weights, named as in the module's state_dict
      training.safetensors    optimisers, random states
      state.json              everything else
      SHA256SUMS              of the others, as `sha256sum -c` reads it

A folder appears complete or not at all. What happens to it afterwards (a truncated or garbled file) the sums
detect. The last two are kept, and the best.
"""

import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from ebar.errors import UserError
from ebar.store.writing import remove_folder, replace_folder, saving, sweep, to_json

SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that a run is at one step."""

    step: int
    weights: dict[str, dict[str, Tensor]]  # by player
    training: dict[str, Tensor]
    state: dict[str, Any]  # plain JSON; `best_step` names the checkpoint to keep for its weights


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one run."""

    folder: Path

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def steps(self) -> list[int]:
        """Those there are, readable or not, oldest first."""
        return sorted(int(path.name[5:]) for path in self.folder.glob("step-*") if path.name[5:].isdigit())

    def save(self, checkpoint: Checkpoint) -> None:
        """On the disk when this returns. Where it cannot be, the earlier ones are untouched."""
        files = {f"{name}.safetensors": _pack(tensors) for name, tensors in checkpoint.weights.items()}
        files["training.safetensors"] = _pack(checkpoint.training)
        files["state.json"] = to_json(checkpoint.state, indent=1)
        sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
        with saving(f"the checkpoint of step {checkpoint.step} in {self.folder}"):
            replace_folder(self.path(checkpoint.step), {**files, SUMS: sums.encode()})
            self._prune()

    def read(self, step: int) -> Checkpoint:
        """One checkpoint, verified; ValueError says what is wrong with it."""
        folder = self.path(step)
        try:
            sums = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
            files = {name: (folder / name).read_bytes() for _, name in sums}
            for digest, name in sums:
                if hashlib.sha256(files[name]).hexdigest() != digest:
                    raise ValueError(f"{name} is not what was saved")
            tensors = {name[:-12]: load(files[name]) for name in files if name.endswith(".safetensors")}
            training, state = tensors.pop("training"), json.loads(files["state.json"])
        except OSError as error:
            raise ValueError(f"{Path(error.filename or folder).name}: {error.strerror}") from error
        except KeyError as error:
            raise ValueError(f"{error} is missing") from error
        return Checkpoint(step=step, weights=tensors, training=training, state=state)

    def newest(self) -> Checkpoint | None:
        """The newest that can be read, with a warning for each that cannot; None where there is none at all."""
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.read(step)
            except ValueError as error:
                message = f"the checkpoint of step {step} in {self.folder} is damaged ({error}): using the one before"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        if steps:
            raise UserError(f"None of the checkpoints in {self.folder} can be read: delete that folder to start anew.")
        return None

    def best(self) -> Checkpoint | None:
        """The best on held-out data; the newest where nothing was held out."""
        newest = self.newest()
        step = None if newest is None else newest.state.get("best_step")
        if step is None:
            return newest
        try:
            return self.read(step)
        except ValueError as error:
            raise UserError(f"The best checkpoint, of step {step} in {self.folder}, is damaged ({error}).") from error

    def resume(self) -> Checkpoint | None:
        """The newest that can be read, those after it put aside and leftovers removed: the writer's alone to call."""
        sweep(self.folder)
        newest = self.newest()
        for step in self.steps():
            if newest is not None and step > newest.step:
                aside = self.folder / f"damaged-{step:09d}"
                remove_folder(aside)
                os.rename(self.path(step), aside)
        self._prune()  # the process that saved the last may have died before it could
        return newest

    def _prune(self) -> None:
        """Keeps the last two, and the best as each of them knows it: falling back must find its best too."""
        keep = set(self.steps()[-2:])
        for step in sorted(keep):
            try:
                keep.add(json.loads((self.path(step) / "state.json").read_bytes()).get("best_step"))
            except (OSError, ValueError):
                continue
        for step in self.steps():
            if step not in keep:
                remove_folder(self.path(step))


def _pack(tensors: dict[str, Tensor]) -> bytes:
    # A copy of each: parameters that share memory are saved as many times as they have names.
    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})
