"""`ebar control check`: how far constraints bend a model, before anything is fitted.

For each constraint alone and for all together: log Z, how far p is from the model (KL(p‖q)) and from what masking
token by token would draw (KL(p‖masking)), and effective samples per draw, with 95 % intervals. Nothing is kept.

Example:
    ebar control check FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
"""

import sys
from collections.abc import Sequence

from ebar.build.control import check_control
from ebar.cli.show import show_json, show_table
from ebar.config.control import CheckConfig
from ebar.config.reader import Answer, Manual, read
from ebar.journeys.control.bending import HEADER
from ebar.progress import shown
from ebar.store.writing import plain

MANUAL = Manual.of(__doc__)


def main(words: Sequence[str]) -> int:
    """One table."""
    config, answer = read(words, MANUAL, CheckConfig, Answer)
    with shown(not answer.json):
        rows = check_control(config)
    if answer.json:
        show_json({"draws": config.draws, "constraints": [plain(row) for row in rows]})
        return 0
    title = f"{config.model}: divergences in nats per text, {config.draws:,} draws each, 95 % intervals"
    show_table(title, HEADER, [row.cells() for row in rows])
    for row in rows:
        if row.problem is not None:
            sys.stdout.write(f"⚠ {row.constraint}: {row.problem}\n")
    return 0
