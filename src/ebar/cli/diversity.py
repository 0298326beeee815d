"""`ebar diversity`: how alike texts are.

How alike the lines of a file are, word by word: distinct-n (different n-grams per word) and self-BLEU (BLEU of each
line against others, 0 to 100: high is alike). Both depend on how many lines are compared.

Example:
    ebar diversity draws.txt --references 50
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Count, Seed
from ebar.cli.show import show
from ebar.config.reader import Answer, Manual, argument, read
from ebar.data.corpus import numbered_lines
from ebar.evaluation.diversity import distinct, self_bleu

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class DiversityConfig(Answer):
    """What is compared."""

    file: Path = argument()
    """Texts, one a line."""
    references: Count | None = None
    """Other lines that each is compared with, so that files of unequal size can be compared; by default all."""
    seed: Seed = 0
    """Of the choice of references."""


def main(words: Sequence[str]) -> int:
    """Distinct n-grams and self-BLEU."""
    config = read(words, MANUAL, DiversityConfig)
    texts = [text.split() for _, text in numbered_lines(config.file)]
    score = self_bleu(texts, references=config.references, seed=config.seed)
    figures: dict[str, object] = {f"distinct-{n}": share for n, share in distinct(texts).items()}
    figures |= {"self-BLEU": score.score, "references": score.references, "lines left out": score.left_out}
    return show(f"{config.file}: {len(texts):,} lines", figures, as_json=config.json)
