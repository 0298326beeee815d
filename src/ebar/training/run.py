"""The folder of a run: `runs/<name>/`, a store with checkpoints of safetensors and JSON: nothing is unpickled.

    checkpoints/step-000000100/
      <player>.safetensors    the weights, named as in the module's state_dict
      training.safetensors    optimisers, random states
      state.json              everything else
      SHA256SUMS              of the others, as `sha256sum -c` reads it

A folder appears complete or not at all. What happens to it afterwards (a truncated or garbled file) the sums
detect. The last two are kept, and the best. Where weights are spread over processes each writes a file of its own
(`ebar.training.sharding`).
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from ebar import together
from ebar.errors import UserError
from ebar.store.names import CHECKPOINTS, checkpoint_folder, checkpoint_steps
from ebar.store.store import open_store
from ebar.store.writing import TEMPORARY, remove_folder, replace, replace_folder, saving, sweep, to_json
from ebar.training import distributed
from ebar.training.players import Players
from ebar.training.sharding import SHARES, SUMS, Room, digest, read_shares, write_shares


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
        return checkpoint_folder(self.folder, step)

    def steps(self) -> list[int]:
        """Those there are, readable or not, oldest first."""
        return checkpoint_steps(self.folder)

    def save(self, checkpoint: Checkpoint) -> None:
        """On the disk when this returns. Where it cannot be, the earlier ones are untouched.

        The writer's alone to call, unless there are shares of tensors in it: then all processes must.
        """
        named = {
            f"weights/{name}/{key}": value for name, own in checkpoint.weights.items() for key, value in own.items()
        }
        named |= {f"training/{key}": value for key, value in checkpoint.training.items()}
        if any(map(together.is_share, named.values())):
            write_shares(self.path(checkpoint.step), named, checkpoint.state)
            if together.rank() == 0:
                self._prune()
            return
        files = {f"{name}.safetensors": packed(tensors) for name, tensors in checkpoint.weights.items()}
        files["training.safetensors"] = packed(checkpoint.training)
        files["state.json"] = to_json(checkpoint.state, indent=1)
        sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
        with saving(f"the checkpoint of step {checkpoint.step} in {self.folder}"):
            replace_folder(self.path(checkpoint.step), {**files, SUMS: sums.encode()})
            self._prune()

    def read(self, step: int, room: Room | None = None) -> Checkpoint:
        """One checkpoint, verified; ValueError says what is wrong with it. `room` is for shares (`read_shares`)."""
        folder = self.path(step)
        try:
            sums = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
            if any(name == SHARES for _, name in sums):
                return self._read_shares(step, sums, room)
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

    def _read_shares(self, step: int, sums: list[list[str]], room: Room | None) -> Checkpoint:
        folder = self.path(step)
        for expected, name in sums:
            if digest(folder / name) != expected:
                raise ValueError(f"{name} is not what was saved")
        weights: dict[str, dict[str, Tensor]] = {}
        training = {}
        for path, tensor in read_shares(folder, room).items():
            kind, name = path.split("/", 1)
            if kind == "training":
                training[name] = tensor
            else:
                player, key = name.split("/", 1)
                weights.setdefault(player, {})[key] = tensor
        state = json.loads((folder / "state.json").read_bytes())
        return Checkpoint(step=step, weights=weights, training=training, state=state)

    def newest(self, room: Room | None = None) -> Checkpoint | None:
        """The newest that can be read, with a warning for each that cannot; None where there is none at all."""
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.read(step, room)
            except ValueError as error:
                message = f"the checkpoint of step {step} in {self.folder} is damaged ({error}): using the one before"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        if steps:
            raise UserError(f"None of the checkpoints in {self.folder} can be read: delete that folder to start anew.")
        return None

    def best(self, room: Room | None = None) -> Checkpoint | None:
        """The best on held-out data; the newest where nothing was held out."""
        newest = self.newest(room)
        step = None if newest is None else newest.state.get("best_step")
        if step is None:
            return newest
        try:
            return self.read(step, room)
        except ValueError as error:
            raise UserError(f"The best checkpoint, of step {step} in {self.folder}, is damaged ({error}).") from error

    def resume(self, room: Room | None = None) -> Checkpoint | None:
        """The newest that can be read, those after it put aside and leftovers removed: the writer's alone to call."""
        sweep(self.folder)
        newest = self.newest(room)
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


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """A copy of each, as safetensors: tied weights have two names and one memory, which it refuses."""
    return save({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})


@dataclass(frozen=True, slots=True)
class Run:
    """Where a run keeps what it is: config.yaml, environment.json, metrics.jsonl, checkpoints/, results.json."""

    folder: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / CHECKPOINTS)

    def write(self, name: str, content: bytes) -> None:
        """One file of the folder, replaced at once."""
        with saving(str(self.folder / name)):
            replace(self.folder / name, content)

    def add_results(self, **found: Any) -> None:
        """Results by name, beside those that results.json has already."""
        try:
            known = json.loads((self.folder / "results.json").read_text())
        except (OSError, ValueError):
            known = {}
        self.write("results.json", to_json({**known, **found}, indent=1))


@contextmanager
def open_run(
    folder: Path | None, *, config: str, check: Callable[[Run, list[str]], None] | None = None, **options: Any
) -> Iterator[Run]:
    """A run folder, made or found, locked against other processes; options are those of `open_store`.

    Where several processes train together, the first one writes. Without a folder everything is removed at the end.
    """
    if folder is None and distributed.world_size() > 1:
        raise UserError("Several processes need a run folder that all of them see: give one.")
    if check is not None:
        options["check"] = lambda place, names: check(Run(place), names)
    with open_store(folder, description=config, writes=distributed.rank() == 0, **options) as store:
        if store.writes:
            with saving(str(store.folder)):
                (store.folder / "checkpoints").mkdir(exist_ok=True)
        yield Run(store.folder)


def continue_from(trunk: Run, run: Run, players: Players) -> None:
    """Gives a run that has no checkpoint yet the checkpoints and metrics of another run, the trunk.

    Objectives that begin alike (E-ARM with `start_epoch` k is its base objective for k epochs) can be compared from one
    trunk of k epochs. Weights, optimiser state, random state and the order of the data are those of the trunk, so that
    a branch is bit for bit the run that was never branched, and branches differ by their objectives alone.

    What the trunk has not (the state of an objective, by itself or beside the memory of a stream) starts as it is now;
    what this run has not is left out. All checkpoints appear at once: killed before that, the next call copies them
    anew.
    """
    if run.checkpoints.steps():
        return
    for name in ("metrics.jsonl", "timing.jsonl"):
        run.write(name, (trunk.folder / name).read_bytes())
    place = run.checkpoints.folder
    half = Checkpoints(place.with_name(TEMPORARY + place.name))
    shutil.rmtree(half.folder, ignore_errors=True)
    with saving(str(place)):
        half.folder.mkdir()
        for step in trunk.checkpoints.steps():
            checkpoint = trunk.checkpoints.read(step)
            weights = {
                name: {key: checkpoint.weights.get(name, {}).get(key, value) for key, value in own.items()}
                for name, own in ((name, player.module.state_dict()) for name, player in players.items())
            }
            half.save(changed(checkpoint, weights=weights))
        os.rename(half.folder, place)  # in place of an empty folder
