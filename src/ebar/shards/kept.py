"""Shards kept as files of a stage as they finish, so that a driver that was killed goes on."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ebar.shards.running import run_shards
from ebar.shards.workers import Workers
from ebar.store.stages import Stage

Common = TypeVar("Common")


def part_name(number: int) -> str:
    """The file of a part."""
    return f"part-{number:06d}.safetensors"


def keep_parts(
    stage: Stage,
    work: Callable[[Common, Any], bytes],
    common: Common,
    parts: Sequence[int],
    *,
    workers: Workers,
    job: Callable[[int], Any] = lambda number: number,
) -> Iterator[int]:
    """Makes the parts that the stage has not, each a file that is there wholly or not at all, and yields the numbers of
    all of them as they are there.

    A part is what `work` makes of what all have in common and of its `job`, by default its number.
    """
    missing = [number for number in parts if not stage.has(part_name(number))]
    yield from sorted(set(parts) - set(missing))
    for place, content in run_shards(work, common, map(job, missing), workers=workers):
        stage.write(part_name(missing[place]), content)
        yield missing[place]
