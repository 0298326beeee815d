"""What a text costs a model that goes on learning from it, with intervals: dynamic evaluation as a user asks for it."""

from jaxtyping import Int
from torch import Tensor

from ebar.data.tokenisers import Bytes, Tokeniser
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.blocks import BLOCKS
from ebar.evaluation.cross_entropy import StreamCost
from ebar.evaluation.dynamic import (
    DECAY,
    EPSILON,
    LEARNING_RATE,
    DynamicCost,
    Rates,
    dynamic_evaluation,
    from_old_scaling,
    gradient_statistics,
)
from ebar.journeys.evaluate import Evaluated
from ebar.types import Stepwise


def dynamic(
    model: Stepwise, text: Int[Tensor, " text"], *, training: Int[Tensor, " training"] | None = None,
    tokeniser: Tokeniser | None = None, learning_rate: float = LEARNING_RATE, decay: float = DECAY,
    epsilon: float = EPSILON, old_scaling: bool = False, segment: int = 5, rows: int = 100,
    batches: int | None = None, blocks: int = BLOCKS,
) -> Evaluated:  # fmt: skip
    """Perplexity of a text, static and dynamic, per token and, where a tokeniser tells what they spell, per word.

    Gradient statistics are those of the `training` text, in `rows` columns; without it the model learns by plain
    gradient descent. `old_scaling`: the rates are those of the authors' earlier code.
    """
    device, statistics, rates = device_of(model), None, Rates(learning_rate, decay, epsilon)
    how = "gradient descent"
    if old_scaling and training is None:
        raise UserError("The old scaling converts rates by gradient statistics: give a training text, or leave it out.")
    if training is not None:
        statistics = gradient_statistics(model, training.to(device), rows=rows, segment=segment, batches=batches)
        how = f"statistics of {statistics.batches:,} batches of {rows} × {segment} tokens"
        if old_scaling:
            rates = from_old_scaling(
                statistics, learning_rate=learning_rate, decay=decay, epsilon=epsilon
            )  # fmt: skip
    found = dynamic_evaluation(
        model, text.to(device), statistics=statistics, segment=segment, blocks=blocks, **rates._asdict()
    )  # fmt: skip
    about = f"{found.static.tokens:,} tokens in segments of {segment}, {how}"
    return Evaluated({**_figures(found, text, tokeniser), **rates._asdict()}, None, about)


def _figures(found: DynamicCost, text: Int[Tensor, " tokens"], tokeniser: Tokeniser | None) -> dict[str, object]:
    figures: dict[str, object] = {
        "perplexity_per_token, static": found.static.perplexity,
        "perplexity_per_token, dynamic": found.dynamic.perplexity,
        "perplexity, dynamic over static": found.perplexity_ratio,
        "cross_entropy_per_token, static": found.static.per_token,
        "cross_entropy_per_token, dynamic": found.dynamic.per_token,
        "cross_entropy_per_token, difference": found.difference,
    }
    if tokeniser is None:
        return figures
    spelt = tokeniser.decode(text.tolist())
    words = max(len(spelt.split()) + spelt.count("\n"), 1)
    size = max(len(text) if isinstance(tokeniser, Bytes) else len(spelt.encode()), 1)
    for name, cost in (("static", found.static), ("dynamic", found.dynamic)):
        figures |= _per_unit(name, cost, words, size)
    return figures


def _per_unit(name: str, cost: StreamCost, words: int, size: int) -> dict[str, object]:
    return {
        f"bits_per_byte, {name}": cost.bits_per(size),
        f"perplexity_per_word, line breaks counted, {name}": cost.perplexity_per(words),
    }
