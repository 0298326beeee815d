"""Filling the gaps of a text with words, each with its log-probability and an interval over orders."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.data.gapped import Gapped
from ebar.data.specials import specials_of
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.estimators.orders import Orders, log_probs_by_order, over_orders
from ebar.maths.randomness import default_generator
from ebar.modes import evaluation_mode
from ebar.store.writing import plain
from ebar.types import Context, Estimate, Sequences, Stepwise

WIDTH = 4  # prefixes kept in a search, for each candidate that is asked for
NARROWEST = 64
PASSED = 8  # times as many are looked at where a word is finished
MOST = 81  # ways to share out pieces among the gaps


@dataclass(frozen=True)
class Candidate:
    """A word for one gap, the other gaps left open."""

    word: str
    pieces: tuple[int, ...]
    log_prob: Estimate


@dataclass(frozen=True)
class Filling:
    """A word for every gap at once."""

    words: tuple[str, ...]
    text: str
    log_prob: Estimate


@dataclass(frozen=True)
class Infilled:
    """Candidates for each gap by itself, and for all gaps together, likeliest first."""

    text: str
    gaps: list[list[Candidate]]
    fillings: list[Filling]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        found: dict[str, Any] = plain(self)
        return found


def infill(
    source: Any,
    text: str,
    *,
    candidates: int = 5,
    pieces: int = 3,
    prior: Sequence[float] | None = None,
    orders: int = 64,
    tokeniser: Tokeniser | None = None,
    level: float = 0.95,
    seed: int | None = None,
) -> Infilled:
    """Words for the gaps of a text, `He had not been to ___ since the ___ .`, by a model of any order.

    `source` is what `ebar.pretrain` or `ebar.train` gave, or a model with its tokeniser. A gap is one word of 1 to
    `pieces` pieces; `___:3` is one of exactly three. A gap of n pieces makes a text of another length, whose
    probabilities alone cannot be compared, so each word w of n pieces has

        log P(n) + log p(w's pieces in the gap | the rest of the text, n places in the gap)

    P being `prior`, a probability for 1, 2, … pieces, uniform unless given. Summed over all strings of n tokens, words
    or not, this is log P(n): where n places are unlikely to hold one word, its words have less. The rest of the text is
    taken to say nothing else about n. Only the pieces that the tokeniser itself makes of a word count as that word.

    p is the mean over all orders in which the pieces may come; where there are more than `orders`, over that many drawn
    at random, and the interval is over orders. Candidates are found by a beam search from left to right: a word that it
    passes over is missing, and none is wrong.
    """
    model, tokeniser = _parts(source, tokeniser)
    if candidates < 1 or pieces < 1:
        raise UserError(f"At least one candidate of at least one piece, not {candidates} of {pieces}.")
    gapped = Gapped(text, tokeniser, model.space.vocabulary)
    gapped.check()
    longest = pieces if gapped.spells else 1
    log_prior = _log_prior(prior, longest)
    numbers = [[number] if number is not None else list(range(1, longest + 1)) for number in gapped.fixed]
    if math.prod(map(len, numbers)) > MOST:
        raise UserError(
            f"{len(numbers)} gaps of up to {longest} pieces can be filled in too many ways: say how many pieces some "
            "of them have, as in ___:1, or allow fewer."
        )
    generator = default_generator() if seed is None else Generator().manual_seed(seed)
    search = _Search(model, gapped, candidates, orders, level, generator)
    cells = [
        _Cell(
            shares,
            sum(0.0 if own is not None else log_prior[n - 1] for own, n in zip(gapped.fixed, shares, strict=True)),
            _layout(gapped, shares, model),
        )
        for shares in itertools.product(*numbers)
    ]
    with evaluation_mode(model), torch.no_grad():
        return Infilled(text, [search.alone(gap, cells) for gap in range(len(numbers))], search.together(cells))


def _parts(source: Any, tokeniser: Tokeniser | None) -> tuple[Any, Tokeniser]:
    model = getattr(source, "model", source) if hasattr(source, "data") else source
    space = getattr(model, "space", None)
    if space is None or not space.any_order:
        raise UserError(
            "Gaps are filled by a model of any order, and this one reads from left to right only: pretrain an xlnet."
        )
    known = [tokeniser, getattr(getattr(source, "data", None), "tokeniser", None), getattr(model, "tokeniser", None)]
    found = next((one for one in known if one is not None), None)
    if found is None:
        raise UserError("It is not known how text becomes this model's tokens: give its tokeniser.")
    return model, found


def _log_prior(prior: Sequence[float] | None, longest: int) -> list[float]:
    if prior is None:
        return [-math.log(longest)] * longest
    if len(prior) != longest or min(prior) < 0 or not math.isclose(math.fsum(prior), 1, abs_tol=1e-6):
        raise UserError(f"The prior must be {longest} probabilities that add up to 1, one for each number of pieces.")
    return [math.log(share) if share > 0 else -math.inf for share in prior]


@dataclass(frozen=True)
class _Layout:
    """A text in which each gap has so many places."""

    given: list[int]
    known: list[int]  # their places
    gaps: list[list[int]]  # the places of each gap

    def context(self, *gaps: int) -> Context:
        """The pieces of some gaps are to come, from left to right; the others are left open."""
        order = self.known + [place for gap in gaps for place in self.gaps[gap]]
        given = Sequences(torch.tensor([self.given], dtype=torch.long), torch.tensor([len(self.given)]))
        return Context(given, torch.tensor([order]))


@dataclass(frozen=True)
class _Cell:
    """One way to share out pieces among the gaps."""

    shares: tuple[int, ...]
    log_prior: float
    layout: _Layout


def _layout(gapped: Gapped, shares: tuple[int, ...], model: Stepwise) -> _Layout:
    given: list[int] = []
    known: list[int] = []
    gaps: list[list[int]] = []
    at = 0
    tokens = gapped.tokens()
    specials = specials_of(gapped.tokeniser)
    if max(specials) < model.space.vocabulary:  # they ended every input of pretraining, there in a segment of their own
        tokens[-1] = [*tokens[-1], specials.separator, specials.classification]
    for number, fragment in enumerate(tokens):
        given += fragment
        known += range(at, at + len(fragment))
        at += len(fragment)
        if number < len(shares):
            gaps.append(list(range(at, at + shares[number])))
            at += shares[number]
    if at > model.space.length:
        raise UserError(
            f"The text takes {at:,} tokens, and the model reads {model.space.length:,}: give a shorter one, or allow "
            "fewer pieces."
        )
    return _Layout(given, known, gaps)


@dataclass(frozen=True)
class _Search:
    """Candidates, and their log-probabilities over orders."""

    model: Stepwise
    gapped: Gapped
    candidates: int
    orders: int
    level: float
    generator: Generator

    def alone(self, gap: int, cells: list[_Cell]) -> list[Candidate]:
        """For one gap; in whatever places the others have, which are left open."""
        found = []
        for number in sorted({cell.shares[gap] for cell in cells}):
            own = [cell for cell in cells if cell.shares[gap] == number]
            words = {tuple(row): None for cell in own for row in self._likeliest(cell.layout.context(gap), [gap], cell)}
            if not words:
                continue
            orders = Orders.of(number, self.orders, self.generator)
            x = torch.tensor(list(words))
            parts = [cell.log_prior + self._scores(x, cell.layout.context(gap), orders) for cell in own]
            scores = torch.logsumexp(torch.stack(parts), 0)
            found += [
                Candidate(self.gapped.word(gap, pieces) or "", pieces, self._estimate(scores[:, row], orders))
                for row, pieces in enumerate(words)
            ]
        return sorted(found, key=lambda one: -one.log_prob.value)[: self.candidates]

    def together(self, cells: list[_Cell]) -> list[Filling]:
        """For all gaps at once."""
        found = []
        for cell in cells:
            gaps = list(range(len(cell.shares)))
            context = cell.layout.context(*gaps)
            rows = self._likeliest(context, gaps, cell)
            if not rows:
                continue
            orders = Orders.of(sum(cell.shares), self.orders, self.generator)
            scores = cell.log_prior + self._scores(torch.tensor(rows), context, orders)
            for number, row in enumerate(rows):
                parts = torch.split(torch.tensor(row), list(cell.shares))
                words = tuple(self.gapped.word(gap, part.tolist()) or "" for gap, part in enumerate(parts))
                found.append(Filling(words, self.gapped.filled(words), self._estimate(scores[:, number], orders)))
        return sorted(found, key=lambda one: -one.log_prob.value)[: self.candidates]

    def _likeliest(self, context: Context, gaps: list[int], cell: _Cell) -> list[list[int]]:
        """Words for these gaps, piece by piece, by a beam search from left to right, likeliest first."""
        width = max(NARROWEST, WIDTH * self.candidates)
        logits, state = self.model.start(1, self._placed(context))
        tokens, total = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
        for gap in gaps:
            number = cell.shares[gap]
            for step, mask in enumerate(self.gapped.pieces(gap, number)):
                if tokens.shape[1]:
                    following, state = self.model.advance(tokens[:, -1:].to(logits.device), state)
                    logits = following[:, 0]
                scores = total[:, None] + logits.log_softmax(-1).double().cpu()
                scores = scores.masked_fill(~mask, -math.inf).flatten()
                last = step + 1 == number
                best = scores.topk(min(PASSED * width if last else width, int((scores > -math.inf).sum())))
                parents, token = best.indices // len(mask), best.indices % len(mask)
                grown = torch.cat([tokens[parents], token[:, None]], 1)
                kept = torch.arange(len(grown))
                if len(grown) == 0:
                    return []
                if last:  # what spells no word makes room for what does
                    is_word = [self.gapped.word(gap, row) is not None for row in grown[:, -number:].tolist()]
                    kept = torch.tensor(is_word).nonzero()[:width, 0]
                    if len(kept) == 0:
                        return []
                tokens, total = grown[kept], best.values[kept]
                state = state.select(parents[kept].to(logits.device))
        found: list[list[int]] = tokens.tolist()
        return found[: WIDTH * self.candidates]

    def _scores(self, x: Int[Tensor, "rows coming"], context: Context, orders: Orders) -> Float[Tensor, "orders rows"]:
        placed = self._placed(context)
        return log_probs_by_order(self.model, x.to(placed.given.tokens.device), placed, orders)

    def _placed(self, context: Context) -> Context:
        """Where the model is."""
        device = next((weight.device for weight in self.model.parameters()), None)  # type: ignore[attr-defined]
        tokens, lengths = context.given
        return Context(Sequences(tokens.to(device), lengths.to(device)), context.order.to(device))  # type: ignore[union-attr]

    def _estimate(self, scores: Float[Tensor, " orders"], orders: Orders) -> Estimate:
        return over_orders(scores, exact=orders.all, mixture=True, level=self.level)
