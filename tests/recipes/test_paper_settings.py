"""Recipes of Dai 2019 (thesis) at scale paper: each setting beside the document's, and where the document says it.

"Code" is what the authors have published, where the thesis is silent; where both speak and differ, it is said which one
the recipe has.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from typing import Any

import pytest

from ebar.config.classify import MANUAL as CLASSIFY
from ebar.config.classify import ClassifyConfig
from ebar.config.game import MANUAL as GAME
from ebar.config.game import GameConfig
from ebar.config.pretrain import MANUAL as PRETRAIN
from ebar.config.reader import read_tree
from ebar.config.train import MANUAL as TRAIN
from ebar.config.train import TrainConfig
from ebar.recipes import find_recipe
from ebar.recipes.mos import dialogue

XL, VANILLA = "Transformer-XL", "Transformer"
SOFTMAX, MOS, MOC = "AWD-LSTM", "AWD-LSTM-MoS", "AWD-LSTM-MoC"
NN, VI, CONST, GAN = "EGAN-Ent-NN", "EGAN-Ent-VI", "EGAN-Const", "GAN"


@dataclass(frozen=True)
class Says:
    """Settings of those runs of a recipe that have certain names, and where the document has them."""

    recipe: str
    where: Mapping[str, Any]
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.recipe} {' '.join(map(str, self.where.values()))}: {self.source}"


ADAM_XL = {"optimiser.kind": "adam", "optimiser.learning_rate": 2.5e-4, "schedule.kind": "cosine",
           "schedule.floor": 0.0, "training.clip": 0.25, "backbone.normalise": "after",
           "backbone.untie_biases": False, "head.tied": True}  # fmt: skip
# Steps are told in passes over the text: 90·10⁶ bytes, 103·10⁶ and 0.80·10⁹ words, in columns of whole segments.
TRANSFORMER_XL = [
    Says("xl/table3_1", {"model": XL}, "Table 3.1, standard; code: 200,000 steps, evaluated with 64/640/400", {
        **ADAM_XL, "backbone.layers": 16, "backbone.hidden": 410, "backbone.heads": 10, "backbone.feedforward": 2100,
        "backbone.dropout": 0.1, "backbone.attention_dropout": 0.0, "data.length": 150, "backbone.memory": 150,
        "training.batch_size": 60, "training.epochs": round(200_000 * 150 * 60 / 103e6), "schedule.warmup": 0,
        "backbone.cutoffs": (20_000, 40_000, 200_000), "backbone.divide": 1, "head.kind": "adaptive_softmax",
        "measures.segment": 64, "measures.memory": 640, "measures.clamp": 400, "measures.columns": 10,
        "data.train": "wikitext-103/train.txt.xz", "data.tokeniser": "words",
    }),
    Says("xl/table3_2", {"model": XL}, "Table 3.2, 12 layers; code: 400,000 steps, evaluated with 80/2100/820", {
        **ADAM_XL, "backbone.layers": 12, "backbone.hidden": 512, "backbone.heads": 8, "backbone.feedforward": 2048,
        "backbone.dropout": 0.1, "backbone.attention_dropout": 0.0, "data.length": 512, "backbone.memory": 512,
        "training.batch_size": 22, "training.epochs": round(400_000 * 512 * 22 / 90e6), "schedule.warmup": 0,
        "measures.segment": 80, "measures.memory": 2100, "measures.clamp": 820, "data.tokeniser": "bytes",
    }),
    Says("xl/table3_2", {"model": VANILLA}, "Figure 3.1: no recurrence, absolute positions", {
        "backbone.recurrence": False, "backbone.positions": "absolute", "backbone.layers": 12, "data.length": 512,
    }),
    Says("xl/table3_3", {"model": XL}, "section 3.3: the best model of enwik8; code: 24 layers, 400,000 steps", {
        **ADAM_XL, "backbone.layers": 24, "backbone.hidden": 1024, "backbone.heads": 8, "backbone.feedforward": 3072,
        "backbone.dropout": 0.15, "backbone.attention_dropout": 0.15, "data.length": 768, "backbone.memory": 768,
        "training.batch_size": 64, "training.epochs": round(400_000 * 768 * 64 / 90e6), "schedule.warmup": 4000,
        "measures.segment": 128, "measures.memory": 3800, "measures.clamp": 1000, "data.tokeniser": "characters",
    }),
    Says("xl/table3_4", {"model": XL}, "Table 3.4, base; code: 500,000 steps, evaluated with 32/128 and no clamp", {
        **ADAM_XL, "head.tied": False, "backbone.layers": 18, "backbone.hidden": 1024, "backbone.heads": 8,
        "backbone.feedforward": 4096, "backbone.dropout": 0.0, "backbone.attention_dropout": 0.0, "data.length": 32,
        "backbone.memory": 32, "training.batch_size": 224, "training.epochs": round(500_000 * 32 * 224 / 0.80e9),
        "schedule.warmup": 20_000, "backbone.cutoffs": (60_000, 100_000, 640_000), "backbone.divide": 4,
        "measures.segment": 32, "measures.memory": 128, "measures.clamp": None,
    }),
    Says("xl/table3_5", {"model": XL}, "section 3.3: variational dropout and averaged weights; no sizes told", {
        "backbone.variational": True, "optimiser.kind": "averaged_adam",
    }),
    Says("xl/table3_5", {"model": "LSTM"}, "Table 3.5: AWD-LSTM, 24M parameters (code of Merity et al.)", {
        "backbone.kind": "awd_lstm", "backbone.layers": 3, "backbone.hidden": 1150, "backbone.embedding": 400,
    }),
    Says("local/scaling", {"model": "chunks of 64"}, "section 5.4: C = 64, peak rate 1e-4, 10,000 steps of warm-up", {
        "backbone.chunk": 64, "optimiser.learning_rate": 1e-4, "schedule.warmup": 10_000,
    }),
]  # fmt: skip

# Section 5.4: 10⁶ steps of 256 sequences, Wikipedia and BooksCorpus; section 4.3.1: 512 tokens, memory 384.
PRETRAINED = {
    "pretraining.data.length": 512, "pretraining.data.reuse": 256, "pretraining.data.vocabulary": 32_000,
    "pretraining.data.partial": 6, "pretraining.data.spans": True, "pretraining.data.bidirectional": True,
    "pretraining.data.predict": "permutation", "pretraining.backbone.memory": 384, "pretraining.backbone.layers": 12,
    "pretraining.backbone.hidden": 768, "pretraining.backbone.heads": 12, "pretraining.backbone.feedforward": 3072,
    "pretraining.backbone.dropout": 0.1, "pretraining.backbone.attention_dropout": 0.1,
    "pretraining.optimiser.kind": "adam", "pretraining.optimiser.learning_rate": 1e-4,
    "pretraining.optimiser.epsilon": 1e-8, "pretraining.optimiser.weight_decay": 0.0,
    "pretraining.schedule.kind": "linear", "pretraining.schedule.warmup": 10_000, "pretraining.schedule.floor": 1e-3,
    "pretraining.training.batch_size": 256, "pretraining.training.clip": 1.0,
    "pretraining.training.epochs": round(1e6 * 256 * 256 / 3.87e9), "pretraining.objective.next_sentence": False,
}  # fmt: skip
XLNETS = [
    Says("xlnet/table5_1", {"model": "full attention"}, "sections 4.3.1 and 5.4; code: reuse 256, decay to 0.001",
         {**PRETRAINED, "pretraining.backbone.chunk": None}),
    Says("xlnet/table5_1", {"model": "local attention"}, "section 5.4: the same with C = 64",
         {**PRETRAINED, "pretraining.backbone.chunk": 64, "update.chunk": 64}),
    Says("xlnet/table4_6", {"model": "XLNet (K = 6)"}, "Table 4.6, row 4", PRETRAINED),
    Says("xlnet/table4_6", {"model": "XLNet (K = 7)"}, "row 3", {**PRETRAINED, "pretraining.data.partial": 7}),
    Says("xlnet/table4_6", {"model": "DAE + Transformer-XL"}, "row 2: BERT's objective, both directions",
         {**PRETRAINED, "pretraining.data.predict": "denoising"}),
    Says("xlnet/table4_6", {"model": "− memory"}, "row 5", {**PRETRAINED, "pretraining.backbone.memory": 0}),
    Says("xlnet/table4_6", {"model": "− span-based prediction"}, "row 6",
         {**PRETRAINED, "pretraining.data.spans": False}),
    Says("xlnet/table4_6", {"model": "− bidirectional data"}, "row 7",
         {**PRETRAINED, "pretraining.data.bidirectional": False}),
    Says("xlnet/table4_6", {"model": "+ next-sentence prediction"}, "row 8",
         {**PRETRAINED, "pretraining.objective.next_sentence": True}),
    *(Says(f"xlnet/table4_{number}", {}, "section 4.3.1: XLNet-Large, as published",
           {"start": "xlnet/xlnet-large-cased", "pretraining": None}) for number in range(1, 6)),
    Says("xlnet/table4_1", {}, "section 4.3.2: 640 tokens", {"tasks.RACE.configuration.data.length": 640}),
    Says("xlnet/table4_2", {}, "code: layer-wise decay 0.75, 512 tokens", {
        "tasks.SQuAD 2.0.configuration.layer_decay": 0.75, "tasks.SQuAD 2.0.configuration.data.length": 512,
    }),
    Says("xlnet/table4_5", {}, "section 4.3.6: vectors that do not learn, a kernel pooling network", {
        "tasks.ClueWeb09-B.configuration.frozen": True, "tasks.ClueWeb09-B.configuration.head": "kernel_pooling",
    }),
]  # fmt: skip

AWD = {
    "optimiser.kind": "triggered_asgd", "optimiser.weight_decay": 1.2e-6, "optimiser.evaluations": 5,
    "objective.kind": "activation_regularised", "objective.alpha": 2.0, "objective.beta": 1.0, "training.clip": 0.25,
    "data.length": 70, "data.vary": True, "data.vary_half": 0.05, "data.vary_deviation": 5.0, "data.vary_shortest": 5,
    "backbone.dropout_embedding": 0.1, "backbone.dropout_output": 0.4, "backbone.dropout_weight": 0.5,
    "backbone.layers": 3, "head.tied": True,
}  # fmt: skip
# Table A.8 has the dropouts of embeddings and hidden states of the two texts swapped, and 0.30 for 0.29 on contexts:
# the recipes have the code's.
PENN = {
    **AWD, "optimiser.learning_rate": 20.0, "training.batch_size": 12, "backbone.embedding": 280,
    "backbone.hidden": 960, "backbone.last": 620, "backbone.dropout_input": 0.4, "backbone.dropout_hidden": 0.225,
}  # fmt: skip
WIKITEXT = {
    **AWD, "optimiser.learning_rate": 15.0, "training.batch_size": 15, "backbone.embedding": 300,
    "backbone.hidden": 1150, "backbone.last": 650, "backbone.dropout_input": 0.55, "backbone.dropout_hidden": 0.2,
}  # fmt: skip
DYNAMIC = {"measures.dynamic.learning_rate": 0.002, "measures.dynamic.rows": 100, "measures.dynamic.segment": 5,
           "measures.dynamic.old_scaling": True}  # fmt: skip
NO_DROPOUT = {f"backbone.dropout_{part}": 0.0 for part in ("embedding", "input", "hidden", "output", "weight")}
BILLION = {"optimiser.kind": "sgd", "optimiser.learning_rate": 20.0, "training.batch_size": 60, "data.length": 35,
           "data.vocabulary": 100_000, "backbone.layers": 2, "backbone.hidden": 1024, **NO_DROPOUT,
           "measures.updates": 4000}  # fmt: skip
MIXTURES = [
    Says("mos/table_a1", {"model": MOS}, "Table A.8, Penn Treebank; code", {
        **PENN, "head.kind": "mixture_of_softmaxes", "head.components": 15, "head.dropout": 0.29,
        "measures.finetune.optimiser.learning_rate": 25.0,
    }),
    Says("mos/table_a1", {"model": MOS}, "Table A.9, Penn Treebank",
         {**DYNAMIC, "measures.dynamic.epsilon": 0.001, "measures.dynamic.decay": 0.075}),
    Says("mos/table_a1", {"model": SOFTMAX}, "code of Merity et al.", {
        **AWD, "optimiser.learning_rate": 30.0, "training.batch_size": 20, "backbone.embedding": 400,
        "backbone.hidden": 1150, "backbone.dropout_input": 0.4, "backbone.dropout_hidden": 0.25,
    }),
    Says("mos/table_a2", {"model": MOS}, "Table A.8, WikiText-2; code", {
        **WIKITEXT, "head.kind": "mixture_of_softmaxes", "head.components": 15, "head.dropout": 0.29,
        "measures.finetune.optimiser.learning_rate": 20.0,
    }),
    Says("mos/table_a2", {"model": MOS}, "Table A.9, WikiText-2",
         {**DYNAMIC, "measures.dynamic.epsilon": 0.002, "measures.dynamic.decay": 0.02}),
    Says("mos/table_a3", {"model": "Softmax"}, "Table A.10", {**BILLION, "backbone.embedding": 1024}),
    Says("mos/table_a3", {"model": "MoS"}, "Table A.10",
         {**BILLION, "backbone.embedding": 900, "backbone.last": 1024, "head.components": 7}),
    Says("mos/table_a5", {"model": MOC, "place": "Penn Treebank"}, "section A.3.2: the sizes of the mixture",
         {**PENN, "head.kind": "mixture_of_contexts", "head.components": 15}),
    Says("mos/table_a5", {"model": "AWD-LSTM (MoS settings)", "place": "WikiText-2"}, "section A.3.2", {
        **{key: value for key, value in WIKITEXT.items() if key != "backbone.last"}, "head.kind": "softmax",
    }),
    Says("mos/table_a6", {"model": SOFTMAX}, "Table A.6: dimension 400", {"backbone.embedding": 400}),
    Says("mos/table_a6", {"model": MOC}, "Table A.6: dimension 280", {"backbone.embedding": 280}),
    *(Says("mos/table_a7", {"components": count}, "Table A.7: others as in section A.3.1",
           {**PENN, "head.components": count}) for count in (3, 5, 10, 15, 20)),
    *(Says("mos/table_a12", {"model": name}, "Table A.12",
           {"backbone.layers": 1, "backbone.last": hidden, "backbone.embedding": embedding, **NO_DROPOUT})
      for name, hidden, embedding in (
          ("Softmax", 1024, 1024), ("MoS-7 (hid 910, emb 510)", 910, 510), ("MoS-7 (hid 750, emb 750)", 750, 750),
          ("MoS-10 (hid 860, emb 452)", 860, 452), ("MoS-10 (hid 683, emb 683)", 683, 683))),
    Says("mos/table_a13", {"place": "Penn Treebank"}, "section A.8.3: equal batches", {
        "models.MoS-15.head.components": 15, "models.MoS-15.backbone.last": 620, "training.batch_size": 12,
    }),
    Says("mos/table_a13", {"place": "WikiText-2"}, "section A.8.3: equal batches", {
        "models.MoS-15.backbone.last": 650, "training.batch_size": 15,
    }),
]  # fmt: skip

POINTS = {
    "data.size": 100_000, "generator.latent": 4, "generator.hidden": 128, "generator.layers": 2,
    "generator.normalised": True, "discriminator.hidden": 128, "discriminator.layers": 2, "training.batch_size": 500,
    "optimiser.kind": "adam", "optimiser.learning_rate": 2e-4, "optimiser.betas": (0.0, 0.999),
    "training.generator_rate": 10.0, "schedule.kind": "epoch_decay", "schedule.floor": 0.05,
}  # fmt: skip
NEIGHBOURS = {"entropy.kind": "neighbours", "entropy.neighbours": 20}
DIGITS = {
    "generator.kind": "dcgan", "generator.latent": 10, "optimiser.learning_rate": 1e-4, "training.generator_rate": 25.0,
    "optimiser.betas": (0.0, 0.999), "training.batch_size": 200, "training.epochs": 20, "schedule.decay": 0.8,
    "schedule.floor": 1e-3,
}  # fmt: skip
CIFAR_10 = {
    "generator.latent": 100, "discriminator.positive": True, "smoothness": 0.01, "optimiser.learning_rate": 2e-5,
    "optimiser.betas": (0.5, 0.999), "optimiser.weight_decay": 1e-5, "training.generator_rate": 10.0,
    "training.clip": 500.0, "training.epochs": 200, "schedule.constant": 100, "entropy.weight": 0.1,
}  # fmt: skip
# An entropy's weight in the code stands before a sum over the batch, here before a mean: times the batch.
GAMES = [
    Says("cegan/table_b2", {"mixture": "Gaussian mixture", "method": NN}, "section B.8.1; code", {
        **POINTS, **NEIGHBOURS, "entropy.weight": 1e-3 * 500, "control.low": -10.0, "control.high": 0.1,
        "generator.deviation": 0.001, "discriminator.deviation": 0.01, "training.epochs": 100,
        "schedule.constant": 10, "schedule.decay": 0.985, "costs.margin": None,
    }),
    Says("cegan/table_b2", {"mixture": "biased mixture", "method": NN}, "section B.8.1; code", {
        **POINTS, **NEIGHBOURS, "entropy.weight": 3e-4 * 500, "control.low": -0.2, "control.high": 0.1,
        "generator.deviation": 0.001, "discriminator.deviation": 0.01, "training.epochs": 100,
        "schedule.constant": 0, "schedule.decay": 0.985, "costs.margin": 10.0,
    }),
    Says("cegan/table_b2", {"mixture": "two spirals", "method": NN}, "section B.8.1; code", {
        **POINTS, **NEIGHBOURS, "entropy.weight": 5e-4 * 500, "control.low": -10.0, "control.high": 0.1,
        "generator.deviation": 0.01, "discriminator.deviation": 0.1, "training.epochs": 500,
        "schedule.constant": 200, "schedule.decay": 0.99, "costs.margin": 10.0,
    }),
    Says("cegan/table_b2", {"mixture": "biased mixture", "method": CONST}, "section B.5.1: no entropy",
         {**POINTS, "entropy.kind": "constant", "entropy.weight": 0.0, "costs.kind": "energy"}),
    Says("cegan/table_b2", {"mixture": "biased mixture", "method": GAN}, "section B.5.1: the original GAN",
         {**POINTS, "costs.kind": "gan", "entropy.weight": 0.0}),
    Says("cegan/digits", {"method": NN}, "sections B.5.2 and B.8.1: NIST, digit 1, 1,000 images, half real; code", {
        **DIGITS, "entropy.kind": "neighbours", "entropy.form": "unit", "entropy.weight": 2e-2 * 200,
        "control.low": -1.2, "control.high": 0.1, "control.together": 1, "set": "nist", "digit": 1,
        "measures.ranked": 500, "measures.ends": 100,
    }),
    Says("cegan/table_b3", {"method": NN, "set": "mnist"}, "section B.8.5: MNIST",
         {**DIGITS, "measures.probe.train": 60_000, "measures.probe.test": 10_000}),
    # The thesis has 10 numbers of noise (section B.8.1), the code 100, which the recipes have.
    Says("cegan/table_b1", {"method": VI, "set": "cifar-10"}, "section B.5.3; code",
         {**CIFAR_10, "entropy.kind": "variational", "measures.score.samples": 50_000}),
    Says("cegan/figure_b6", {"method": VI, "set": "cifar-10"}, "section B.5.3; code", CIFAR_10),
]  # fmt: skip

MNIST = {
    "labels": 100, "classifier.widths": (1000, 500, 250, 250, 250), "classifier.input_noise": 0.3,
    "classifier.hidden_noise": 0.5, "generator.latent": 100, "generator.widths": (500, 500), "generator.law": "uniform",
    "generator.from_mean": False, "optimiser.learning_rate": 3e-3, "optimiser.betas": (0.5, 0.9999),
    "generator_optimiser.learning_rate": 1e-3, "generator_optimiser.betas": (0.0, 0.9999), "training.batch_size": 100,
    "training.labelled_size": 100, "training.epochs": 2000, "training.initialise_on": 500, "terms.matching": "squared",
    "schedule.kind": "held_linear", "schedule.held": 2 / 3, "schedule.floor": 0.0, "data.keep_labelled": False,
}  # fmt: skip
COLOUR = {
    "classifier.kind": "convolutional", "classifier.leak": 0.2, "classifier.input_noise": 0.05,
    "classifier.dropout": 0.5, "generator.kind": "upsampling", "generator.channels": 512, "generator.latent": 100,
    "generator.law": "uniform", "terms.matching": "absolute", "optimiser.betas": (0.5, 0.999),
    "generator_optimiser.betas": (0.0, 0.999), "schedule.held": 2 / 3, "data.keep_labelled": True,
}  # fmt: skip
SVHN = {
    **COLOUR, "labels": 1000, "classifier.filters": (64, 128), "classifier.input_dropout": 0.15,
    "classifier.spatial": True, "optimiser.learning_rate": 1e-3, "generator_optimiser.learning_rate": 1e-3,
    "schedule.floor": 0.1, "training.batch_size": 64, "training.epochs": 900,
}  # fmt: skip
CIFAR = {
    **COLOUR, "labels": 4000, "classifier.filters": (96, 192), "classifier.input_dropout": 0.2,
    "classifier.spatial": False, "optimiser.learning_rate": 6e-4, "generator_optimiser.learning_rate": 3e-4,
    "training.batch_size": 100, "training.epochs": 1200,
}  # fmt: skip
LOW_DENSITY = {"terms.low_density": 1e-4, "terms.low_density_share": 0.1, "terms.low_density_rows": 30}
FEW_LABELS = [
    Says("badgan/table_c1", {"corpus": "MNIST", "method": "FM"}, "section C.6: 100 labels; code", MNIST),
    Says("badgan/table_c1", {"corpus": "MNIST", "method": "FM+LD"},
         "section C.6: ε is the 10th centile; code: after 9,000 of 1.2·10⁶ steps", {
        **MNIST, **LOW_DENSITY, "terms.low_density_centile": 10.0, "terms.low_density_start": 9000 / 1.2e6,
        "density.components": 10, "density.features": 160, "density.rate": 2e-4, "density.noise": 0,
    }),
    *(Says("badgan/table_c2", {"corpus": "MNIST", "method": "FM+LD", "centile": centile}, "Table C.2, bottom",
           {**MNIST, **LOW_DENSITY, "terms.low_density_centile": float(centile)}) for centile in (2, 20, 100)),
    Says("badgan/table_c2", {"corpus": "MNIST", "method": "FM+LD+Ent"}, "Table C.2; code of SVHN: 0.1",
         {**MNIST, **LOW_DENSITY, "terms.conditional_entropy": 0.1}),
    Says("badgan/table_c1", {"corpus": "SVHN", "method": "FM+PT+Ent"}, "section C.6: 1,000 labels; code",
         {**SVHN, "terms.pull_away": 0.8, "terms.conditional_entropy": 0.1}),
    Says("badgan/table_c2", {"corpus": "SVHN", "method": "FM"}, "Table C.2", SVHN),
    Says("badgan/table_c1", {"corpus": "CIFAR-10", "method": "FM+VI"}, "section C.6: 4,000 labels; code",
         {**CIFAR, "terms.variational": 1e-2}),
    Says("badgan/table_c2", {"corpus": "CIFAR-10", "method": "FM"}, "Table C.2", CIFAR),
]  # fmt: skip
ALL = [*TRANSFORMER_XL, *XLNETS, *MIXTURES, *GAMES, *FEW_LABELS]
MANUALS: Mapping[str, tuple[Any, Any]] = {
    "cegan": (GAME, GameConfig), "badgan": (CLASSIFY, ClassifyConfig), "xlnet": (PRETRAIN, TrainConfig),
}  # fmt: skip


def plain(value: Any) -> Any:
    """A configuration as nested mappings, defaults and all; paths as they are written."""
    if type(value).__name__ == "Chosen":
        return {"kind": value.kind, **plain(value.options)}
    if is_dataclass(value) and not isinstance(value, type):
        return {key: plain(getattr(value, key)) for key in asdict(value)}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    return str(value) if hasattr(value, "parts") else value


def resolved(family: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell with every default of its configuration."""
    manual, config = MANUALS.get(family, (TRAIN, TrainConfig))
    found: dict[str, Any] = plain(cell)
    if cell.get("pretraining"):
        found["pretraining"] = plain(read_tree({"seed": 0, **cell["pretraining"]}, manual, config))
    if "models" in cell:  # a cell of several models, whose networks stand beside its configuration
        return {**found, **plain(cell["configuration"])}
    if "configuration" in cell:
        tree = {"seed": 0, **cell["configuration"]}
        if tree["data"].get("kind") == "images":  # a run of the recipe writes the file
            tree["data"] = {**tree["data"], "train": "images.npz"}
        found |= plain(read_tree(tree, manual, config))
        found["density"] = plain(cell.get("density"))
    return found


def looked_up(tree: Any, path: str) -> Any:
    """By names between dots, some of which have dots in them."""
    if path in tree:
        return tree[path]
    for key in sorted(tree, key=len, reverse=True):
        if path.startswith(f"{key}.") and isinstance(tree[key], Mapping):
            return looked_up(tree[key], path[len(key) + 1 :])
    raise AssertionError(f"there is no {path} among {', '.join(tree)}")


@cache
def grid_of(name: str) -> list[Any]:
    return [cell for cell in find_recipe(name).grid("paper") if cell["seed"] == 0]


def runs_of(says: Says) -> list[dict[str, Any]]:
    """Those runs at scale paper that are meant, of the first seed."""
    cells = grid_of(says.recipe)
    own = [cell for cell in cells if all(cell.get(key) == value for key, value in says.where.items())]
    return [resolved(says.recipe.split("/")[0], cell) for cell in own]


@pytest.mark.parametrize("says", ALL, ids=str)
def test_a_recipe_at_scale_paper_has_the_documents_settings(says: Says) -> None:
    found = runs_of(says)
    assert found
    for run in found:
        ours = {path: looked_up(run, path) for path in says.settings}
        assert ours == dict(says.settings)


def test_a_setting_is_found_by_names_that_may_have_dots() -> None:
    tree = {"a": {"b.c": {"d": 1}, "b": 2}}
    assert looked_up(tree, "a.b.c.d") == 1
    assert looked_up(tree, "a.b") == 2
    with pytest.raises(AssertionError, match=r"no c among b\.c, b"):
        looked_up(tree["a"], "c")


def test_answers_of_dialogues_are_searched_as_the_thesis_says() -> None:
    """Section A.3.1: beam size 10, at most 30 tokens, the top 5 responses are kept."""
    assert (dialogue.WIDTH, dialogue.LONGEST, dialogue.KEPT) == (10, 30, 5)


def test_runs_are_as_many_as_the_thesis_says() -> None:
    """Section B.8.5: ten runs of each model; Table C.2's deviations on MNIST are over ten as well (code)."""
    for name, where in (("cegan/table_b3", {"method": NN, "set": "mnist"}), ("badgan/table_c2", {"method": "FM+VI"})):
        cells = [cell for cell in find_recipe(name).grid("paper") if cell.get("corpus", "MNIST") == "MNIST"]
        assert len([cell for cell in cells if where.items() <= cell.items()]) == 10
