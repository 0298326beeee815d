"""A language model whose every text obeys a grammar, a JSON schema or a regular expression, and what that takes.

P(x) = q(x)·1[x obeys], its log Z being the log-probability that a text of the model does. Draws are masked, token by
token, and weighed: see `samplers.masked`. What a grammar allows is what llguidance makes of it, the order of a schema's
keys and the white space between them included.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator

from ebar.automata.lift import Reading
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.features.feature import Features, bind, negated
from ebar.features.regular import Regular
from ebar.features.rules import Canonical, Grammar, RegularRule, Rule, json_schema
from ebar.journeys.control.continuing import Texts, continued_from
from ebar.maths.log_space import effective_sample_size
from ebar.maths.proportions import wilson
from ebar.maths.randomness import default_generator
from ebar.models.tilted import Tilted, reading_of_model
from ebar.progress import bar
from ebar.samplers.draw import shares
from ebar.samplers.importance import multinomial
from ebar.samplers.masked import Masked, MaskedDraws
from ebar.types import Estimate, Sequences, Weighted


@dataclass(frozen=True, kw_only=True, eq=False)
class Grammatical:
    """P(x) = q(x)·1[x obeys a rule]."""

    p: Tilted
    proposal: Masked
    reading: Reading
    canonical: bool
    rows: int

    def draw(self, n: int = 1000, *, generator: Generator | None = None) -> MaskedDraws:
        """n masked draws with their weights; some are cut off, and have none."""
        generator = default_generator(device_of(self.p.base)) if generator is None else generator
        parts: list[MaskedDraws] = []
        with bar("drawing", n, "draws") as progress:
            for size in shares(n, None, self.rows):
                parts.append(self._weighed(self.proposal.walk(size, generator=generator)))
                progress.advance(size)
        drawn = MaskedDraws(
            Sequences.join([part.x for part in parts]),
            *(torch.cat(columns) for columns in zip(*(part[1:] for part in parts), strict=True)),
        )
        if bool((drawn.log_weights == -math.inf).all()):
            length = self.p.base.space.length
            raise UserError(
                f"None of the {n:,} texts was whole within {length:,} tokens: allow longer ones, draw more, or give a "
                "grammar whose texts end."
            )
        return drawn

    def _weighed(self, drawn: MaskedDraws) -> MaskedDraws:
        """Without a weight where the tokens must be canonical, and are not."""
        if not self.canonical:
            return drawn
        kept = bind(Canonical(), self.reading)(drawn.x) > 0
        return drawn._replace(log_weights=torch.where(kept, drawn.log_weights, -math.inf))

    def check(self, drawn: MaskedDraws) -> dict[str, Estimate | float]:
        """What draws tell of P: log Z, the share cut off, how far masking alone is from p, and what share is canonical.

        Canonical tokens are those that the tokeniser makes of a text. P has all spellings unless it was asked for
        canonical ones alone, whose log Z is less by the log of their share.
        """
        log_weights = drawn.log_weights.double().cpu()[None]
        cut = (log_weights == -math.inf).double()
        log_g = drawn.log_q.double().cpu() - torch.where(cut[0] > 0, 0.0, log_weights[0])
        count, total = float(cut.sum()), float(cut.numel())
        figures: dict[str, Estimate | float] = {
            "log_z": log_mean(log_weights)[0].estimate,
            "share cut off": Estimate(count / total, *wilson(count, total), total),
            "KL(p‖masking), nats": kl_to_model(log_weights[0], log_g, log_g),
            "effective samples per draw": float(effective_sample_size(log_weights)[0]) / log_weights.shape[1],
        }
        if self.reading.encode is not None:
            canonical = bind(Canonical(), self.reading)(drawn.x).cpu()[None]
            figures["share of p in canonical tokens"] = weighted_mean(
                log_weights, canonical, low=0.0, high=1.0, name="canonical tokens"
            )[0]
        return figures

    def texts(self, drawn: MaskedDraws, n: int, *, generator: Generator | None = None) -> Texts:
        """n whole texts, chosen among the draws in proportion to their weights."""
        generator = default_generator(drawn.log_weights.device) if generator is None else generator
        chosen = multinomial(drawn.log_weights[None].to(generator.device), n, generator)[0]
        x = drawn.x.select(chosen.to(drawn.x.tokens.device))
        return Texts(self.text(x), Weighted(x, torch.zeros(1, n, device=x.tokens.device)))

    def sample(self, n: int = 10, *, draws: int = 1000, generator: Generator | None = None) -> Texts:
        """n whole texts, from so many draws: near p where the effective samples are many more than n."""
        return self.texts(self.draw(draws, generator=generator), n, generator=generator)

    def text(self, x: Sequences) -> list[str]:
        """What sequences spell."""
        return [self.reading.text(row) for row in x.rows()]


def grammar(
    model: Any, rule: Grammar | Regular | str | Mapping[str, Any], *, prompt: str = "", length: int | None = None,
    canonical: bool = False, rows: int = 64,
) -> Grammatical:  # fmt: skip
    """A model under a rule for whole texts: `Grammar` of Lark's kind, a JSON schema, or a regular expression (`whole`).

    Draws go on from the `prompt`, which the rule does not read, and have at most `length` tokens, the end included;
    `rows` of them are drawn at a time. With `canonical`, P has only the tokens that the tokeniser would make of a text.
    The model must be one whose texts end.
    """
    reading = reading_of_model(model)
    if reading is None:
        raise UserError("This model does not say what its tokens spell: give one that is pretrained or made for data.")
    base = continued_from(model, prompt, reading, length)
    reading = replace(reading, longest=base.space.length, before="")
    wanted = json_schema(rule) if isinstance(rule, str | Mapping) else rule
    feature = bind(wanted, reading)
    opposite = negated(feature)
    assert opposite is not None
    forbidden = [opposite, *([bind(Canonical(absent=True), reading)] if canonical else [])]
    energy = Linear(Features(forbidden), torch.full((len(forbidden),), -math.inf, dtype=torch.float64))
    follows: Rule = RegularRule(wanted, reading) if isinstance(wanted, Regular) else wanted.bind(reading).rule
    return Grammatical(
        p=Tilted(base, energy), proposal=Masked(base, follows), reading=reading, canonical=canonical, rows=rows
    )
