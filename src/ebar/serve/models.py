"""Models that are open. A thread of its own opens each, one after the other, so that whoever waits may give up."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import Protocol, TypeVar, runtime_checkable

from ebar.serve.allowance import Allowance, Meter
from ebar.serve.catalogue import Opened, Place, Suggested

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


class Models:
    """Those used last."""

    def __init__(self, shelf: Shelf, most: int, meter: Meter):
        self.shelf, self.meter = shelf, meter
        self._open: Bounded[Future[Opened]] = Bounded(most)
        self._lock, self._opening = threading.Lock(), threading.Lock()  # the first is never held for long

    def get(self, name: str, allowance: Allowance) -> Opened:
        """A model, once it is open. The time that it takes is the request's; it opens even if nobody waits."""
        opening = self._begun(name)
        while True:
            try:
                return opening.result(timeout=0.05)
            except TimeoutError:
                if opening.done():  # its own error, not that of waiting
                    raise
                allowance.check(f"{name} is still being opened, so try again in a while")

    def _begun(self, name: str) -> "Future[Opened]":
        with self._lock:
            found = self._open.get(name)
            if found is None or (found.done() and found.exception() is not None):  # what failed is tried again
                found = Future()
                threading.Thread(target=self._run, args=(name, found), daemon=True).start()
            self._open.keep(name, found)
            return found

    def _run(self, name: str, opening: "Future[Opened]") -> None:
        with self._opening, self.meter.opening():
            try:
                opening.set_result(self.shelf.open(name))
            except BaseException as error:
                opening.set_exception(error)
