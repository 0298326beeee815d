"""Work in shards: pieces whose random numbers come from their own index, run here, on all cores or on Ray.

A shard's size, batch and threads are part of what is asked for and never follow from the number of workers: however
many there are, and wherever, the results are the same to the byte on machines of one kind.

    for number, made in run_shards(draw_some, model, range(100), workers=Workers(backend="joblib")):
        stage.write(f"part-{number}", made)
"""

from ebar.shards.kept import keep_parts, part_name
from ebar.shards.running import run_shards, shard_seed
from ebar.shards.workers import Workers

__all__ = ["Workers", "keep_parts", "part_name", "run_shards", "shard_seed"]
