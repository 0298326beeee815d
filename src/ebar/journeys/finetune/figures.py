from ebar.types import Estimate


def figures(members, tasks, part, *, batch_size) -> dict[str, Estimate]:
    raise NotImplementedError
