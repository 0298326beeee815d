"""Shards on Ray: on this machine, or on the cluster that RAY_ADDRESS names."""

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ebar.errors import UserError
from ebar.shards.attempt import Outcome, Setting, attempt, failed, prepare, sending
from ebar.shards.workers import Workers

LONGEST_SOCKET = 40  # bytes of Ray's folder: it puts sockets below, whose whole path may have 107
PATIENCE = 5.0  # seconds until an address answers


@contextmanager
def ray_cluster(workers: int, folder: Path | None = None) -> Iterator[Any]:
    """The package, connected: to the cluster that is in use already, to that of RAY_ADDRESS, or to one of our own.

    Our own is in `folder`, where its name is short enough, else in a temporary one, and is gone at the end.
    """
    try:
        import ray
    except ImportError:
        raise UserError("The Ray backend needs ray: pip install 'ebar[cluster]', or use --backend joblib.") from None
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    place: Path | None = None
    try:
        if address:
            _check(address)
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise _nobody(address, str(error).splitlines()[0] if str(error) else "") from None
        else:
            place = None if folder is None else (folder / ".ray").absolute()
            if place is None or len(os.fsencode(place)) > LONGEST_SOCKET:
                place = Path(tempfile.mkdtemp(prefix="ray-"))
            ray.init(
                num_cpus=workers, _temp_dir=str(place), include_dashboard=False, log_to_driver=False,
                logging_level=logging.ERROR,
            )  # fmt: skip
        with _silent(ray):
            yield ray
    finally:
        ray.shutdown()
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _silent(ray: Any) -> Iterator[None]:
    """Inside, Ray does not write to the standard output, which is the user's, that a worker has died.

    There is no option for it: `log_to_driver` is of what workers print.
    """
    private = getattr(getattr(ray, "_private", None), "worker", None)
    name = "print_to_stdstream"
    before = getattr(private, name, None)
    if before is None:  # another version of Ray, which goes another way
        yield
        return
    setattr(private, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(private, name, before)


def _check(address: str) -> None:
    """Ray itself would wait a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # auto, local
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _nobody(address, getattr(error, "strerror", None) or str(error)) from None


def _nobody(address: str, cause: str) -> UserError:
    return UserError(
        f"No Ray cluster answers at {address} ({cause.rstrip('.')}): start one there with `ray start --head`, mend "
        "RAY_ADDRESS, or unset it to use this machine."
    )


class RayPool:
    """Tasks of one core each; what they have in common is in Ray's store, and read once by each process."""

    def __init__(self, ray: Any, work: Callable[[Any, Any], Any], common: Any, workers: Workers):
        self.ray = ray
        cores = int(ray.cluster_resources().get("CPU", 1)) // workers.threads
        self.number = max(1, min(cores, workers.workers or cores))
        setting = Setting(workers.threads, torch.get_default_dtype(), os.environ.get("EBAR_PLUGINS", ""))
        with sending():
            self.sent = [ray.put((work, common, setting))]  # in a list: an argument alone would be read for every task
        self.task = ray.remote(num_cpus=workers.threads, max_retries=0)(_run)

    def submit(self, job: Any) -> "Future[Any]":
        future: Future[Any] = self.task.remote(self.sent, job).future()
        return future

    def is_death(self, error: BaseException) -> bool:
        errors = self.ray.exceptions
        return isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError)

    def renew(self) -> None:
        """Ray starts processes as it needs them."""


@contextmanager
def ray_pool(work: Callable[[Any, Any], Any], common: Any, workers: Workers) -> Iterator[RayPool]:
    """Disconnected at the end, where the cluster was not in use before."""
    with ray_cluster(workers.number) as ray:
        yield RayPool(ray, work, common, workers)


_received: dict[str, Any] = {}  # in a worker: the work, what all shards have in common, the setting; of one call only


def _run(sent: list[Any], job: Any) -> Outcome:
    [reference] = sent
    if (key := reference.hex()) not in _received:
        import ray

        _received.clear()
        try:
            received = ray.get(reference)
            prepare(received[2])
        except Exception as error:  # for want of memory, most often
            return failed(error)
        _received[key] = received
    work, common, setting = _received[key]
    return attempt(work, common, job, setting)
