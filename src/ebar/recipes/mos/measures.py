"""What is measured of a language model on a stream: perplexity in several ways, the rank of its log-probabilities,
single predictions."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.build.train import build_corpus, train_as
from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.evaluation.blocks import BLOCKS
from ebar.evaluation.cache_pointer import CachePointer, cache_pointer_cost
from ebar.evaluation.dynamic import Rates, dynamic_evaluation, from_old_scaling, gradient_statistics
from ebar.evaluation.rank import log_probability_matrix, pairwise_divergence, singular_values, spaced_contexts
from ebar.models.construction import Autoregressive
from ebar.models.continued import segment_log_probs
from ebar.models.ngram import NGram
from ebar.recipes.figures import over_items
from ebar.recipes.recipe import Cell
from ebar.recipes.training import configuration
from ebar.types import Estimate, Sequences, Stepwise

PLAIN, TUNED, CACHED, DYNAMIC = "as trained", "fine-tuned", "cache pointer", "dynamic evaluation"
THRESHOLDS = [10 ** (power / 4) for power in range(-40, 1)]  # of normalised singular values
LIKELIEST = 5  # words that are written down of a prediction

Costs = Float[Tensor, " tokens"]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar train` makes of the cell, or an n-gram model of the same text, and all that is measured of it."""
    measures = cell["measures"]
    config = configuration(cell["configuration"], folder)
    if measures.get("order"):
        data = build_corpus(config)
        ngram = NGram.fit(tokens_of(data, "train"), data.space, order=measures["order"])
        costs = {part: _ngram_costs(ngram, tokens_of(data, part)) for part in measures["parts"]}
        return {
            "parameters": ngram.entries, "evaluations": {PLAIN: summary(costs)}, **predictions(ngram, data, measures)
        }  # fmt: skip
    run = train_as(config, folder / "run")
    model, data = run.model, run.data
    plain = {part: segment_costs(model, tokens_of(data, part), measures["segment"]) for part in measures["parts"]}
    found: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "evaluations": {PLAIN: summary(plain)},
        **predictions(model, data, measures),
    }
    if measures.get("updates"):
        logged = [float(cost) for _, cost in run.history.curve("nll_per_token")][-max(1, measures["updates"] // 10) :]
        found["training"] = math.fsum(logged) / len(logged)
    if measures.get("finetune"):
        found["evaluations"] |= after_training(cell, model, data, plain, folder)
    return found


def tokens_of(data: Corpus, part: str) -> Int[Tensor, " tokens"]:
    """The text of a part."""
    stream = data.parts[part]
    assert isinstance(stream, Stream)
    return stream.tokens.long()


# Perplexity ---------------------------------------------------------------------------------------------------------


def segment_costs(model: Autoregressive, tokens: Int[Tensor, " tokens"], segment: int) -> Costs:
    """Nats of each token, the text read from beginning to end, its memory carried."""
    return torch.cat([-part[0] for part in segment_log_probs(model, tokens[None], segment=segment)])


def summary(costs: Mapping[str, Costs], before: Costs | None = None) -> dict[str, Any]:
    """Nats per token of each part with intervals over blocks; the test perplexity in that `before`, paired."""
    found: dict[str, Any] = {part: mean_over_blocks(own) for part, own in costs.items()}
    found["ratio"] = None if before is None else mean_over_blocks(costs["test"] - before).mapped(math.exp)
    return found


def mean_over_blocks(costs: Costs) -> Estimate:
    """The mean along a text, its interval over contiguous blocks: neighbouring tokens are not independent."""
    blocks = costs.double().tensor_split(BLOCKS)
    found = over_items([float(block.sum()) for block in blocks], [len(block) for block in blocks])
    return Estimate(found.value, found.low, found.high, float(BLOCKS))


def after_training(
    cell: Cell, model: Autoregressive, data: Corpus, plain: Mapping[str, Costs], folder: Path
) -> dict[str, Any]:  # fmt: skip
    """Perplexity after fine-tuning, and of the fine-tuned model with a cache and with dynamic evaluation."""
    measures, tokens = cell["measures"], {part: tokens_of(data, part) for part in plain}
    best = _finetuned(cell, data, folder)
    tuned = {part: segment_costs(best, own, measures["segment"]) for part, own in tokens.items()}
    found = {TUNED: summary(tuned, plain["test"])}
    if measures.get("cache"):
        found[CACHED] = cached_costs(best, tokens, CachePointer(**measures["cache"]))
    if measures.get("dynamic"):
        found[DYNAMIC] = dynamic_costs(best, tokens, tokens_of(data, "train"), **measures["dynamic"])
    return found


def _finetuned(cell: Cell, data: Corpus, folder: Path) -> Autoregressive:
    """From the best weights on, by averaged gradient descent."""
    tree, own = cell["configuration"], cell["measures"]["finetune"]
    optimiser = {"kind": "asgd", **own["optimiser"]}
    training = {**tree["training"], **own["training"], "start": str(folder / "run")}
    config = configuration(tree, folder, optimiser=optimiser, training=training, schedule={"kind": "constant"})
    return train_as(config, folder / "tuned", data=data).model


def cached_costs(
    model: Autoregressive, tokens: Mapping[str, Int[Tensor, " tokens"]], pointer: CachePointer
) -> dict[str, Any]:
    """With a cache; the test perplexity in that of the same model without, paired."""
    found = {
        part: cache_pointer_cost(model, own, pointer, segment=-(-len(own) // BLOCKS)) for part, own in tokens.items()
    }
    ratio = found["test"].difference.mapped(math.exp)
    return {part: own.cached.per_token for part, own in found.items()} | {"ratio": ratio}


def dynamic_costs(
    model: Autoregressive, tokens: Mapping[str, Int[Tensor, " tokens"]], training: Int[Tensor, " tokens"], *,
    learning_rate: float, decay: float, epsilon: float, segment: int, rows: int, batches: int | None,
    old_scaling: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """By dynamic evaluation; the test perplexity in that of the same model as it is, paired."""
    statistics = gradient_statistics(model, training, rows=rows, segment=segment, batches=batches)
    rates = Rates(learning_rate, decay, epsilon)
    if old_scaling:
        rates = from_old_scaling(statistics, **rates._asdict())
    found = {
        part: dynamic_evaluation(model, own, statistics=statistics, segment=segment, blocks=BLOCKS, **rates._asdict())
        for part, own in tokens.items()
    }  # fmt: skip
    return {part: own.dynamic.per_token for part, own in found.items()} | {"ratio": found["test"].perplexity_ratio}


def _ngram_costs(ngram: NGram, tokens: Int[Tensor, " tokens"]) -> Costs:
    return -ngram.token_log_probs(Sequences(tokens[None], torch.tensor([len(tokens)])))[0]


# Predictions --------------------------------------------------------------------------------------------------------


def predictions(model: Stepwise, data: Corpus, measures: Mapping[str, Any]) -> dict[str, Any]:
    """What the matrix of log-probabilities tells, its rows being contexts spread over a text and the same for all."""
    contexts = measures.get("contexts")
    found: dict[str, dict[str, Any]] = {"rank": {}, "divergence": {}}
    if contexts is None:
        return {}
    for part in measures["parts"]:
        given, following = contexts_of(data, part, contexts)
        matrix = log_probability_matrix(model, given)
        found["rank"][part] = ranked(matrix)
        found["divergence"][part] = pairwise_divergence(model, given.select(slice(0, None, measures["spacing"])))
    return {**found, "bound": bound_of(model), "steps": steps(matrix, given, following, data, measures["steps"])}


def contexts_of(data: Corpus, part: str, number: int) -> tuple[Sequences, Int[Tensor, " contexts"]]:
    """Windows at equal distances, one token shorter than the model's segments, and the token that follows each."""
    windows = spaced_contexts(tokens_of(data, part), number, data.space.length).tokens
    given = windows[:, :-1]
    return Sequences(given, torch.full((number,), given.shape[1])), windows[:, -1]


def ranked(matrix: Float[Tensor, "contexts words"]) -> dict[str, Any]:
    """The rank, and how the singular values are spread."""
    spectrum = singular_values(matrix)
    below = spectrum.share_below(torch.tensor(THRESHOLDS, dtype=torch.float64))
    return {
        "rank": spectrum.rank, "full": min(matrix.shape), "above": spectrum.above(), "contexts": matrix.shape[0],
        "words": matrix.shape[1], "below": [[*pair] for pair in zip(THRESHOLDS, below.tolist(), strict=True)],
    }  # fmt: skip


def bound_of(model: Stepwise) -> int | None:
    """d + 2, the most that the rank of one softmax over vectors of the head's size can be; counts have none."""
    return int(model.head.linear.weight.shape[1]) + 2 if isinstance(model, Autoregressive) else None  # type: ignore[attr-defined]


def steps(
    matrix: Float[Tensor, "contexts words"], given: Sequences, following: Int[Tensor, " contexts"], data: Corpus,
    number: int | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Of so many contexts: what stands there, what follows, its log-probability, and the likeliest words."""
    if number is None:
        return []
    assert data.tokeniser is not None
    decode, likeliest = data.tokeniser.decode, matrix.topk(min(LIKELIEST, matrix.shape[1]))
    return [
        {
            "context": decode(given.tokens[row].tolist()), "next": decode([int(following[row])]),
            "log_prob": float(matrix[row, following[row]]),
            "likeliest": [[decode([word]), math.exp(log)] for word, log in zip(
                likeliest.indices[row].tolist(), likeliest.values[row].tolist(), strict=True)],
        }
        for row in range(min(number, len(matrix)))
    ]  # fmt: skip
