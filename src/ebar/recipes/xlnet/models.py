"""The networks of Table 4.6, and how they are pretrained at each scale: what each leaves out or does otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

XLNET, XLNET_7, MEMORY, SPANS, DIRECTIONS, SENTENCES = (
    "XLNet (K = 6)", "XLNet (K = 7)", "− memory", "− span-based prediction", "− bidirectional data",
    "+ next-sentence prediction",
)  # fmt: skip
DENOISING, BERT, LEFT, SCRATCH = (
    "DAE + Transformer-XL", "BERT (DAE, no memory)", "left to right (GPT)", "not pretrained",
)  # fmt: skip
# What each has otherwise than XLNet with K = 6: by group of options of `ebar pretrain`.
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    XLNET: {},
    BERT: {
        "data": {"predict": "denoising", "bidirectional": False, "spans": False},
        "backbone": {"memory": 0},
        "objective": {"next_sentence": True},
    },
    DENOISING: {"data": {"predict": "denoising"}},
    XLNET_7: {"data": {"partial": 7}},
    MEMORY: {"backbone": {"memory": 0}},
    SPANS: {"data": {"spans": False}},
    DIRECTIONS: {"data": {"bidirectional": False}},
    SENTENCES: {"objective": {"next_sentence": True}},
    LEFT: {"data": {"predict": "left_to_right", "bidirectional": False}},
}
Tree = dict[str, Any]
ACCURACY = "accuracy"  # the figure of a task unless it has others


def pretraining(
    data: Mapping[str, Any], backbone: Mapping[str, Any], *, rate: float, warmup: int, epochs: int, batch: int,
    **training: Any,
) -> Tree:  # fmt: skip
    """A configuration of `ebar pretrain`."""
    return {
        "data": {"kind": "pretraining", **data},
        "backbone": {"kind": "xlnet", **backbone},
        "head": {"kind": "softmax", "tied": True},
        "objective": {"kind": "pretraining"},
        "optimiser": {"kind": "adamw", "learning_rate": rate},
        "schedule": {"kind": "linear", "warmup": warmup},
        "training": {"epochs": epochs, "batch_size": batch, "clip": 1.0, "patience": 1000, "checkpoint_every": 500,
                     **training},
    }  # fmt: skip


def variant(tree: Mapping[str, Any], name: str) -> Tree:
    """The same configuration with what this network has otherwise."""
    changes = VARIANTS[name]
    return {group: {**options, **changes.get(group, {})} for group, options in tree.items()}


def cell_of(tree: Mapping[str, Any], name: str, tasks: Mapping[str, Any]) -> Tree:
    """A cell of the grid: the network's name, its pretraining and the tasks it is fine-tuned on.

    A network that is not pretrained has the tokeniser and the layers of XLNet.
    """
    scratch = name == SCRATCH
    return {
        "model": name, "scratch": scratch, "pretraining": variant(tree, XLNET if scratch else name),
        "tasks": dict(tasks),
    }  # fmt: skip


def finetuning(
    data: Mapping[str, Any], *, rate: float, epochs: int, batch: int, warmup: int = 0, layer_decay: float = 1.0,
    patience: int | None = None, labels: Sequence[int | None] = (None,), seeds: int = 1,
    measures: Sequence[str] = (ACCURACY,), **options: Any,
) -> Tree:  # fmt: skip
    """A task of a cell: a configuration of `ebar finetune`, its figures, how many labels and how many seeds."""
    return {
        "labels": list(labels),
        "measures": list(measures),
        "seeds": seeds,
        "configuration": {
            "data": dict(data),
            "optimiser": {"kind": "adamw", "learning_rate": rate},
            "schedule": {"kind": "linear", "warmup": warmup},
            "training": {"epochs": epochs, "batch_size": batch, "clip": 1.0, "patience": patience or epochs},
            "layer_decay": layer_decay,
            **options,
        },
    }  # fmt: skip
