"""The playground without its page: models that are open, users and their last results, all of it bounded."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from typing import Protocol, TypeVar, runtime_checkable

from ebar.errors import UserError
from ebar.serve.catalogue import Opened, Place, Suggested
from ebar.serve.found import Asked, Found, Part, Progress
from ebar.serve.limits import Allowance, Limits
from ebar.serve.residual import energised
from ebar.serve.tilting import constrained
from ebar.types import Estimate

Kept = TypeVar("Kept")


@runtime_checkable
class Shelf(Protocol):
    """What models are taken from; `Catalogue` is the one of folders."""

    def places(self) -> dict[str, Place]: ...

    def open(self, name: str) -> Opened: ...

    def suggested(self, name: str) -> Suggested | None: ...


class Bounded(OrderedDict[str, Kept]):
    """The entries used last."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def keep(self, key: str, value: Kept) -> None:
        """The newest; the oldest beyond the bound is dropped."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.most:
            self.popitem(last=False)


class Playground:
    """Any number of users, each known by a word. One request of each is computed at a time."""

    def __init__(self, catalogue: Shelf, limits: Limits):
        self.catalogue, self.limits = catalogue, limits
        self._open: Bounded[Opened] = Bounded(limits.models)
        self._found: Bounded[Found] = Bounded(limits.users)
        self._running: dict[str, Allowance] = {}
        self._lock, self._opening = threading.Lock(), threading.Lock()  # neither is held while something is drawn

    def open(self, name: str) -> Opened:
        """A model, kept open for the next request."""
        with self._opening:
            if name not in self._open:
                self._open.keep(name, self.catalogue.open(name))
            self._open.move_to_end(name)
            return self._open[name]

    def compute(self, user: str, asked: Asked) -> Generator[Progress | Found, None, None]:
        """Progress, then the answer, which is kept for the questions that follow. Closed or stopped, it ends."""
        self.limits.check_text(asked.prompt, "The prompt")
        self.limits.check_text(asked.constraints, "The constraints")
        allowance = self._begin(user)
        try:
            yield Progress(f"opening {asked.name}")
            opened = self.open(asked.name)
            allowance.renew()  # what it takes to open a model is not the request's
            steps = (
                constrained(opened, asked, self.limits, allowance)
                if opened.residual is None
                else energised(opened.residual, asked, self.limits, allowance)
            )
            for step in steps:
                if isinstance(step, Found):
                    with self._lock:
                        self._found.keep(user, step)
                yield step
                allowance.check()
        finally:
            allowance.stop()
            if self._running.get(user) is allowance:
                del self._running[user]

    def result(self, user: str) -> Found:
        """The last answer of a user."""
        with self._lock:
            found = self._found.get(user)
        if found is None:
            raise UserError("There is no result yet: press Compute first.")
        return found

    def moment(self, user: str, knob: int, coefficient: float) -> Estimate:
        """What λ would give."""
        found = self.result(user)
        if not 0 <= knob < len(found.knobs):
            raise UserError("There is no such constraint: press Compute again.")
        return found.cloud.moment(found.knobs[knob], coefficient)

    def parts(self, user: str, text: str) -> list[Part]:
        """The tokens of any text, with what each adds."""
        found = self.result(user)
        if found.parts is None:
            raise UserError("Nothing prefers one text to another here: give a constraint first, and press Compute.")
        if not self.limits.check_text(text, "The text").strip():
            raise UserError("There is no text to colour: type one.")
        allowance = self._begin(user)
        try:
            return found.parts(text, allowance)
        finally:
            if self._running.get(user) is allowance:
                del self._running[user]

    def stop(self, user: str) -> None:
        """Whatever this user has under way stops at its next step."""
        running = self._running.get(user)
        if running is not None:
            running.stop()

    @property
    def busy(self) -> int:
        """Requests that are being computed."""
        return len(self._running)

    def _begin(self, user: str) -> Allowance:
        self._running[user] = Allowance(self.limits.seconds)
        return self._running[user]
