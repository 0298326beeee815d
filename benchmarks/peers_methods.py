"""How ebar, genlm-control and masking make every text of a language model contain a word, with a number of passes.

- ebar: look-ahead as it begins, and look-ahead that learns; importance weights, a tenth of the draws defensive.
- masking, as libraries for structured text do it: the end is forbidden until the word is there; and masking by an
  automaton that knows how many tokens are left. Weights are the mass that the mask lets through.
- genlm-control: adaptive weighted rejection inside sequential Monte Carlo, runs of 8, 32 or 128 particles, over and
  over; log Z is the mean over runs. Prefixes have no weight of their own: each can still be followed by the word.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import util
from typing import Any

import torch
from torch import Generator

import ebar
from ebar.features.feature import Features
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import Tilted
from ebar.samplers.guided import Guided
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import guided, learnt

WORDS, LENGTH, ROWS = "castle|dragon", 20, 64
WHOLE_WORD = re.compile(rf"(?<![A-Za-z0-9_])(?:{WORDS})(?![A-Za-z0-9_])")
SURROGATE = 0.15  # of the passes, to fit the surrogate of look-ahead
LEARNING, ROUNDS = 0.45, 3  # of the passes, and in how many rounds
DEFENCE = 0.1  # of the draws
PARTICLES = (8, 32, 128)


@dataclass
class Drawn:
    """What a method has drawn with its passes."""

    texts: list[str] = field(default_factory=list)
    log_weights: list[float] = field(default_factory=list)  # relative to one another, over all runs
    log_q: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    runs: list[float] | None = None  # log Ẑ of each; None: of each draw


class NotInstalledError(Exception):
    """A method needs what is not there."""


class Budget:
    """Counts the forward passes of a network."""

    def __init__(self, passes: int) -> None:
        self.passes, self.used = passes, 0

    def allows(self, texts: int) -> bool:
        """Whether so many texts can be drawn yet."""
        return self.passes - self.used >= texts * LENGTH

    @contextmanager
    def counting(self, network: Any) -> Iterator[None]:
        def count(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            self.used += len(named["input_ids"] if "input_ids" in named else arguments[0])

        handle = network.register_forward_pre_hook(count, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()


Method = Callable[[Pretrained, Budget, Generator], Drawn]


# ebar ---------------------------------------------------------------------------------------------------------------


def constrained(model: Pretrained) -> Tilted:
    """p: the model given that the word is there."""
    assert model.reading is not None
    never = ebar.bind(ebar.Word(WORDS, absent=True), model.reading)
    return Tilted(model, ebar.Linear(Features([never]), torch.tensor([-math.inf], dtype=torch.float64)))


def look_ahead(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """As it begins."""
    draws = round(SURROGATE * budget.passes / LENGTH)
    return from_proposal(model, guided(constrained(model), draws=draws, generator=generator), budget, generator)


def learnt_look_ahead(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """After its rounds: one of them more is drawn, to choose among what they have learnt."""
    learning = Learning(rounds=ROUNDS, draws=round(LEARNING * budget.passes / LENGTH / (ROUNDS + 1)))
    draws = round(SURROGATE * budget.passes / LENGTH)
    proposal, _ = learnt(constrained(model), learning=learning, draws=draws, generator=generator)
    return from_proposal(model, proposal, budget, generator)


def masked_in_time(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """A token is forbidden after which the word can no longer come within the tokens left."""
    masking = guided(constrained(model), draws=2, generator=generator).masking()
    assert masking is not None
    return from_proposal(model, masking, budget, generator, defence=0.0)


def from_proposal(
    model: Pretrained, proposal: Guided, budget: Budget, generator: Generator, *, defence: float = DEFENCE
) -> Drawn:  # fmt: skip
    """Draws until the passes are used up; each draw is an estimate of Z."""
    assert model.tokeniser is not None
    assert model.space.end is not None
    target, drawn = constrained(model), Drawn()
    while budget.allows(ROWS):
        x, log_g, log_q = proposal.walk(ROWS, defensive=round(defence * ROWS), generator=generator)
        drawn.texts += [model.tokeniser.decode(row[: row.index(model.space.end)]) for row in x.rows()]
        drawn.log_weights += (log_q - log_g - target.energy(x)).double().tolist()
        drawn.log_q += log_q.tolist()
        drawn.tokens += x.lengths.tolist()
    return drawn


# Masking ------------------------------------------------------------------------------------------------------------


def masked(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """Tokens from the model, the end left out until the word is there; w = Π mass, and 0 for a text without it."""
    assert model.tokeniser is not None
    end, drawn = model.space.end, Drawn()
    while budget.allows(ROWS):
        logits, state = model.start(ROWS)
        rows: list[list[int]] = [[] for _ in range(ROWS)]
        ended, log_q, log_weight = torch.zeros(ROWS, dtype=torch.bool), torch.zeros(ROWS), torch.zeros(ROWS)
        for place in range(LENGTH):
            logs = logits.float().log_softmax(1)
            allowed = logs.clone()
            if place < LENGTH - 1:  # in the last place the end is certain
                allowed[~has_word(model, rows), end] = -math.inf
            mass = allowed.logsumexp(1)
            tokens = torch.multinomial((allowed - mass[:, None]).exp(), 1, generator=generator)[:, 0]
            log_q += torch.where(ended, 0.0, logs.gather(1, tokens[:, None])[:, 0])
            log_weight += torch.where(ended, 0.0, mass)
            for row, token, over in zip(rows, tokens.tolist(), ended.tolist(), strict=True):
                if not over and token != end:
                    row.append(token)
            ended |= tokens == end
            if bool(ended.all()):
                break
            following, state = model.advance(tokens[:, None], state)
            logits = following[:, 0]
        drawn.texts += [model.tokeniser.decode(row) for row in rows]
        drawn.log_weights += torch.where(has_word(model, rows), log_weight, -math.inf).tolist()
        drawn.log_q += log_q.tolist()
        drawn.tokens += [len(row) + 1 for row in rows]
    return drawn


def has_word(model: Pretrained, rows: list[list[int]]) -> torch.Tensor:
    """Which rows have it already."""
    assert model.tokeniser is not None
    return torch.tensor([WHOLE_WORD.search(model.tokeniser.decode(row)) is not None for row in rows])


# genlm-control ------------------------------------------------------------------------------------------------------


def genlm(particles: int) -> Method:
    """Runs of so many particles, one after the other."""

    def method(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
        if util.find_spec("genlm") is None:
            raise NotInstalledError("genlm-control is not installed: install genlm-control==0.4.1 beside ebar.")
        return asyncio.run(genlm_runs(model, budget, generator, particles))

    return method


async def genlm_runs(model: Pretrained, budget: Budget, generator: Generator, particles: int) -> Drawn:
    """Particles are resampled where less than half of them are effective; the word is asked for at the end.

    A text ends after as many tokens as ebar's, without a correction: the same target. What it has computed in a run is
    kept until the run is over.
    """
    import numpy as np
    from genlm.backend.llm import AsyncTransformer
    from genlm.control import AWRS, SMC, PromptedLLM
    from genlm.control.potential import Potential
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    assert model.tokeniser is not None
    assert model.space.end is not None
    described = Tokenizer.from_str(model.tokeniser.model)
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=described, eos_token=described.id_to_token(model.space.end))
    backend = AsyncTransformer(model.network, tokenizer, batch_size=ROWS, timeout=0.001)
    own = PromptedLLM(backend)
    own.prompt_ids = [] if model.beginning is None else [model.beginning]

    class HasWord(Potential):  # type: ignore[misc]  # of a package without types
        async def complete(self, context: list[bytes]) -> float:
            return 0.0 if WHOLE_WORD.search(spelt(context)) else -math.inf

        async def prefix(self, context: list[bytes]) -> float:
            return 0.0

    condition, most = HasWord(own.vocab), LENGTH - 1
    drawn = Drawn(runs=[])
    while budget.allows(particles):
        seed = int(torch.randint(2**31, (1,), generator=generator))
        np.random.seed(seed)
        sequences = await SMC(AWRS(own, condition, seed=seed))(
            n_particles=particles, ess_threshold=0.5, max_tokens=LENGTH,
            terminate_when=lambda context: len(context) >= most,
        )  # fmt: skip
        used, log_weights = budget.used, []
        for context, weight in zip(sequences.contexts, sequences.log_weights, strict=True):
            tokens = [token for token in context if isinstance(token, bytes)]
            text = spelt(tokens)
            log_weights.append(float(weight) if WHOLE_WORD.search(text) else -math.inf)
            drawn.texts.append(text)
            drawn.log_q.append(float(await (own.prefix if len(tokens) >= most else own.complete)(tokens)))
            drawn.tokens.append(len(tokens) + 1)
        budget.used = used  # to score texts for the perplexity is no part of the method
        drawn.log_weights += log_weights
        assert drawn.runs is not None
        drawn.runs.append(float(torch.tensor(log_weights, dtype=torch.float64).logsumexp(0)) - math.log(particles))
        backend.clear_cache()
    return drawn


def spelt(context: list[bytes]) -> str:
    """Tokens as text."""
    return b"".join(context).decode("utf-8", errors="replace")


SLOW = tuple(f"genlm-control, {particles} particles" for particles in PARTICLES)  # they read a text whole each time
METHODS: dict[str, Method] = {
    "ebar, look-ahead": look_ahead,
    "ebar, look-ahead that learns": learnt_look_ahead,
    "masking": masked,
    "masking that knows the length": masked_in_time,
    **{f"genlm-control, {particles} particles": genlm(particles) for particles in PARTICLES},
}
