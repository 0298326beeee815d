"""`make demo`: a model that missed a global property gets it back.

500 strings of 30 bits that all hold a motif. A small LSTM learns to write bits from them, but not the motif: 3 of 100
of its strings have it. Told that the motif may matter, and four other things that do not, `ebar gam` finds how much
each must count, draws from the corrected model, and trains a second LSTM on the draws: 98 of 100 of its strings have
the motif.

It runs the commands a user would type, shows each of them, and leaves a run folder with a report.
"""

import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from ebar.cli import main

os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices this small gain nothing from more; torch is not imported yet

MOTIF = "10001011111000"
RUN = Path("runs/demo")

COMMANDS = [
    f"language --motif {MOTIF} --length 30",
    f"gam --name {RUN.name} --data.motif {MOTIF} --data.size 500 --ft 1001111"
    " --backbone.layers 1 --backbone.hidden 64 --backbone.dropout 0 --base.epochs 20"
    " --continuation.epochs 12 --continuation.learning_rate 0.005",
    f"sample {RUN}/r --n 5",
    f"sample {RUN}/round-1/pi --n 5",
]


def run(command: str) -> None:
    """Show a command, then run it."""
    sys.stdout.write(f"\n$ ebar {command}\n")
    sys.stdout.flush()
    if main(shlex.split(command)) != 0:
        sys.exit(f"The demo stopped at: ebar {command}")


if __name__ == "__main__":
    began = time.monotonic()
    shutil.rmtree(RUN, ignore_errors=True)  # the demo's own folder: it always starts anew
    for command in COMMANDS:
        run(command)
    sys.stdout.write(f"\n{time.monotonic() - began:.0f} s. The report: {RUN / 'report.html'}\n")
