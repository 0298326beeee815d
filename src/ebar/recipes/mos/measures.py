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
from ebar.evaluation.dynamic import dynamic_evaluation, from_old_scaling, gradient_statistics
from ebar.evaluation.rank import log_probability_matrix, pairwise_divergence, singular_values, spaced_contexts
from ebar.models.construction import Autoregressive
from ebar.models.continued import segment_log_probs
from ebar.recipes.figures import over_items
from ebar.recipes.recipe import Cell
from ebar.recipes.training import configuration
from ebar.types import Estimate, Sequences, Stepwise

PLAIN, TUNED, CACHED, DYNAMIC = "as trained", "fine-tuned", "cache pointer", "dynamic evaluation"
BLOCKS = 30  # of a text, over which an interval is
THRESHOLDS = [10 ** (power / 4) for power in range(-40, 1)]  # of normalised singular values
LIKELIEST = 5  # words that are written down of a prediction

Costs = Float[Tensor, " tokens"]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar train` makes of the cell, and all that is measured of it."""
    measures = cell["measures"]
    if measures.get("order"):
        return _ngram(cell, folder)
    config = configuration(cell["configuration"], folder)
    run = train_as(config, folder / "run")
    found: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "evaluations": {PLAIN: costs_of_parts(run.model, run.data, measures)},
    }
    if measures.get("updates"):
        logged = [cost for _, cost in run.history.curve("nll_per_token")][-measures["updates"] // 10 :]
        found["training"] = math.fsum(logged) / len(logged)
    if measures.get("contexts"):
        found |= predictions(run.model, run.data, measures)
    if measures.get("finetune"):
        found["evaluations"] |= tuned(cell, run.model, run.data, folder)
    return found
