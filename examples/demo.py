"""`make demo`: a language of known entropy, a model that misses its motif, and an energy that gives it back.

It runs the commands a user would type, shows each of them, and leaves a run folder with a report.
"""

import shlex
import shutil
import sys
import time
from pathlib import Path

from ebar.cli import main

MOTIF = "10001011111000"
RUN = Path("runs/demo")
TILT = f"--tilt '!motif:{MOTIF}=-10'"

COMMANDS = [
    f"language --motif {MOTIF} --length 30",
    f"train --name {RUN.name} --data.motif {MOTIF} --data.size 500 --backbone.hidden 100 --training.epochs 40",
    f"evaluate {RUN}",
    f"estimate {RUN} {TILT} --sampler.kind importance --n 10000",
    f"estimate {RUN} {TILT} --sampler.kind look_ahead --n 2000",
    f"sample {RUN} {TILT} --proposal look_ahead --n 5",
    "reproduce spine/samplers --scale demo --output runs/results",
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
