"""Fine-tuning as a configuration says, what it starts from, and a fine-tuned run opened."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from ebar.backbones import BACKBONES
from ebar.build.train import load_model, training_arguments
from ebar.config.finetune import MANUAL, FinetuneConfig, FurtherTask
from ebar.config.reader import Manual, read_file, read_tree
from ebar.config.train import read_train
from ebar.data.built_tokeniser import TOKENISER, read_tokeniser
from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.data.specials import vocabulary_with_specials
from ebar.data.tokenisers import Tokeniser
from ebar.devices import device_at_hand, device_named
from ebar.energies.reencoded import load_encoder
from ebar.errors import UserError
from ebar.journeys.finetune.journey import ENCODER, ONE, Finetuned, finetune, new_model
from ebar.models.task.encoders import ENCODERS, is_xlnet, task_encoder
from ebar.models.xlnet_weights import xlnet_from_hugging_face
from ebar.store.names import CONFIG
from ebar.training import distributed
from ebar.training.randomness import seeded
from ebar.training.train import History, load_best
from ebar.types import Space


@dataclass(frozen=True, kw_only=True)
class Start:
    """What fine-tuning starts from: a network, and the tokeniser it has learnt with."""

    model: nn.Module
    tokeniser: Tokeniser
    folder: Path | None = None


def finetune_as(config: FinetuneConfig, folder: Path | None, **going: Any) -> Finetuned:
    """Seeds all random sources, reads network and data, and trains, in that order."""
    device = device_named(config.device)
    generator = seeded(config.seed, device=device, rank=distributed.rank())
    start = None if config.pretrained is None else start_from(config.pretrained, device)
    if start is not None:
        _no_backbone(config)
    tasks = read_tasks(config, None if start is None else start.tokeniser, folder)
    model: Any = start or new_network(config, next(iter(tasks.values())))
    (model.model if start is not None else model).to(torch.device(device), getattr(torch, config.precision))
    return finetune(
        model,
        tasks,
        head=config.head,
        dropout=config.dropout,
        frozen=config.frozen,
        layer_decay=config.layer_decay,
        mixing=config.mixing,
        monitor=config.monitor,
        generator=generator,
        **training_arguments(config, folder, MANUAL, **going),
    )


def load_finetuned(folder: Path) -> Finetuned:
    """The best model of a run folder, and its data. Its pretrained run is not needed, unless it is transformers'."""
    if (folder / "config.yaml").exists() and not is_finetuned(folder):
        from ebar.build.kinds import something_else  # which knows every kind of run, this one too

        raise something_else(folder, MANUAL.command)
    config = read_file(folder / CONFIG, MANUAL, FinetuneConfig)
    tasks, device = read_tasks(config, _tokeniser_of(folder), folder), device_at_hand(config.device)
    kept = folder / ENCODER
    if kept.exists():
        options = json.loads(kept.read_bytes())
        network: Any = BACKBONES.make(options.pop("kind"), options)
    elif config.pretrained is not None:
        network = start_from(config.pretrained, device).model
    else:
        network = new_network(config, next(iter(tasks.values())))
    network.to(torch.device(device), getattr(torch, config.precision))
    model = new_model(task_encoder(network), tasks, head=config.head, dropout=config.dropout, frozen=config.frozen)
    load_best(model, folder)
    return Finetuned(model=model.eval(), tasks=tasks, history=History.read(folder), folder=folder)


def new_network(config: FinetuneConfig, data: LabelledCorpus) -> nn.Module:
    """With new weights, from torch's global state: seed it before."""
    made: nn.Module = config.backbone.make(ENCODERS, vocabulary=data.vocabulary)
    return made


def start_from(where: str, device: str) -> Start:
    """A pretrained network: of a run of ebar's, where the folder holds one; else of transformers."""
    folder = Path(where)
    if not (folder / "config.yaml").exists():
        network, tokeniser = load_encoder(where, device=device)
        model = xlnet_from_hugging_face(network) if is_xlnet(network) else network
        return Start(model=model, tokeniser=tokeniser)
    if is_finetuned(folder):
        tuned = load_finetuned(folder)
        return Start(model=tuned.model, tokeniser=next(iter(tuned.tasks.values())).tokeniser, folder=folder)
    run = read_train(folder)
    if run.data.kind != "pretraining":
        raise UserError(
            f"{folder} was trained on {run.data.kind} data, whose tokens have no separator and no mask: start from a "
            "run of `ebar pretrain`."
        )
    own = _tokeniser_of(folder)
    model = load_model(run, folder, Space(vocabulary_with_specials(own), 1))
    return Start(model=model, tokeniser=own, folder=folder)


def read_tasks(config: FinetuneConfig, tokeniser: Tokeniser | None, folder: Path | None) -> dict[str, LabelledCorpus]:
    """The data, in the tokens of the pretrained network; without one the first task's texts make a tokeniser."""
    first = config.data.read(tokeniser=tokeniser, seed=config.seed, folder=folder)
    tasks = {ONE: first}
    for path in config.also:
        if path.stem in tasks:
            raise UserError(f"Two tasks have the name {path.stem}: rename one of the files.")
        tasks[path.stem] = _further(path).read(tokeniser=first.tokeniser, specials=first.specials, seed=config.seed)
    return tasks


def _further(path: Path) -> LabelledData:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"The data options {path} cannot be read: {' '.join(str(error).split())}.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold data options such as `train: FILE` and `task: ranking`.")
    return read_tree({"data": tree}, Manual(command="finetune"), FurtherTask).data


def is_finetuned(folder: Path) -> bool:
    """Whether a folder holds a run of `ebar finetune`."""
    try:
        tree = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(tree, dict) and "layer_decay" in tree


def scores_by(run: Finetuned, label: str | None = None) -> Callable[[list[str]], list[float]]:
    """Texts → the probability that a run of one task gives to a label; where that is regression, the number itself."""
    data = run.data
    if data.task not in ("classification", "regression"):
        raise UserError(f"A reward is a number for each text, and this is a run of {data.task}.")
    if data.task == "classification" and label not in data.names:
        example, known = f"{run.folder}:{data.names[0]}", ", ".join(data.names)
        raise UserError(f"The classifier {run.folder} needs one of its labels, as in {example}: it has {known}.")
    if data.task == "regression" and label is not None:
        raise UserError(f"A run of regression gives a number and has no labels: leave out {label!r}.")

    def scores(texts: list[str]) -> list[float]:
        said = run.predict(texts)
        return [float(one.value) if label is None else one.probabilities[label] for one in said]

    return scores


def _tokeniser_of(folder: Path) -> Tokeniser:
    try:
        return read_tokeniser((folder / TOKENISER).read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{folder} has no {TOKENISER}: train it first.") from None


def _no_backbone(config: FinetuneConfig) -> None:
    """The network is the pretrained one: options of another would be of no use."""
    if config.backbone != read_tree({}, MANUAL, FinetuneConfig).backbone:
        raise UserError("The network is that of the pretrained run: leave out --backbone, or leave out --from.")
