"""The cost of a long text that is read in segments, the model's memory carried from one to the next."""

from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.blocks import BLOCKS, block_mean
from ebar.evaluation.cross_entropy import StreamCost
from ebar.models.construction import Autoregressive
from ebar.models.continued import carrying, segment_log_probs
from ebar.progress import bar


@torch.no_grad()
def segment_cost(
    model: object,
    stream: Int[Tensor, " tokens"],
    *,
    segment: int | None = None,
    columns: int = 1,
    memory: int | None = None,
    clamp_length: int | None = None,
    same_length: bool | None = None,
    first: bool = True,
) -> StreamCost:
    """−log p of each token given what the model remembers, a `segment` of tokens at a time in `columns` side by side.

    Each column begins without memory; what does not fill the columns evenly is left out. The first token of a column
    is predicted from the mark of a text's beginning; the published protocol (Dai et al. 2019, in 10 columns) does not
    score it: `first=False`. `memory`, `clamp_length` and `same_length` are those of the backbone at evaluation, by
    default as it was trained.

    Tokens of one text depend on one another, so that the interval is over 30 contiguous blocks of it: long blocks are
    nearly independent, short texts look more certain than they are.
    """
    own = at_evaluation(model, memory, clamp_length, same_length)
    length = own.space.length if segment is None else segment
    texts = in_columns(stream, columns)
    if texts.shape[1] < (1 if first else 2):
        raise UserError(f"The text has {len(stream):,} tokens, too few for {columns:,} columns: give fewer columns.")
    costs = []
    with bar("scoring", -(-texts.shape[1] // length), "segments") as progress:
        for log_probs in segment_log_probs(own, texts.to(device_of(own)), segment=length):
            costs.append(-log_probs.double().cpu())
            progress.advance(1)
    return cost_by_blocks(torch.cat(costs, 1)[:, 0 if first else 1 :].flatten())


def in_columns(stream: Shaped[Tensor, " tokens"], columns: int) -> Shaped[Tensor, "columns length"]:
    """Contiguous columns of one length, the remainder left out."""
    length = len(stream) // columns
    return stream[: columns * length].view(columns, length)


def cost_by_blocks(costs: Float[Tensor, " tokens"], *, blocks: int = BLOCKS) -> StreamCost:
    """Costs of the tokens of a text, in their order, with an interval over contiguous blocks of it."""
    per_token = block_mean(costs, blocks=min(blocks, len(costs)), low=0.0)
    return StreamCost(per_token, float(costs.double().sum()), len(costs))


def at_evaluation(
    model: object, memory: int | None = None, clamp_length: int | None = None, same_length: bool | None = None
) -> Autoregressive:
    """The model with another memory than it was trained with, its weights shared; as it is where nothing is given."""
    own, _ = carrying(model)
    wanted = {"clamp_length": clamp_length, "same_length": same_length}
    given = {name: value for name, value in wanted.items() if value is not None}
    if memory is None and not given:
        return own
    body: Any = own.backbone
    if not hasattr(body, "with_memory"):
        raise UserError(
            f"{type(body).__name__} has no memory whose length could be chosen: leave out memory, clamp_length and "
            "same_length."
        )
    try:
        longer = body.with_memory(body.memory if memory is None else memory, **given)
    except ValueError as error:
        raise UserError(f"The model cannot be evaluated with this memory: {error}.") from None
    changed = Autoregressive(longer, own.head, own.space)
    changed.reading = own.reading
    return changed.train(own.training)
