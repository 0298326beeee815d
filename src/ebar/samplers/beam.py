"""Greedy search, the likeliest token at every step, and beam search among the best prefixes of each length."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.models.drawing import stepper_of
from ebar.modes import evaluation_mode, in_evaluation_mode
from ebar.progress import bar
from ebar.shards import Workers, run_shards
from ebar.types import Context, Sequences, Space, Stepwise, context_rows, room

Limit = int | Int[Tensor, " rows"] | None


def limits(
    maximal_length: Limit, space: Space, rows: int, device: torch.device, context: Context | None = None
) -> Int[Tensor, " rows"]:
    """How long each row may become, the end included: no longer than the space, nor than an order has it."""
    if isinstance(maximal_length, Tensor):
        if maximal_length.shape != (rows,):
            raise UserError(f"maximal_length needs one number for each of {rows} contexts.")
        wanted = maximal_length.to(device, torch.long)
    else:
        wanted = torch.full((rows,), space.length if maximal_length is None else maximal_length, device=device)
    if rows and int(wanted.min()) < 1:
        raise UserError(f"maximal_length must be at least 1, not {int(wanted.min())}.")
    return torch.minimum(wanted, room(space, context, rows, device))


@torch.no_grad()
@in_evaluation_mode
def greedy(
    model: Stepwise, context: Context | None = None, *, maximal_length: Limit = None
) -> tuple[Sequences, Float[Tensor, " rows"]]:
    """The sequence of locally likeliest tokens for each row of the context, and its log-probability under the model.

    What is still open in the last place allowed is ended there, at the model's own price; without an end token it
    is cut off there.
    """
    space, rows = model.space.after(context), context_rows(context)
    logits, state = model.start(rows, context)
    device = logits.device
    last = limits(maximal_length, space, rows, device, context) - 1
    tokens = torch.zeros(rows, int(last.max()) + 1 if rows else 0, dtype=torch.long, device=device)
    lengths = last + 1
    total = torch.zeros(rows, dtype=torch.float64, device=device)
    alive = torch.arange(rows, device=device)
    stepper = stepper_of(model, state)
    for place in range(tokens.shape[1]):
        token = logits.argmax(1)
        closing = last[alive] == place
        if space.end is not None:
            token = torch.where(closing, space.end, token)
        tokens[alive, place] = token
        total[alive] += (logits.gather(1, token[:, None]).squeeze(1) - logits.logsumexp(1)).double()
        over = closing if space.end is None else token == space.end
        if bool(over.any()):
            lengths[alive[over]] = place + 1
            going_on = (~over).nonzero().squeeze(1)
            alive, token = alive[going_on], token[going_on]
            if len(alive) == 0:
                break
            stepper.keep(going_on)
        if place + 1 < tokens.shape[1]:
            logits = stepper.step(token)
    return Sequences(tokens[:, : int(lengths.max()) if rows else 0], lengths), total


class Beams(NamedTuple):
    """The best sequences found for each row of the context, best first.

    Where fewer than were asked for exist, the missing ones have length 0 and log-probability −inf.
    """

    x: Sequences  # rows × best of them, context-major
    log_probs: Float[Tensor, "rows best"]  # of the model itself, in float64
    scores: Float[Tensor, "rows best"]  # log p / length^α, by which they are ordered

    def first(self) -> Sequences:
        """The best of each row."""
        best = self.scores.shape[1]
        return Sequences(self.x.tokens[::best], self.x.lengths[::best])


def length_normalised_score(
    log_probs: Float[Tensor, "*rows"], lengths: Float[Tensor, "*#rows"] | Int[Tensor, "*#rows"], length_penalty: float
) -> Float[Tensor, "*rows"]:
    """log p / length^α, the end counted: α = 0 is log p itself, α = 1 the mean per token."""
    return log_probs / lengths.to(log_probs) ** length_penalty


@torch.no_grad()
@in_evaluation_mode
def beam_search(
    model: Stepwise, context: Context | None = None, *, width: int = 5, length_penalty: float = 1.0, best: int = 1,
    maximal_length: Limit = None, enough: int | None = None,
) -> Beams:  # fmt: skip
    """The `best` sequences of highest log p / length^`length_penalty` for each row of the context.

    At each place the `width` likeliest prefixes go on; a sequence that ends counts if it is among the `width`
    likeliest candidates of its place. A row is finished when no prefix that goes on could still come among its best:
    as log p can only fall, it can at most reach log p / T^α, T being the longest allowed (for α < 0: the length it
    would have if it ended next). With as much width as there are prefixes the answer is exact. `enough`: a row is also
    finished once that many of its sequences have ended (translation systems customarily take the width), which is
    faster where T is generous and no longer exact. Width 1 is greedy search, which stops at its first end.
    What is still open in the last place allowed is ended there, at the model's own price; without an end token
    every sequence has exactly the length allowed.
    """
    if not 1 <= best <= width:
        raise UserError(f"A beam of width {width} cannot give its {best} best: make it at least that wide.")
    if width == 1:
        x, log_probs = greedy(model, context, maximal_length=maximal_length)
        return Beams(x, log_probs[:, None], length_normalised_score(log_probs, x.lengths, length_penalty)[:, None])
    if enough is not None and enough < best:
        raise UserError(f"A search that stops after {enough} ended sequences cannot give its {best} best.")
    rows, alpha = context_rows(context), length_penalty
    logits, state = model.start(rows, context)
    device = logits.device
    limit = limits(maximal_length, model.space.after(context), rows, device, context)
    longest = int(limit.max()) if rows else 0
    found = _Ended.none(rows, best, longest, device)
    row = torch.arange(rows, device=device)  # the row of the context, for each one still searched
    live = _Live(
        torch.zeros(rows, 1, longest, dtype=torch.long, device=device),
        torch.zeros(rows, 1, dtype=torch.float64, device=device),
        torch.zeros(rows, 1, dtype=torch.long, device=device),
    )
    ended = _Ended.none(rows, best, longest, device)
    for place in range(longest):
        before = live.log_probs.shape[1]
        live, new = _extended(live, logits, place, limit, model.space, width)
        ended = ended.merged(new, alpha)
        reach = limit if alpha >= 0 else torch.full_like(limit, place + 2)
        finished = ended.scores[:, -1] >= length_normalised_score(live.log_probs.amax(1), reach, alpha)
        if enough is not None:
            finished |= ended.number >= enough
        found.write(row[finished], ended.select(finished))
        going_on = (~finished).nonzero().squeeze(1)
        if len(going_on) == 0:
            break
        row, limit, live, ended = row[going_on], limit[going_on], live.select(going_on), ended.select(going_on)
        parents = (going_on[:, None] * before + live.parents).flatten()
        # By state, not by stepper: prefixes are duplicated, which only a state promises to bear.
        logits, state = model.advance(live.tokens[:, :, place].flatten()[:, None], state.select(parents))
        logits = logits[:, 0]
    return Beams(
        Sequences(found.tokens[:, :, : int(found.lengths.max()) if rows else 0].flatten(0, 1), found.lengths.flatten()),
        found.log_probs,
        found.scores,
    )


class _Live(NamedTuple):
    """Prefixes that go on; where there are fewer than the width, the others have log-probability −inf."""

    tokens: Int[Tensor, "rows width length"]
    log_probs: Float[Tensor, "rows width"]
    parents: Int[Tensor, "rows width"]  # the prefix of the place before that each continues

    def select(self, rows: Int[Tensor, " selected"]) -> "_Live":
        return _Live(self.tokens[rows], self.log_probs[rows], self.parents[rows])


class _Ended(NamedTuple):
    """The best sequences that have ended so far, best first, and how many have."""

    tokens: Int[Tensor, "rows kept length"]
    lengths: Int[Tensor, "rows kept"]
    log_probs: Float[Tensor, "rows kept"]
    scores: Float[Tensor, "rows kept"]
    number: Int[Tensor, " rows"]

    @classmethod
    def none(cls, rows: int, best: int, length: int, device: torch.device) -> "_Ended":
        nothing = torch.full((rows, best), -math.inf, dtype=torch.float64, device=device)
        return cls(
            torch.zeros(rows, best, length, dtype=torch.long, device=device),
            torch.zeros(rows, best, dtype=torch.long, device=device),
            nothing,
            nothing.clone(),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    def select(self, rows: Int[Tensor, " selected"] | Bool[Tensor, " rows"]) -> "_Ended":
        return _Ended(*(part[rows] for part in self))

    def write(self, rows: Int[Tensor, " written"], other: "_Ended") -> None:
        for mine, theirs in zip(self, other, strict=True):
            mine[rows] = theirs

    def merged(self, new: "_New", alpha: float) -> "_Ended":
        """The best of these and of those that have just ended."""
        if not bool(new.ended.any()):
            return self
        place = new.place
        log_probs = torch.cat([self.log_probs, new.log_probs.masked_fill(~new.ended, -math.inf)], 1)
        lengths = torch.cat([self.lengths, new.ended * (place + 1)], 1)
        scores = length_normalised_score(log_probs, lengths.clamp(min=1), alpha)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.scores.shape[1]]
        tokens = torch.cat([self.tokens, new.tokens], 1)
        return _Ended(
            _gathered(tokens, order),
            lengths.gather(1, order),
            log_probs.gather(1, order),
            scores[:, : order.shape[1]],
            self.number + new.ended.sum(1),
        )


class _New(NamedTuple):
    """The candidates of one place, likeliest first, and which of them have ended."""

    tokens: Int[Tensor, "rows candidates length"]
    log_probs: Float[Tensor, "rows candidates"]
    ended: Bool[Tensor, "rows candidates"]
    place: int


def _gathered(tokens: Int[Tensor, "rows from length"], at: Int[Tensor, "rows to"]) -> Int[Tensor, "rows to length"]:
    return tokens.gather(1, at[:, :, None].expand(-1, -1, tokens.shape[2]))


def _extended(
    live: _Live, logits: Float[Tensor, "prefixes vocabulary"], place: int, limit: Int[Tensor, " rows"], space: Space,
    width: int,
) -> tuple[_Live, _New]:  # fmt: skip
    """One more token: the prefixes that go on, and the sequences that end here."""
    rows, before = live.log_probs.shape
    closing = limit == place + 1
    # Of any one prefix at most width tokens and the end are among the candidates that matter.
    picked, token = logits.topk(min(width + 1, logits.shape[1]), 1)
    largest = picked[:, :1]  # logsumexp would look for it again
    log_norm = largest + (logits - largest).exp_().sum(1, keepdim=True).log_()
    if space.end is not None and bool(closing.any()):
        shut = closing.repeat_interleave(before)[:, None]
        only = torch.full_like(picked, -math.inf)
        only[:, 0] = logits[:, space.end]
        picked, token = torch.where(shut, only, picked), torch.where(shut, space.end, token)
    each = picked.shape[1]
    log_probs = (live.log_probs[:, :, None] + (picked - log_norm).double().view(rows, before, each)).flatten(1)
    # Each prefix can end but once: among twice the width, as many as the width go on.
    log_probs, order = log_probs.sort(dim=1, descending=True, stable=True)
    log_probs, order = log_probs[:, : 2 * width], order[:, : 2 * width]
    parents, token = order // each, token.view(rows, before * each).gather(1, order)
    tokens = _gathered(live.tokens, parents)
    tokens[:, :, place] = token
    over = closing[:, None].expand_as(token) if space.end is None else token == space.end
    among_best = torch.arange(order.shape[1], device=order.device) < width
    new = _New(tokens, log_probs, over & among_best & (log_probs > -math.inf), place)
    # Those that go on, in front.
    going_on = over.to(torch.int8).sort(dim=1, stable=True).indices[:, :width]
    missing = width - going_on.shape[1]
    return _Live(
        F.pad(_gathered(tokens, going_on), (0, 0, 0, missing)),
        F.pad(log_probs.masked_fill(over, -math.inf).gather(1, going_on), (0, missing), value=-math.inf),
        F.pad(parents.gather(1, going_on), (0, missing)),
    ), new


def decode_contexts(
    model: Stepwise, context: Context | None = None, *, width: int = 5, length_penalty: float = 1.0, best: int = 1,
    maximal_length: Limit = None, enough: int | None = None, batch: int = 128, workers: Workers | None = None,
) -> Beams:  # fmt: skip
    """`beam_search` for any number of contexts: `batch` of like length at a time, order kept; by `workers`, if any."""
    batches = list(alike(context, batch))
    options = {"width": width, "length_penalty": length_penalty, "best": best, "enough": enough}
    jobs = [
        (own, maximal_length[rows.to(maximal_length.device)] if isinstance(maximal_length, Tensor) else maximal_length)
        for rows, own in batches
    ]  # fmt: skip
    parts = []
    with bar("decoding", context_rows(context), "contexts") as progress:
        for number, beams in run_shards(_shard, (model, options), jobs, workers=workers, in_order=True):
            parts.append(beams)
            progress.advance(len(batches[number][0]))
    back = torch.cat([rows for rows, _ in batches]).argsort()
    return Beams(
        restored(Sequences.join([part.x for part in parts]), back, best),
        torch.cat([part.log_probs for part in parts])[back],
        torch.cat([part.scores for part in parts])[back],
    )


def _shard(common: tuple[Stepwise, dict[str, Any]], job: tuple[Context | None, Limit]) -> Beams:
    (model, options), (context, limit) = common, job
    with evaluation_mode(model):
        return beam_search(model, context, maximal_length=limit, **options)


def by_source(context: Context, *, ratio: float = 1.5, extra: int = 10) -> Int[Tensor, " rows"]:
    """A maximal length for each row: `ratio` × the source's and `extra` more. Translations are about as long."""
    return (context.given.lengths * ratio).ceil().long() + extra


def alike(context: Context | None, batch: int) -> Iterator[tuple[Int[Tensor, " rows"], Context | None]]:
    """Rows of the context of like length, `batch` at a time, without the padding they do not need."""
    if context is None:
        yield torch.zeros(1, dtype=torch.long), None
        return
    given = context.given
    for rows in torch.split(given.lengths.argsort(stable=True), batch):
        own = context.select(rows)
        yield rows, own._replace(given=own.given.trimmed())


def restored(x: Sequences, back: Int[Tensor, " rows"], each: int) -> Sequences:
    """Groups of `each` sequences, in another order."""
    return x.select((back.to(x.lengths.device)[:, None] * each + torch.arange(each, device=x.lengths.device)).flatten())
