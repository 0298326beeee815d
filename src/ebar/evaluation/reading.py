"""A long text read segment by segment by any model, whether or not it carries a memory.

What comes before a segment is carried as the backbone's memory where it has one (`Carries`), and otherwise read again:
as many of the last tokens as the model's window leaves room for. Gradients end where a segment begins, either way.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.backbone import Carries
from ebar.errors import UserError
from ebar.heads.head import target_log_probs
from ebar.models.construction import Autoregressive
from ebar.models.continued import carries_memory
from ebar.models.pretrained import Pretrained
from ebar.models.stepwise import by_advancing
from ebar.types import Context, Sequences, Stepwise


class ReadSoFar(NamedTuple):
    """Where the reading of a few texts stands."""

    before: Int[Tensor, "rows seen"]  # the last tokens; with a memory only the very last, which it does not hold yet
    memory: Any = None


def check_stream(model: Stepwise, tokens: int, segment: int) -> None:
    """What cannot be read in segments is refused."""
    if model.space.end is not None:
        raise UserError("A stream is scored by a model of windows, whose sequences have one length and no end.")
    window = model.space.length
    if segment < 1 or (segment > window and not carries_memory(model)):
        raise UserError(f"A segment has 1 to {window} tokens, as many as the model's window, not {segment}.")
    if tokens <= segment:
        raise UserError(f"The text has {tokens:,} tokens, too few for segments of {segment}.")


def at_beginning(model: Stepwise, texts: Int[Tensor, "rows length"]) -> tuple[ReadSoFar, Int[Tensor, "rows rest"]]:
    """Before anything is read, and what is to be scored: all, or all but the first token where nothing begins a text.

    Some pretrained networks have no token for the beginning: they can only tell what follows a token.
    """
    if carries_memory(model):
        assert isinstance(model, Autoregressive) and isinstance(model.backbone, Carries)  # noqa: PT018
        begun = torch.full_like(texts[:, :1], model.space.vocabulary)
        return ReadSoFar(begun, model.backbone.empty_memory(len(texts))), texts
    given = 1 if isinstance(model, Pretrained) and model.beginning is None else 0
    return ReadSoFar(texts[:, :given]), texts[:, given:]


def segment_log_probs(
    model: Stepwise, tokens: Int[Tensor, "rows length"], carried: ReadSoFar
) -> tuple[Float[Tensor, "rows length"], ReadSoFar]:
    """log p of each token of a segment given what was read before, and where the reading stands after it."""
    if carried.memory is not None:
        assert isinstance(model, Autoregressive) and isinstance(model.backbone, Carries)  # noqa: PT018
        read = torch.cat([carried.before, tokens[:, :-1]], 1)
        hidden, memory = model.backbone.read_segment(read, carried.memory)
        return target_log_probs(model.head, hidden, tokens), ReadSoFar(tokens[:, -1:], memory)
    room, seen = model.space.length - tokens.shape[1], carried.before.shape[1]
    before = carried.before[:, max(0, seen - room) :]
    if isinstance(model, Autoregressive):
        hidden = _read(model.backbone, before, tokens)
        found = target_log_probs(model.head, hidden, tokens)
    else:
        logits = _read_prefix(model, before, tokens) if isinstance(model, Pretrained) else _read(model, before, tokens)
        found = torch.log_softmax(logits, -1).gather(2, tokens[:, :, None]).squeeze(2)
    return found, ReadSoFar(torch.cat([before, tokens], 1))


def _read(reads: Any, before: Int[Tensor, "rows seen"], tokens: Int[Tensor, "rows length"]) -> Tensor:
    """Outputs of a model or backbone before each of the tokens, those `before` being read without gradient."""
    seen = before.shape[1]
    if seen == 0:
        return by_advancing(reads, tokens)
    with torch.no_grad():
        _, state = reads.start(len(tokens))
        if seen > 1:
            _, state = reads.advance(before[:, :-1], state)
    # The last token before the segment is read with it: its output predicts the segment's first.
    outputs: Tensor = reads.advance(torch.cat([before[:, -1:], tokens[:, :-1]], 1), state)[0]
    return outputs


def _read_prefix(model: Pretrained, before: Int[Tensor, "rows seen"], tokens: Int[Tensor, "rows length"]) -> Tensor:
    """The same of a network that reads a prefix, with or without a token for its beginning."""
    rows, seen = before.shape
    whole = seen == 0 or (seen == 1 and model.beginning is None)  # nothing can be read ahead of the segment
    reads = model.with_network(model.network, length=tokens.shape[1] + (not whole))

    def prefix(length: int) -> Context | None:
        return Context(Sequences(before[:, :length], torch.full_like(before[:, 0], length))) if length else None

    if whole:
        return by_advancing(reads, tokens, prefix(seen))
    with torch.no_grad():
        _, begun = reads.start(rows, prefix(seen - 1))
    return reads.advance(torch.cat([before[:, -1:], tokens[:, :-1]], 1), begun)[0]
