"""A fine-tuning of two tasks small enough to be done in a blink, with all that must be kept when it is killed."""

from pathlib import Path

from ebar.data.labelled import Example, LabelledCorpus
from ebar.data.labelled.encoding import Encoding
from ebar.data.specials import specials_of
from ebar.data.tokenisers import Words
from ebar.journeys.finetune.journey import Finetuned, finetune
from ebar.training.course import Training
from ebar.training.optimisers import AdamW, LinearDecay
from ebar.training.randomness import seeded
from tests.journeys.finetune.made_up import BAD, GOOD, PLAIN, network, sentences

WORDS = Words.train([" ".join([*GOOD, *BAD, *PLAIN])])


def classified(count: int = 32) -> LabelledCorpus:
    made = [Example("made up", text, label=str(good), unit=text) for text, good in sentences(3 * count)]
    encoding = Encoding(
        task="classification", tokeniser=WORDS, specials=specials_of(WORDS), length=12, names=("False", "True")
    )
    parts = {"train": made[:count], "validation": made[count : 2 * count], "test": made[2 * count :]}
    return LabelledCorpus.of(parts, encoding)


def ranked(queries: int = 4) -> LabelledCorpus:
    made = [
        Example("", "was", " ".join([*["the"] * (2 - grade), *["good"] * grade]), label=float(grade), unit=str(query))
        for query in range(3 * queries) for grade in range(3)
    ]  # fmt: skip
    encoding = Encoding(task="ranking", tokeniser=WORDS, specials=specials_of(WORDS), length=12)
    count = 3 * queries
    parts = {"train": made[:count], "validation": made[count : 2 * count], "test": made[2 * count :]}
    return LabelledCorpus.of(parts, encoding)


def run_finetune(folder: Path, *, steps: int, checkpoint_every: int = 4) -> Finetuned:
    """Two tasks, dropout everywhere, rates by layer: 5 steps an epoch, every bit of them random."""
    seeded(3)  # beartype draws from Python's random state: whatever came before must not matter
    tasks = {"class": classified(), "rank": ranked()}
    return finetune(
        network(tasks["class"], hidden=8, layers=2, dropout=0.3, attention_dropout=0.2),
        tasks, dropout=0.3, layer_decay=0.8, mixing="square_root", seed=7, folder=folder,
        training=Training(epochs=max(1, steps // 5), batch_size=8, patience=99, checkpoint_every=checkpoint_every),
        optimiser=AdamW(learning_rate=0.01), schedule=LinearDecay(warmup=5),
    )  # fmt: skip
