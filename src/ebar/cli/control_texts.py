"""`ebar control grammar` and `ebar control reward`: texts under a rule, or under a reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from torch import Generator

from ebar.bounds import Amount, Count, Location, Natural, Seed, at_least
from ebar.build.control import load_model_at
from ebar.build.finetune import is_finetuned, load_finetuned, scores_by
from ebar.build.terms import load_function
from ebar.cli.show import show_with_texts
from ebar.config.reader import Answer, Chosen, Manual, choice, list_option, read
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.features.functions import reward_model
from ebar.features.regular import Regular, whole
from ebar.features.rules import Grammar, json_schema
from ebar.journeys.texts import grammar, reward
from ebar.progress import shown
from ebar.samplers import SAMPLERS


@dataclass(frozen=True, kw_only=True)
class GrammarConfig(Answer):
    """A model, a rule, and how much is drawn."""

    model: Location
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    grammar: Path | None = None
    """A file with a context-free grammar."""
    json_schema: Path | None = None
    """A file with a JSON schema."""
    expression: str | None = None
    """A regular expression that is to match the whole text."""
    canonical: bool = False
    """Whether only the tokens count that the tokeniser makes of a text, and not all that spell it."""
    prompt: str = ""
    """Text that every draw goes on from, and which the rule does not read."""
    length: Count = 64
    """Tokens of a draw at most, its end included: a text that is not whole by then is cut off."""
    draws: Annotated[int, at_least(4)] = 400
    """Masked ones, for the figures and to choose texts from."""
    n: Natural = 5
    """Texts to show."""
    rows: Count = 64
    """Draws made at a time."""
    seed: Seed = 0
    """Of the draws."""
    device: str | None = None
    """Where to compute, such as cpu or cuda."""


def within(words: Sequence[str]) -> int:
    """`ebar control grammar`: texts that obey a grammar, a JSON schema or a regular expression, and what that takes.

    P is the model given that the whole text obeys. Every token is drawn among those that can still lead to a text that
    does, and the texts are weighed so that they are draws of P, which masking alone does not give. Shown are log Z, the
    log-probability that a text of the model obeys; the share of draws cut off at --length, which have no weight; how
    far masking alone is from P; and texts, each of them whole. A grammar is in llguidance's dialect of Lark; a schema
    is read as llguidance reads it, with its keys in the schema's order and white space where llguidance allows it.

    Example:
        ebar control grammar --model FOLDER --json_schema person.json --prompt 'As JSON: ' --length 60
        ebar control grammar --model FOLDER --expression '[0-9]{4}-[0-9]{2}-[0-9]{2}' --prompt 'Born on '
    """
    config = read(words, Manual.of(within.__doc__), GrammarConfig)
    rule = read_rule(config)
    model = load_model_at(config.model, length=config.length, ends=True, device=config.device)
    found = grammar(
        model, rule, prompt=config.prompt, length=min(config.length, model.space.length), canonical=config.canonical,
        rows=config.rows,
    )  # fmt: skip
    generator = Generator(device_of(model)).manual_seed(config.seed)
    with shown(not config.json):
        drawn = found.draw(config.draws, generator=generator)
        figures = found.check(drawn)
        texts = list(found.texts(drawn, config.n, generator=generator)) if config.n else []
    title = f"{config.draws:,} masked draws of at most {config.length:,} tokens, seed {config.seed}"
    return show_with_texts(title, figures, texts, as_json=config.json)


def read_rule(config: GrammarConfig) -> Grammar | Regular:
    """The one that was given."""
    given = [one for one in (config.grammar, config.json_schema, config.expression) if one is not None]
    if len(given) != 1:
        raise UserError("Give one of --grammar FILE, --json_schema FILE and --expression EXPRESSION.")
    if config.expression is not None:
        return whole(config.expression)
    path = Path(given[0])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"{path} cannot be read ({reason}): give a file with a grammar or a schema.") from None
    return json_schema(text) if config.json_schema is not None else Grammar(text)


@dataclass(frozen=True, kw_only=True)
class RewardConfig(Answer):
    """A model, a reward, and how much is drawn."""

    model: Location
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    reward: str
    """FILE.py:FUNCTION, of a list of texts; FOLDER, the output of a reward model; or FOLDER:LABEL, the probability of a
    label by a sequence classifier. A folder is of transformers, or of a run of `ebar finetune`."""
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


def towards(words: Sequence[str]) -> int:
    """`ebar control reward`: what a reward of texts can come to, and how far from the model.

    p ∝ q·e^(r/β) maximises E[r] − β·KL(·‖q) over all models: its log Z, its expected reward and its KL from the model,
    with intervals; the best of n draws beside it, at a KL that is not above p's; and texts of p. The reward is a
    function of a list of texts that gives a number for each: FILE.py:FUNCTION, FOLDER of a reward model with one
    output, as trl trains them, or FOLDER:LABEL of a sequence classifier; runs of `ebar finetune` are such folders too.

    Example:
        ebar control reward --model FOLDER --reward scores.py:cheerful --beta 0.5 --prompt 'Once upon a time'
    """
    config = read(words, Manual.of(towards.__doc__), RewardConfig)
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
    """A function of the user's, or what a classifier or a reward model says."""
    path, _, label = argument.rpartition(":")
    if (path or argument).endswith(".py"):
        return load_function(argument)
    for folder, of in ((path, label), (argument, None)):
        if folder and is_finetuned(Path(folder)):
            return scores_by(load_finetuned(Path(folder)), of)
    return reward_model(argument)
