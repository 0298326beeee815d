"""What can be picked: the runs of a folder, and pretrained models that were named when the playground was started."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.automata.lift import Reading
from ebar.build.control import load_language_model
from ebar.build.residual import load_residual
from ebar.build.runs import load_language_run
from ebar.build.summaries import RunSummary, list_runs, model_of_gam, summarise
from ebar.config.control import read_control
from ebar.errors import UserError
from ebar.journeys.residual.journey import Residual
from ebar.models.construction import from_pretrained
from ebar.models.tilted import reading_of_model
from ebar.types import Stepwise

READ = ("language", "lines", "text", "stream")  # kinds of data whose models write strings without a source


@dataclass(frozen=True, kw_only=True)
class Place:
    """Something that can be opened."""

    kind: str  # train, residual, control, pretrained
    at: str
    about: str


@dataclass(frozen=True, kw_only=True)
class Suggested:
    """What a run of `ebar control` was made with."""

    prompt: str
    constraints: tuple[str, ...]
    length: int  # tokens of a text


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A language model q and what its tokens spell; and the energy of a residual run."""

    model: Stepwise
    reading: Reading
    residual: Residual | None = None


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """By name. Only files are looked at until something is opened, and nothing is ever written."""

    runs: Path = Path("runs")
    models: Sequence[str] = ()
    length: int = 40  # tokens of a pretrained model's texts, unless more are asked for

    def places(self) -> dict[str, Place]:
        """All there is now."""
        found: dict[str, Place] = {}
        for run in list_runs(self.runs) if self.runs.is_dir() else []:
            found |= _of_run(run, self.runs)
        for model in self.models:
            name = Path(model).name or model
            found[name if name not in found else model] = Place(
                kind="pretrained", at=model, about="A pretrained language model."
            )
        return found

    def open(self, name: str) -> Opened:
        """The model of that name: no other folder can be reached by any name."""
        place = self._place(name)
        return _OPENERS[place.kind](place.at, self.length)

    def suggested(self, name: str) -> Suggested | None:
        """What to fill the page with; None where the run has nothing to say. No model is opened."""
        place = self._place(name)
        if place.kind != "control":
            return None
        config = read_control(Path(place.at))
        return Suggested(prompt=config.prompt, constraints=config.features, length=config.length)

    def _place(self, name: str) -> Place:
        places = self.places()
        if name not in places:
            raise UserError(
                f"There is no run or model called {name[:60]!r} here: pick one of the list, or start with --models."
            )
        return places[name]


def _of_run(run: RunSummary, runs: Path) -> dict[str, Place]:
    """A finished run, or one with a checkpoint; of a GAM its base model and its last one."""
    name = str(run.folder.relative_to(runs))
    if run.kind == "train" and run.step is not None and str((run.tree.get("data") or {}).get("kind")) in READ:
        return {name: Place(kind="train", at=str(run.folder), about=f"Trained on {run.data}: {run.model}.")}
    if run.kind == "residual" and run.state == "finished":
        about = f"A base and an energy that was learnt: {run.model}. The energy is loaded with it."
        return {name: Place(kind="residual", at=str(run.folder), about=about)}
    if run.kind == "control" and run.state == "finished":
        return {name: Place(kind="control", at=str(run.folder), about=f"{run.model}, controlled: {run.data}.")}
    if run.kind == "gam":
        parts = [summarise(place) for place in (run.folder / "r", model_of_gam(run)) if place.exists()]
        return {key: place for part in parts for key, place in _of_run(part, runs).items()}
    return {}


def _trained(place: str, length: int) -> Opened:
    return _readable(load_language_run(Path(place)).model, place)


def _controlled(place: str, length: int) -> Opened:
    return _readable(load_language_model(read_control(Path(place))), place)


def _residual(place: str, length: int) -> Opened:
    residual = load_residual(Path(place))
    model: Any = residual.base.q
    return Opened(model=model.eval(), reading=Reading(), residual=residual)


def _pretrained(place: str, length: int) -> Opened:
    return _readable(from_pretrained(place, length=length), place)


def _readable(model: Any, place: str) -> Opened:
    reading = reading_of_model(model)
    if reading is None or reading.encode is None:
        raise UserError(f"{place} does not say what its tokens spell, so that no text can be read or shown.")
    return Opened(model=model.eval().requires_grad_(False), reading=reading)


_OPENERS = {"train": _trained, "control": _controlled, "residual": _residual, "pretrained": _pretrained}
