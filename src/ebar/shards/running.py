"""One way to run shards, wherever: bounded in memory, done again where a worker dies."""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar, runtime_checkable

from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.shards.workers import Workers, on_threads

Common = TypeVar("Common")
Job = TypeVar("Job")
Made = TypeVar("Made")

DEATHS = 3  # of workers, one after another without a finished shard between them: then it is not chance
AHEAD = 2  # shards under way for each worker, so that none waits for this process


@runtime_checkable
class Pool(Protocol):
    """Workers that hold what all shards have in common."""

    number: int  # of workers

    def submit(self, job: Any) -> "Future[Any]": ...

    def is_death(self, error: BaseException) -> bool:
        """Whether a worker died, rather than the work failed."""
        ...

    def renew(self) -> None:
        """After a death."""
        ...


def shard_seed(seed: int, number: int) -> int:
    """The seed of a shard: of its own number, and of nothing else."""
    return folded(seed, number)


def run_shards(
    work: Callable[[Common, Job], Made],
    common: Common,
    jobs: Iterable[Job],
    *,
    workers: Workers | None = Workers(),  # noqa: B008 — immutable
    in_order: bool = False,
    ahead: int = AHEAD,
) -> Generator[tuple[int, Made], None, None]:
    """`work(common, job)` of each job, with the job's number among them: as they finish, or in their order.

    `common` (a model, say) is sent to each worker once. Jobs are taken from their iterable as workers come free,
    `ahead` of them for each worker, and in order no more than a few lie finished: memory is bounded by shard and
    worker. A shard whose worker dies is done again. An error ends it; what was yielded before stands. Without workers
    (None) shards are done here, on all threads that torch has.
    """
    if workers is None or workers.backend == "process":
        for number, job in enumerate(jobs):
            with nullcontext() if workers is None else on_threads(workers.threads):
                made = work(common, job)
            yield number, made
        return
    with open_pool(work, common, workers) as pool:
        found = spread(pool, jobs, in_order, ahead)
        yield from _ordered(found) if in_order else found


def open_pool(work: Callable[[Common, Job], Made], common: Common, workers: Workers) -> AbstractContextManager[Pool]:
    """The workers of a backend, for `spread`."""
    if workers.backend == "ray":
        from ebar.shards.on_ray import ray_pool

        return ray_pool(work, common, workers)
    from ebar.shards.on_cores import core_pool

    return core_pool(work, common, workers)


def spread(pool: Pool, jobs: Iterable[Any], in_order: bool = False, ahead: int = AHEAD) -> Iterator[tuple[int, Any]]:
    """As they finish; in order, none is begun that is too far ahead of the first that is not finished."""
    rest, most = enumerate(jobs), ahead * pool.number
    again: list[tuple[int, Any]] = []
    under_way: dict[Future[Any], tuple[int, Any]] = {}
    taken = deaths = 0
    over = False
    while True:
        while len(under_way) < most and not (over and not again):
            oldest = min((number for number, _ in (*under_way.values(), *again)), default=taken)
            if not again and in_order and taken >= oldest + 2 * most:
                break
            if again:
                task = again.pop(0)
            elif (following := next(rest, None)) is not None:
                task, taken = following, taken + 1
            else:
                over = True
                continue
            try:
                under_way[pool.submit(task[1])] = task
            except Exception as refusal:  # a pool that has broken refuses more
                if not pool.is_death(refusal):
                    raise
                again.insert(0, task)
                break
        if not under_way and not again:
            return
        finished = wait(under_way, return_when=FIRST_COMPLETED).done if under_way else set()
        broken = not finished
        for future in sorted(finished, key=lambda one: under_way[one][0]):
            number, job = under_way.pop(future)
            error = future.exception()
            if error is None:
                deaths = 0
                yield number, future.result().value()
            elif pool.is_death(error):
                again.append((number, job))
                broken = True
            else:
                raise error
        if broken:
            deaths += 1
            if deaths >= DEATHS:
                raise UserError(
                    f"Workers died {deaths} times in a row, most often for want of memory: run it again with fewer "
                    "--workers, or smaller shards; what was finished is kept."
                )
            pool.renew()
            again.sort()


def _ordered(found: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    held: dict[int, Any] = {}
    following = 0
    for number, made in found:
        held[number] = made
        while following in held:
            yield following, held.pop(following)
            following += 1
