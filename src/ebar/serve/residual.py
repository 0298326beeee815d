"""A language model with an energy that was learnt: P(x|C) = q(x|C)·exp(−E(x, C)), for one request."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Generator

from ebar.errors import UserError
from ebar.estimators.per_step import per_step
from ebar.evaluation.next_words import next_words
from ebar.journeys.residual.journey import Residual
from ebar.models.tilted import measured_energy, propose
from ebar.samplers.draw import shares
from ebar.serve.allowance import Allowance
from ebar.serve.checks import rows_at_once
from ebar.serve.cloud import Cloud, Knob, NextWord
from ebar.serve.found import Asked, Found, Moment, Part, Progress, heaviest
from ebar.serve.limits import Limits, Watched, WatchedEnergy
from ebar.serve.tilting import WORDS
from ebar.types import Context, Sequences

FUTURES = 16  # of each next word, and at each token of a text


def watched(residual: Residual, allowance: Allowance, rows: int) -> Residual:
    """The same, stopped as soon as the allowance is used up."""
    q = Watched(residual.base.q, allowance, rows)
    return replace(
        residual, base=replace(residual.base, q=q), energy=WatchedEnergy(residual.energy, allowance), at_once=rows
    )


def energised(residual: Residual, asked: Asked, limits: Limits, allowance: Allowance) -> Iterator[Progress | Found]:
    """Next words, weighted draws and all that is read off them."""
    if asked.terms:
        raise UserError("This run has an energy of its own: leave the constraints empty, or pick another model.")
    n = limits.check_number(asked.draws, limits.draws, "Draws", least=50)
    seed = limits.check_number(asked.seed, 2**31, "Seed", least=0)
    length = residual.base.q.space.length
    if length > limits.length:
        raise UserError(f"This run's texts have {length} tokens, and at most {limits.length} are drawn here.")
    rows = rows_at_once(residual.base.q, length, limits)
    own = watched(residual, allowance, rows)
    q, context = own.base.q, own.base.context_of(asked.prompt)
    generator = Generator(device=own.base.device).manual_seed(seed)
    yield Progress("next words")
    words = next_words(q, own.energy, context, candidates=2 * WORDS, n=FUTURES, batch_size=rows, generator=generator)
    before = own.base.encode(asked.prompt) if asked.prompt else []
    listed = [NextWord(one.token, own.base.spell(before, [one.token]), one.base, one.joint) for one in words.words]
    if words.rest is not None:
        listed.append(NextWord(-1, "all others", words.rest.base, words.rest.joint))
    parts: list[tuple[Sequences, torch.Tensor, torch.Tensor]] = []
    for size in shares(n, None, rows):
        yield Progress("drawing from q", sum(len(part[1]) for part in parts), n)
        x, log_q = propose(q, size, context, generator)
        energy = measured_energy(own.energy, x, context)
        parts.append((x, log_q.double().cpu(), energy.detach().double().cpu()))
    x = Sequences.join([part[0] for part in parts])
    log_q, energy = torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])
    cloud = Cloud(x, own.texts(x, asked.prompt), log_q, energy, -energy)
    plain = replace_weights(cloud)
    knob = Knob("energy E", -energy, energy, 1.0)
    yield Found(
        asked=asked, what="p is q·exp(−E)/Z: q's texts, those of low energy preferred.", words=listed,
        words_from=f"from {FUTURES} futures of each, as `ebar residual explain` has them", log_z=cloud.log_z(),
        effective=cloud.effective(),
        moments=[Moment("energy E", None, None, plain.mean(energy, name="energy"), cloud.mean(energy, name="energy"))],
        knobs=[knob], cloud=cloud,
        parts=lambda text, spare: parts_joint(residual, asked.prompt, text, rows, seed, spare),
        parts_mean="how much likelier each token is under p than under q", candidates=heaviest(cloud),
    )  # fmt: skip


def replace_weights(cloud: Cloud) -> Cloud:
    """The same draws as those of q, all of one weight."""
    return Cloud(cloud.x, cloud.texts, cloud.log_q, cloud.energy, torch.zeros_like(cloud.log_q))


def parts_joint(
    residual: Residual, prompt: str, text: str, rows: int, seed: int, allowance: Allowance
) -> list[Part]:  # fmt: skip
    """log p − log q of each token, from futures at every place: they sum to −E(x) − log Ẑ."""
    own = watched(residual, allowance, rows)
    context: Context | None = own.base.context_of(prompt)
    x = own.base.continuation_of(prompt, text)
    generator = Generator(device=own.base.device).manual_seed(seed)
    steps = per_step(
        own.base.q, own.energy, x, context, n=FUTURES, exact_last=False, batch_size=rows, generator=generator
    )
    before, tokens = own.base.encode(prompt) if prompt else [], x.prefix(0)
    gains = (steps.log_joint - steps.log_q)[0].tolist()
    return [
        Part(own.base.spell([*before, *tokens[:place]], [token]), gain if math.isfinite(gain) else math.nan)
        for place, (token, gain) in enumerate(zip(tokens, gains, strict=False))
    ]
