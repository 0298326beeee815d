"""A word that every text must contain: ebar, genlm-control and masking on SmolLM2-135M, with as many forward passes.

The language model writes texts of at most 20 tokens; each must contain "castle" or "dragon" as a word. A forward pass
is one context for which the model computes what comes next: a batch of 64 contexts counts 64, whatever is cached.
Fitting a surrogate and learning to look ahead count too. Each method has the same passes to use up:

- ebar: look-ahead as it begins, and look-ahead that learns; importance weights, a tenth of the draws defensive.
- genlm-control: adaptive weighted rejection inside sequential Monte Carlo, runs of 8, 32 or 128 particles, over and
  over; log Z from the mean over runs.
- masking: the end is forbidden until the word is there; weights are the mass that the mask lets through.

Reported: the share of drawn texts that have the word, how many distinct ones, effective samples, log Z with an
interval (over draws, or over runs), the perplexity of the found texts under the model, seconds.

    python benchmarks/peers.py --passes 60000 --json

genlm-control is skipped with a reason where it is not installed (genlm-control==0.4.1 beside ebar).
"""

import argparse
import asyncio
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

import ebar
from ebar.features.feature import Features
from ebar.maths.log_space import effective_sample_size
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import Tilted
from ebar.recipes.residual.configurations import path_of
from ebar.samplers.guided import Guided
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import guided, learnt
from ebar.store.writing import once

WORDS, LENGTH, ROWS = "castle|dragon", 20, 64
WHOLE_WORD = re.compile(rf"(?<![A-Za-z0-9_])(?:{WORDS})(?![A-Za-z0-9_])")
SURROGATE = 0.1  # of the passes, to fit the surrogate of look-ahead
LEARNING, ROUNDS = 0.5, 4  # of the passes, and in how many rounds
PARTICLES = (8, 32, 128)


class Drawn(NamedTuple):
    """What a method has drawn with its passes; a run is what has one estimate of Z."""

    texts: list[str]
    log_weights: list[float]  # relative to one another, over all runs
    log_q: list[float]
    tokens: list[int]
    runs: list[float]  # log Ẑ of each


class Budget:
    """Counts the forward passes of a network."""

    def __init__(self, passes: int) -> None:
        self.passes, self.used = passes, 0

    @property
    def left(self) -> int:
        return self.passes - self.used

    @contextmanager
    def counting(self, network: Any) -> Iterator[None]:
        def count(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            tokens = named.get("input_ids", arguments[0] if arguments else None)
            self.used += len(tokens if tokens is not None else named["inputs_embeds"])

        handle = network.register_forward_pre_hook(count, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()


def main(argv: list[str] | None = None) -> int:
    """Run each method that is not kept yet, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=60_000, help="forward passes of each method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path(".cache/benchmarks/peers"), help="where parts are kept")
    parser.add_argument("--record", type=Path, help="write the figures to this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    folder = options.cache / f"{options.passes}-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    methods: dict[str, Callable[[Pretrained, Budget, Generator], Drawn]] = {
        "ebar, look-ahead": look_ahead, "ebar, look-ahead that learns": learnt_look_ahead, "masking": masked,
    }  # fmt: skip
    skipped = None
    if util.find_spec("genlm") is None:
        skipped = "genlm-control is not installed: pip install genlm-control==0.4.1 in an environment beside ebar."
    else:
        for particles in PARTICLES:
            methods[f"genlm-control, {particles} particles"] = genlm(particles)
    figures = {}
    for name, method in methods.items():
        path = folder / f"{re.sub('[^a-z0-9]+', '-', name)}.json"
        figures[name] = once(path, partial(measured, method, options.passes, options.seed))
        print(f"{name}: {figures[name]}", file=sys.stderr)
    found = {
        "command": f"python benchmarks/peers.py --passes {options.passes} --seed {options.seed}",
        "constraint": f"word {WORDS} within {LENGTH} tokens of SmolLM2-135M", "versions": versions(),
        "methods": figures, "skipped": skipped,
    }  # fmt: skip
    if options.record:
        options.record.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(found) if options.json else json.dumps(found, indent=1))
    return 0


def versions() -> dict[str, str]:
    """Of what was compared."""
    names = ("ebar", "torch", "transformers", "genlm-control", "genlm-backend")
    return {name: metadata.version(name) for name in names if _installed(name)}


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def measured(
    method: Callable[[Pretrained, Budget, Generator], Drawn], passes: int, seed: int
) -> dict[str, Any]:  # fmt: skip
    """One method with its passes: what the texts are, and what they cost."""
    model = ebar.from_pretrained(path_of("smollm2"), length=LENGTH)
    assert isinstance(model, Pretrained)
    budget, began = Budget(passes), time.monotonic()
    with budget.counting(model.network), torch.no_grad():
        drawn = method(model, budget, Generator().manual_seed(seed))
    return {**figures_of(drawn), "passes": budget.used, "seconds": time.monotonic() - began}


def figures_of(drawn: Drawn) -> dict[str, Any]:
    """Success is counted by the text, whatever a method says of its weights."""
    right = [WHOLE_WORD.search(text) is not None for text in drawn.texts]
    weights = torch.tensor(
        [weight if has else -math.inf for weight, has in zip(drawn.log_weights, right, strict=True)],
        dtype=torch.float64,
    )
    found = [place for place, has in enumerate(right) if has]
    probable = weights.softmax(0) if found else weights
    size = float(effective_sample_size(weights)) if found else 0.0
    of_distinct: dict[str, float] = {}
    for place in found:
        of_distinct[drawn.texts[place]] = of_distinct.get(drawn.texts[place], 0.0) + float(probable[place])
    nats = sum(float(probable[place]) * -drawn.log_q[place] for place in found)
    length = sum(float(probable[place]) * drawn.tokens[place] for place in found)
    return {
        "drawn": len(drawn.texts), "success": len(found) / max(1, len(right)), "distinct": len(of_distinct),
        "effective": size,
        "effective_distinct": 1 / sum(share**2 for share in of_distinct.values()) if found else 0.0,
        "log_z": log_z(drawn.runs), "perplexity": math.exp(nats / length) if found else None,
    }  # fmt: skip


def log_z(runs: list[float]) -> dict[str, float | None]:
    """log of the mean of Ẑ over runs (or draws), with a 95 % interval; none where nothing was found."""
    logs = torch.tensor(runs, dtype=torch.float64)
    highest = float(logs.max())
    if highest == -math.inf:
        return {"value": None, "low": None, "high": None}
    scaled = (logs - highest).exp()
    mean, error = float(scaled.mean()), float(scaled.std() / math.sqrt(len(scaled)))
    low = math.log(mean - 1.96 * error) + highest if mean > 1.96 * error else None
    return {"value": math.log(mean) + highest, "low": low, "high": math.log(mean + 1.96 * error) + highest}


# ebar ---------------------------------------------------------------------------------------------------------------


def constrained(model: Pretrained) -> Tilted:
    """p: the model given that the word is there."""
    assert model.reading is not None
    never = ebar.bind(ebar.Word(WORDS, absent=True), model.reading)
    return Tilted(model, ebar.Linear(Features([never]), torch.tensor([-math.inf], dtype=torch.float64)))


def look_ahead(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """As it begins."""
    draws = int(SURROGATE * budget.passes / LENGTH)
    return from_proposal(model, guided(constrained(model), draws=draws, generator=generator), budget, generator)


def learnt_look_ahead(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """After its rounds."""
    learning = Learning(rounds=ROUNDS, draws=int(LEARNING * budget.passes / LENGTH / ROUNDS))
    draws = int(SURROGATE * budget.passes / LENGTH)
    proposal, _ = learnt(constrained(model), learning=learning, draws=draws, generator=generator)
    return from_proposal(model, proposal, budget, generator)


def from_proposal(model: Pretrained, proposal: Guided, budget: Budget, generator: Generator) -> Drawn:
    """Draws until the passes are used up; each draw is an estimate of Z."""
    target, parts = constrained(model), []
    while budget.left >= ROWS * LENGTH:
        x, log_g, log_q = proposal.walk(ROWS, defensive=round(0.1 * ROWS), generator=generator)
        log_weights = (log_q - log_g - target.energy(x)).double()
        parts.append((x, log_weights, log_q.double()))
    texts = [model.tokeniser.decode(row[:length].tolist()) if model.tokeniser else ""
             for x, _, _ in parts for row, length in zip(x.tokens, x.lengths.tolist(), strict=True)]  # fmt: skip
    weights = torch.cat([some for _, some, _ in parts]).tolist()
    nats = torch.cat([some for _, _, some in parts]).tolist()
    return Drawn(texts, weights, nats, [int(n) for x, _, _ in parts for n in x.lengths], weights)


# Masking ------------------------------------------------------------------------------------------------------------


def masked(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
    """Tokens from the model, the end left out until the word is there; w = Π mass, and 0 for a text without it."""
    assert model.tokeniser is not None
    end = model.space.end
    found = Drawn([], [], [], [], [])
    while budget.left >= ROWS * LENGTH:
        logits, state = model.start(ROWS)
        rows: list[list[int]] = [[] for _ in range(ROWS)]
        ended, log_q, log_weight = torch.zeros(ROWS, dtype=torch.bool), torch.zeros(ROWS), torch.zeros(ROWS)
        for place in range(model.space.length):
            logs = logits.float().log_softmax(1)
            allowed = logs.clone()
            if place < model.space.length - 1:
                has = torch.tensor([WHOLE_WORD.search(model.tokeniser.decode(row)) is not None for row in rows])
                allowed[~has, end] = -math.inf
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
        texts = [model.tokeniser.decode(row) for row in rows]
        weights = [float(w) if WHOLE_WORD.search(text) else -math.inf
                   for w, text in zip(log_weight, texts, strict=True)]  # fmt: skip
        found.texts.extend(texts)
        found.log_weights.extend(weights)
        found.log_q.extend(log_q.tolist())
        found.tokens.extend(len(row) + 1 for row in rows)
        found.runs.extend(weights)
    return found


# genlm-control ------------------------------------------------------------------------------------------------------


def genlm(particles: int) -> Callable[[Pretrained, Budget, Generator], Drawn]:
    """Runs of so many particles, one after the other."""

    def method(model: Pretrained, budget: Budget, generator: Generator) -> Drawn:
        return asyncio.run(genlm_runs(model, budget, generator, particles))

    return method


async def genlm_runs(model: Pretrained, budget: Budget, generator: Generator, particles: int) -> Drawn:
    """Adaptive weighted rejection, resampling below half of the particles; the word is asked for at the end.

    Prefixes have no weight of their own: each can still be followed by the word. A text ends after as many tokens as
    ebar's, without a correction: the same target.
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
    tokenizer = fast(
        tokenizer_object=described, eos_token=described.id_to_token(model.space.end)
    )  # fmt: skip
    own = PromptedLLM(AsyncTransformer(model.network, tokenizer, batch_size=ROWS, timeout=0.001))
    own.prompt_ids = [] if model.beginning is None else [model.beginning]

    class HasWord(Potential):  # type: ignore[misc]  # of a package without types
        async def complete(self, context: list[bytes]) -> float:
            text = b"".join(context).decode("utf-8", errors="replace")
            return 0.0 if WHOLE_WORD.search(text) else -math.inf

        async def prefix(self, context: list[bytes]) -> float:
            return 0.0

    condition, most = HasWord(own.vocab), model.space.length - 1
    found = Drawn([], [], [], [], [])
    while budget.left >= particles * LENGTH:
        seed = int(torch.randint(2**31, (1,), generator=generator))
        np.random.seed(seed)
        sampler = SMC(AWRS(own, condition, seed=seed))
        sequences = await sampler(
            n_particles=particles, ess_threshold=0.5, max_tokens=most + 1,
            terminate_when=lambda context: len(context) >= most,
        )  # fmt: skip
        used = budget.used
        for context, weight in zip(sequences.contexts, sequences.log_weights, strict=True):
            tokens = [token for token in context if isinstance(token, bytes)]
            text = b"".join(tokens).decode("utf-8", errors="replace")
            has = WHOLE_WORD.search(text) is not None
            found.texts.append(text)
            found.log_weights.append(float(weight) if has else -math.inf)
            found.log_q.append(float(await (own.prefix if len(tokens) >= most else own.complete)(tokens)))
            found.tokens.append(len(tokens) + 1)
        budget.used = used  # scoring texts for the perplexity is not theirs
        of_run: Tensor = torch.tensor(found.log_weights[-particles:], dtype=torch.float64)
        found.runs.append(float(of_run.logsumexp(0)) - math.log(particles))
    return found


if __name__ == "__main__":
    sys.exit(main())
