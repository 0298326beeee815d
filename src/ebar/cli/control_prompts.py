"""`ebar control prompts`: constraints on what follows each prompt of a file, however many there are.

With one λ for all prompts the moment is the mean over prompts of what each has under its own p(·|C), normalised prompt
by prompt; with --per_prompt true every prompt has its own λ(C), and the moment itself. RUN/prompts.jsonl gets a line
for each prompt: log Z(C) with its interval, moments, λ, texts. Stopped, the same command goes on. With --suffix, what
follows the prompt is followed by the suffix, and Z(C) is its probability.

Example:
    ebar control prompts --name openings --model FOLDER --prompts openings.txt --features 'word:rabbit|bunny=0.5'
"""

import sys
from collections.abc import Sequence
from typing import Any

from ebar.build.prompts import run_prompts
from ebar.cli.folder import RunFolder, carry_out
from ebar.cli.show import show_table
from ebar.config.prompts import MANUAL, PromptsConfig
from ebar.config.reader import read
from ebar.types import Estimate


def main(words: Sequence[str]) -> int:
    """All prompts, and means over them."""
    config, place = read(words, MANUAL, PromptsConfig, RunFolder)

    def show(found: dict[str, Any]) -> None:
        rows = [[name, one._replace(warning=None)] for name, one in found["means"].items() if isinstance(one, Estimate)]
        title = f"{place.folder}: means over {found['prompts']:,} prompts, 95 % intervals over draws"
        show_table(title, ("figure", "value"), rows)
        if found["warning"] is not None:
            sys.stdout.write(f"⚠ {found['warning']}\n")
        sys.stdout.write(f"{place.folder / 'prompts.jsonl'}\n")

    return carry_out(place, lambda: run_prompts(config, place.folder), to_dict=dict, show=show)
