"""`ebar control reward`: what a reward of texts can come to, and how far from the model.

p ∝ q·e^(r/β) maximises E[r] − β·KL(·‖q) over all models: its log Z, its expected reward and its KL from the model, with
intervals; the best of n draws beside it, at a KL that is not above p's; and texts of p. The reward is a function of a
list of texts that gives a number for each: FILE.py:FUNCTION, FOLDER of a reward model with one output, as trl trains
them, or FOLDER:LABEL of a sequence classifier.

Example:
    ebar control reward --model FOLDER --reward scores.py:cheerful --beta 0.5 --prompt 'Once upon a time'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Generator

from ebar.bounds import Amount, Count, Location, Natural, Seed, at_least
from ebar.build.control import load_model_at
from ebar.build.terms import load_function
from ebar.cli.show import show_with_texts
from ebar.config.reader import Answer, Chosen, Manual, choice, list_option, read
from ebar.estimators.exact import device_of
from ebar.features.functions import reward_model
from ebar.journeys.reward import reward
from ebar.progress import shown
from ebar.samplers import SAMPLERS

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class RewardConfig(Answer):
    """A model, a reward, and how much is drawn."""

    model: Location
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    reward: str
    """FILE.py:FUNCTION, of a list of texts; FOLDER, the output of a reward model; or FOLDER:LABEL, the probability of a
    label by a sequence classifier."""
    beta: Amount = 1.0
    """What a nat of KL from the model costs in reward."""
    prompt: str = ""
    """Text that every draw goes on from."""
    reads_prompt: bool = True
    """Whether the reward is of the prompt and what follows it, or of what follows alone."""
    length: Count = 40
    """Tokens of a draw."""
    ends: bool = False
    """Whether a draw may end before, with the model's end token."""
    draws: Annotated[int, at_least(8)] = 4000
    """Of the model, for the figures."""
    best_of: tuple[int, ...] = list_option("N", lambda: "more numbers of draws of which the best is taken")
    n: Natural = 5
    """Texts of p to show."""
    sampler: Chosen = choice(SAMPLERS, "resampling")
    rows: Count = 256
    """Draws made at a time."""
    seed: Seed = 0
    """Of the draws."""
    device: str | None = None
    """Where to compute, such as cpu or cuda."""


def main(words: Sequence[str]) -> int:
    """Figures with intervals, and texts of p."""
    config = read(words, MANUAL, RewardConfig)
    function = read_reward(config.reward)
    model = load_model_at(config.model, length=config.length, ends=config.ends, device=config.device)
    found = reward(
        model, function, beta=config.beta, prompt=config.prompt, reads_prompt=config.reads_prompt,
        length=min(config.length, model.space.length), rows=config.rows,
    )  # fmt: skip
    generator = Generator(device_of(model)).manual_seed(config.seed)
    with shown(not config.json):
        figures = found.check(config.draws, best_of=config.best_of, generator=generator)
        sampler = config.sampler.make(SAMPLERS)
        texts = list(found.sample(config.n, sampler=sampler, generator=generator)) if config.n else []
    title = f"{config.reward}, β = {config.beta:g}, {config.draws:,} draws of the model, seed {config.seed}"
    return show_with_texts(title, figures, texts, as_json=config.json)


def read_reward(argument: str) -> Callable[[list[str]], Sequence[float]]:
    """A function of the user's, or a classifier's probability."""
    path = argument.rpartition(":")[0] or argument
    if path.endswith(".py"):
        return load_function(argument)
    return reward_model(argument)
