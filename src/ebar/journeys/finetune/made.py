"""What fine-tuning is made of: the encoder, the heads of the tasks, what each minimises, and its batches."""

import copy
from collections.abc import Mapping
from typing import Any, Literal

from torch import nn

from ebar.data.built_tokeniser import written
from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.data.tokenisers import Storable, Tokeniser
from ebar.errors import UserError
from ebar.journeys.finetune.predictions import asks_for_answers
from ebar.models.task.encoders import TaskEncoder, task_encoder
from ebar.models.task.model import KernelPooling, TaskModel, new_head
from ebar.objectives.tasks import Choice, Classification, OfTask, Regression, SeveralTasks, SpanExtraction
from ebar.training.batches import Batches, OnDevice
from ebar.training.course import Training
from ebar.training.layerwise import layers_of, layerwise
from ebar.training.optimisers import OptimiserConfig
from ebar.training.tasks import InTurn, Mixing, Pairs

Head = Literal["summary", "mean", "kernel_pooling"]
Data = LabelledCorpus | LabelledData
Tasks = Mapping[str, LabelledCorpus]
ONE = "task"  # the name of the task where there is only one


def tasks_of(model: Any, data: Data | Mapping[str, Data], seed: int) -> dict[str, LabelledCorpus]:
    """Data by the name of the task, in the tokens of the model's own tokeniser, where it has one."""
    named: Mapping[str, Data] = data if isinstance(data, Mapping) else {ONE: data}
    if not named:
        raise UserError("There is no task to learn: give labelled data.")
    own = own_tokeniser(model)
    return {
        name: one.read(tokeniser=own, seed=seed) if isinstance(one, LabelledData) else one
        for name, one in named.items()
    }


def own_tokeniser(model: Any) -> Tokeniser | None:
    """That of the text which a model has learnt from, where it knows it."""
    tasks = getattr(model, "tasks", None)  # of a run that was fine-tuned itself
    data = next(iter(tasks.values())) if tasks else getattr(model, "data", None)
    for holder in (data, getattr(model, "model", None), model):
        found = getattr(holder, "tokeniser", None)
        if isinstance(found, Tokeniser):
            return found
    return None


def checked_encoder(model: Any, tasks: Tasks) -> TaskEncoder:
    """A copy of the model's network, if it knows the tokens of the data: the model stays as it is."""
    encoder = task_encoder(getattr(model, "model", model))
    own = own_tokeniser(model)
    for corpus in tasks.values():
        if own is not None and not _same(own, corpus.tokeniser):
            raise UserError(
                "The data are not in the tokens of the pretrained model: read them with its tokeniser, "
                "data.with_tokeniser(pretrained.data.tokeniser)."
            )
        if encoder.vocabulary < corpus.vocabulary or (own is None and encoder.vocabulary != corpus.vocabulary):
            raise UserError(
                f"The network knows {encoder.vocabulary:,} tokens and the data have {corpus.vocabulary:,}: make it for "
                "data.vocabulary tokens, or read the data with its tokeniser."
            )
    return copy.deepcopy(encoder)


def _same(one: Tokeniser, other: Tokeniser) -> bool:
    if isinstance(one, Storable) and isinstance(other, Storable):
        return written(one) == written(other)
    return one == other


def new_model(encoder: TaskEncoder, tasks: Tasks, *, head: Head, dropout: float, frozen: bool) -> nn.Module:
    """The encoder and new heads, their weights from torch's global state; a frozen encoder does not learn."""
    if head == "kernel_pooling":
        if [corpus.task for corpus in tasks.values()] != ["ranking"]:
            raise UserError("Kernel pooling ranks documents: choose the head summary, or one task of ranking.")
        return KernelPooling(encoder)
    made: Any = encoder
    made.requires_grad_(not frozen)
    heads = {
        name: new_head(corpus.task, encoder.width, classes=len(corpus.names), dropout=dropout, mean=head == "mean")
        for name, corpus in tasks.items()
    }
    where = encoder.table
    return TaskModel(encoder, heads).to(where.device, where.dtype)


def objective_of(model: Any, tasks: Tasks) -> SeveralTasks:
    """What each task minimises."""
    return SeveralTasks(objectives=tuple(_objective(model, name, corpus) for name, corpus in tasks.items()))


def _objective(model: Any, name: str, corpus: LabelledCorpus) -> OfTask:
    if corpus.task == "classification":
        return Classification(model=model, task=name)
    if corpus.task == "regression":
        return Regression(model=model, task=name)
    if corpus.task == "span":
        return SpanExtraction(model=model, task=name, answerability=asks_for_answers(corpus))
    return Choice(model=model, task=name)


def batches_of(tasks: Tasks, training: Training, mixing: Mixing, seed: int, device: str) -> OnDevice:
    """Of the training examples: the tasks take turns."""
    if training.batch_tokens is not None:
        raise UserError("Labelled examples come in batches of examples: give training.batch_size, no batch_tokens.")
    sources = [
        _source(corpus, "train", training.batch_size, seed, drop_last=training.drop_last) for corpus in tasks.values()
    ]
    return OnDevice(InTurn(sources=sources, seed=seed, mixing=mixing), device)


def held_out_batches_of(tasks: Tasks, training: Training, device: str) -> OnDevice:
    """Of the validation examples, always the same: of ranking, the same pairs."""
    size = training.held_out_batch or training.batch_size
    sources = [_source(corpus, "validation", size, None) for corpus in tasks.values()]
    return OnDevice(InTurn(sources=sources, shuffle=False), device)


def _source(corpus: LabelledCorpus, part: str, size: int, seed: int | None, *, drop_last: bool = False) -> Any:
    data, shuffle = corpus.part(part), seed is not None
    if corpus.task == "ranking":
        return Pairs(data=data, batch_size=size, seed=seed or 0, shuffle=shuffle)
    drop_last = drop_last and len(data.group) >= size
    return Batches(data=data, batch_size=size, seed=seed or 0, shuffle=shuffle, drop_last=drop_last)


def optimiser_of(model: nn.Module, optimiser: OptimiserConfig, layer_decay: float) -> Any:
    """With a learning rate for each layer of the encoder; the heads have that of the top layer."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learning:
        raise UserError("Nothing of this model can learn.")
    if layer_decay == 1 or not isinstance(model, TaskModel):
        return optimiser.build(learning)
    layers = layers_of(model.encoder)
    layers[-1] += [parameter for parameter in model.heads.parameters() if parameter.requires_grad]
    return optimiser.build(layerwise(layers, layer_decay))
