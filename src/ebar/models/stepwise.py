"""What every stepwise model shares: the chain rule, read forwards to sample and in parallel to score."""

import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from ebar import together
from ebar.errors import UserError
from ebar.maths.randomness import default_generator
from ebar.models.drawing import BLOCK, Chooser, draw_block, draw_tokens, drawn_at_once
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, Space, State, Stepwise, context_rows, draws_per_context, room

READ = 256  # contexts read together there, or as many as a block has
LOGITS = 2**26  # and so many logits at most: a quarter of a gigabyte
PLACES = 2**14  # tokens scored together where no logits are held


def only_end_in_last_place(
    logits: Float[Tensor, "rows length vocabulary"], first_place: int, space: Space
) -> Float[Tensor, "rows length vocabulary"]:
    """−inf for all but the end token where a sequence may hold nothing else; `first_place` is that of logits[:, 0]."""
    if logits.shape[-1] != space.vocabulary:
        raise UserError(
            f"The model gives {logits.shape[-1]} logits for each token, and its space has a vocabulary of "
            f"{space.vocabulary}: make the head as wide as the vocabulary."
        )
    last = space.length - 1 - first_place
    if space.end is None or not 0 <= last < logits.shape[1]:
        return logits
    masked = torch.full_like(logits[:, last], -math.inf)
    masked[:, space.end] = logits[:, last, space.end]
    return torch.cat([logits[:, :last], masked[:, None], logits[:, last + 1 :]], 1)


def sure_of_end_in_last_place(
    log_probs: Float[Tensor, "rows length"], tokens: Int[Tensor, "rows length"], first_place: int, space: Space
) -> Float[Tensor, "rows length"]:
    """The same for log-probabilities of given tokens: 0 for the end where nothing else may stand, else −inf."""
    last = space.length - 1 - first_place
    if space.end is None or not 0 <= last < tokens.shape[1]:
        return log_probs
    certain = torch.where(tokens[:, last] == space.end, 0.0, -math.inf).to(log_probs)
    return torch.cat([log_probs[:, :last], certain[:, None], log_probs[:, last + 1 :]], 1)


def check_order(space: Space, context: Context | None) -> None:
    """An order that cannot be is refused, and any order by a model that reads from left to right only."""
    if context is not None and context.order is not None:
        space.after(context)


def belongs(x: Sequences, space: Space, context: Context | None = None) -> Bool[Tensor, " batch"]:
    """Which rows are sequences of the space, which is the one after the context."""
    if space.end is None:
        return x.lengths == room(space, context, len(x.lengths), x.lengths.device)
    is_end = (x.tokens == space.end) & x.mask()
    ends_once = is_end.sum(1) == 1
    last = x.tokens.gather(1, (x.lengths - 1).clamp(min=0)[:, None]).squeeze(1)
    return ends_once & (last == space.end) & (x.lengths <= space.length)


@runtime_checkable
class TeacherForced(Protocol):
    """Has a quicker parallel pass than `start` and `advance`."""

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]: ...


@runtime_checkable
class ScoresGiven(Protocol):
    """Scores given tokens without their logits, which over a large vocabulary are most of the memory."""

    def without_logits(self, places: int) -> bool:
        """Whether that is the better way for so many tokens."""

    def given_log_probs(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length"]:
        """log p(xₜ | x₍<t₎, C) of each of the tokens; at most as many as the space is long."""


def teacher_forced(
    model: Stepwise, tokens: Int[Tensor, "rows length"], context: Context | None = None
) -> Float[Tensor, "rows length vocabulary"]:
    """Logits of each of the tokens given those before it; at most as many tokens as the space is long.

    Padding must hold tokens of the vocabulary, whichever.
    """
    if isinstance(model, TeacherForced):
        return model.teacher_forced(tokens, context)
    return by_advancing(model, tokens, context)


def by_advancing(
    model: Any, tokens: Int[Tensor, "rows length"], context: Context | None = None
) -> Float[Tensor, "rows length outputs"]:
    """The same by `start` and `advance`, which every stepwise model has; of a backbone, hidden vectors."""
    first, state = model.start(len(tokens), context)
    outputs: Tensor = first[:, None][:, : tokens.shape[1]]
    if tokens.shape[1] > 1:
        outputs = torch.cat([outputs, model.advance(tokens[:, :-1], state)[0]], 1)
    return outputs


def token_log_probs(model: Stepwise, x: Sequences, context: Context | None = None) -> Float[Tensor, "batch length"]:
    """log p(xₜ | x₍<t₎, C) in one parallel pass; 0 on padding, −inf from the space's length on.

    Without gradients, as many rows at a time as keep memory bounded; of a row that is too long, as many tokens.
    """
    batch, space = len(x.lengths), model.space.after(context)
    width = min(x.tokens.shape[1], space.length)
    if isinstance(model, ScoresGiven) and model.without_logits(batch * width):
        return _given_log_probs(model, x, context, width)
    if torch.is_grad_enabled() and isinstance(model, TeacherForced):
        safe = torch.where(x.mask()[:, :width], x.tokens[:, :width], 0)
        _condition(batch, context, safe.device)  # refuses what cannot be shared evenly
        return _padded(_picked(model.teacher_forced(safe, context), safe), x)
    logits_of_a_row = max(1, width * space.vocabulary)
    size = max(batch, 1) if torch.is_grad_enabled() else max(1, min(BLOCK, LOGITS // logits_of_a_row))
    if not torch.is_grad_enabled():
        size = min(size, contexts_at_once(model, context))
    parts = []
    for block, first, state in _started(model, batch, context, size):
        inside = Sequences(x.tokens[block], x.lengths[block])
        parts.append(_block_log_probs(model, inside, first, state, space.length))
    return torch.cat(parts)


def _given_log_probs(
    model: ScoresGiven, x: Sequences, context: Context | None, width: int
) -> Float[Tensor, "batch length"]:  # fmt: skip
    """`token_log_probs` where no logits are held. Without gradients, whole contexts' rows at a time, or some of one's.

    Rows that share a context are evenly many for each, which is how a model reads it once for all of them.
    """
    batch = len(x.lengths)
    safe = torch.where(x.mask()[:, :width], x.tokens[:, :width], 0)
    each = draws_per_context(batch, context)
    if torch.is_grad_enabled() or batch == 0:
        return _padded(model.given_log_probs(safe, context), x)
    size = max(1, min(BLOCK, PLACES // max(width, 1)))
    if context is None:
        return _padded(torch.cat([model.given_log_probs(rows) for rows in torch.split(safe, size)]), x)
    few = max(1, min(size // each, contexts_at_once(model, context)))  # type: ignore[arg-type]
    parts = []
    for low in range(0, context.rows, few):
        read = context.select(torch.arange(low, min(low + few, context.rows), device=context.given.lengths.device))
        rows = safe[low * each : (low + few) * each]
        parts += [model.given_log_probs(some, read) for some in torch.split(rows, size if few == 1 else len(rows))]
    return _padded(torch.cat(parts), x)


def _started(
    model: Stepwise, batch: int, context: Context | None, size: int
) -> Iterator[tuple[slice, Float[Tensor, "rows vocabulary"], State]]:
    """Blocks of `size` rows at the start of their contexts, which are read for a few blocks at a time.

    Not for all: what is remembered of thousands of long prefixes would not fit. Where readings meet, both have the
    context whose rows they share.
    """
    device = None if context is None else context.given.lengths.device
    condition = _condition(batch, context, device)
    few = size * max(1, min(READ, contexts_at_once(model, context)) * (batch // context_rows(context)) // size)
    for begin in range(0, max(batch, 1), size):
        if begin % few == 0:
            ahead = condition[begin : begin + few]
            low, high = (int(ahead[0]), int(ahead[-1]) + 1) if batch else (0, 1)
            read = None if context is None else context.select(torch.arange(low, high, device=device))
            first, state = model.start(high - low, read)
            of_shape(first, (high - low, model.space.vocabulary), "The logits that the model starts with")
        block = slice(begin, begin + size)
        each = (condition[block] - low).to(first.device)
        yield block, first[each], state.select(each)


def _block_log_probs(
    model: Stepwise, x: Sequences, first: Float[Tensor, "batch vocabulary"], state: State, longest: int
) -> Float[Tensor, "batch length"]:
    width = min(x.tokens.shape[1], longest)
    inside = x.mask()[:, :width]
    # Padding may hold anything, a token outside the vocabulary included.
    safe = torch.where(inside, x.tokens[:, :width], 0)
    parts, following = [], first[:, None]
    at_once = width if torch.is_grad_enabled() else max(1, LOGITS // max(1, len(safe) * first.shape[-1]))
    for begin in range(0, width, max(at_once, 1)):
        tokens = safe[:, begin : begin + at_once]
        ahead = tokens if begin + tokens.shape[1] < width else tokens[:, :-1]  # nobody asks what follows the last
        logits = following
        if ahead.shape[1]:
            after, state = model.advance(ahead, state)
            wanted = (len(safe), ahead.shape[1], first.shape[-1])
            of_shape(after, wanted, "The logits that the model advances to")
            logits, following = torch.cat([following, after], 1)[:, : tokens.shape[1]], after[:, -1:]
        parts.append(_picked(logits, tokens))
    return _padded(torch.cat(parts, 1) if parts else first[:, :0], x)


def _picked(
    logits: Float[Tensor, "batch width vocabulary"], tokens: Int[Tensor, "batch width"]
) -> Float[Tensor, "batch width"]:
    return torch.log_softmax(logits, -1).gather(2, tokens[:, :, None]).squeeze(2)


def _padded(picked: Float[Tensor, "batch width"], x: Sequences) -> Float[Tensor, "batch length"]:
    """0 on padding, and −inf for tokens that stand where the space has no more places."""
    width = picked.shape[1]
    picked = torch.where(x.mask()[:, :width], picked, 0.0)
    beyond = torch.zeros_like(x.tokens[:, width:], dtype=picked.dtype)
    return torch.cat([picked, beyond.masked_fill(x.mask()[:, width:], -math.inf)], 1)


def _condition(batch: int, context: Context | None, device: torch.device | None) -> Int[Tensor, " batch"]:
    """The row of the context that each of `batch` context-major rows belongs to."""
    return torch.arange(context_rows(context), device=device).repeat_interleave(draws_per_context(batch, context))


def sequence_log_prob(model: Stepwise, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
    """log p(x|C) by the chain rule; −inf for what is not a sequence of the space. In the model's own mode."""
    total = token_log_probs(model, x, context).sum(1)
    return torch.where(belongs(x, model.space.after(context), context), total, -math.inf)


def ancestral(
    model: Stepwise, n: int, context: Context | None = None, **options: Any
) -> tuple[Sequences, Float[Tensor, " batch"]]:
    """Draw token by token, with the options of `ancestral_by_token`; the log-probability comes with the draw."""
    x, log_probs = ancestral_by_token(model, n, context, **options)
    return x, log_probs.sum(1)


@torch.no_grad()
def ancestral_by_token(
    model: Stepwise,
    n: int,
    context: Context | None = None,
    *,
    generator: Generator,
    choose: Chooser = draw_tokens,
) -> tuple[Sequences, Float[Tensor, "batch length"]]:
    """Draws, and the log-probability of each of their tokens; 0 on padding. A block of rows is drawn at a time."""
    space, rows = model.space.after(context), n * context_rows(context)
    own = together.Uniform(rows, generator) if together.draws_by_row() else None
    blocks = []
    for block, first, state in _started(model, rows, context, drawn_at_once(model)):
        ordered = context is not None and context.order is not None
        caps = room(space, context, rows, first.device)[block] if ordered else None
        numbers = None if own is None else own.of(block)
        found = draw_block(
            model, first, state, space=space, caps=caps, generator=generator, choose=choose, numbers=numbers
        )
        blocks.append(found)
    x = Sequences.join([x for x, _ in blocks])
    width = x.tokens.shape[1]
    return x, torch.cat([F.pad(log_probs, (0, width - log_probs.shape[1])) for _, log_probs in blocks])


def contexts_at_once(model: Stepwise, context: Context | None) -> int:
    """Contexts that are read together: a block of them, or what fits in memory where the model says so."""
    fitting = getattr(model, "prefixes_at_once", None)
    if fitting is None or context is None or len(context.given.lengths) == 0:
        return BLOCK
    return min(BLOCK, int(fitting(int(context.given.lengths.max()))))


class ByChainRule(nn.Module):
    """What follows from `start` and `advance`: scores in parallel passes, draws token by token, without dropout."""

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        """Of the model in evaluation mode, whatever its mode; gradients flow. `teacher_forced` is for training."""
        with evaluation_mode(self):
            return sequence_log_prob(self, x, context)  # type: ignore[arg-type]

    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        """n draws for each row of the context; without a generator, torch's own random state decides."""
        device = next((weight.device for weight in self.parameters()), "cpu")
        return self.sample_with_log_prob(n, context, generator=generator or default_generator(device))[0]

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        with evaluation_mode(self):
            return ancestral(self, n, context, generator=generator)  # type: ignore[arg-type]
