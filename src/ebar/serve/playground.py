"""The playground without its page: models that are open, users and their last results, all of it bounded."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ebar.errors import UserError
from ebar.serve.allowance import Allowance, Meter
from ebar.serve.found import Asked, Found, Part, Progress
from ebar.serve.limits import Limits
from ebar.serve.models import Bounded, Models, Shelf
from ebar.serve.tilting import constrained, energised
from ebar.serve.turns import Turns
from ebar.types import Estimate


class Playground:
    """Any number of users, each known by a word."""

    def __init__(self, catalogue: Shelf, limits: Limits):
        self.catalogue, self.limits = catalogue, limits
        self.meter = Meter()
        self.models = Models(catalogue, limits.models, self.meter)
        self.turns = Turns(limits.at_once, limits.waiting)
        self._found: Bounded[Found] = Bounded(limits.users)
        self._running: list[tuple[str, Allowance]] = []  # requests of users, those that wait too
        self._lock = threading.Lock()  # not held while something is computed

    def compute(self, user: str, asked: Asked) -> Generator[Progress | Found, None, None]:
        """Progress, then the answer, which is kept for the questions that follow. Closed or stopped, it ends."""
        self.limits.check_text(asked.prompt, "The prompt")
        self.limits.check_text(asked.constraints, "The constraints")
        with self._request(user) as allowance:
            yield from self.turns.wait(allowance)
            allowance.renew()
            yield Progress(f"opening {asked.name}")
            opened = self.models.get(asked.name, allowance)
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
        with self._request(user) as allowance:
            for _ in self.turns.wait(allowance):
                pass
            allowance.renew()
            return found.parts(text, allowance)

    def stop(self, user: str) -> None:
        """Whatever this user has under way stops at its next step; what waits for its turn, at once."""
        with self._lock:
            own = [allowance for name, allowance in self._running if name == user]
        for allowance in own:
            allowance.stop()
        self.turns.notice()

    @property
    def busy(self) -> int:
        """Requests that are computed or wait."""
        return len(self._running)

    @contextmanager
    def _request(self, user: str) -> Iterator[Allowance]:
        allowance = Allowance(self.limits.seconds, megabytes=self.limits.growth, meter=self.meter)
        entry = (user, allowance)
        with self._lock:
            self._running.append(entry)
        try:
            yield allowance
        finally:
            allowance.stop()
            self.turns.leave(allowance)
            with self._lock:
                self._running.remove(entry)
