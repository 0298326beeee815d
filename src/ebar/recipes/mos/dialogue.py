"""Table A.4: a mixture of softmaxes in the decoder of a sequence-to-sequence model, with several answers to a sentence.

The thesis has telephone talks (Switchboard), where a turn has many good answers. Of Tatoeba, sentences with several
translations serve: into German, where one English sentence has up to eight.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.data.corpus import Corpus
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.models.construction import Autoregressive
from ebar.recipes.grid import PARTS
from ebar.recipes.mos.words import PAPER, group, head
from ebar.recipes.recipe import Cell
from ebar.recipes.training import trained, training_grid
from ebar.samplers.beam import decode_contexts

MODELS = ("Seq2Seq-Softmax", "Seq2Seq-MoC", "Seq2Seq-MoS")
WIDTH, KEPT, LONGEST = 10, 5, 30  # of the beam; answers kept of it; tokens of an answer


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The model, trained; its perplexity, and BLEU of its answers."""
    run = trained(cell, folder)
    sources = run.data.sources("test")
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "nats": cross_entropy(run.model, run.data.sequences("test"), context=sources).pooled_per_token,
        **answers(run.model, run.data, cell["measures"]["sentences"]),
    }
