"""Five steps of every objective, on a batch that one process has, or that several have some rows of each.

An entry that is added to OBJECTIVES is a case by itself, with the options of its signature.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ebar import together
from ebar.data.stream import Stream
from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.models.construction import Autoregressive, assemble
from ebar.models.tilted import Tilted
from ebar.objectives import OBJECTIVES, PolicyGradient, Rounds
from ebar.samplers.look_ahead import guided
from ebar.training.batches import Batches
from ebar.training.distributed import same_everywhere
from ebar.training.loop import fit
from ebar.training.optimisers import Sgd, for_steps
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.sharding import spread_weights, whole
from ebar.training.streams import Columns, OnStream, PretrainingColumns
from ebar.types import Context, Space
from tests.training.tiny import data, to_pretrain_on

STEPS = 5
ENDING, FIXED = Space(5, 6, end=0), Space(5, 6)
OPTIONS: dict[str, dict[str, Any]] = {
    "scheduled_sampling": {"k": 0.5, "slope": 0.0},
    "earm": {"weight": 0.5, "draws": 2},
    "auxiliary_losses": {"steps": 20},
    "pretraining": {"next_sentence": True},
}
LAYERED: dict[str, Any] = {"backbone": "transformer", "heads": 2}
# 13 rows in batches of 6: in the third step one row is left, so that of two processes one has none.
ROWS, BATCH = 13, 6

Trajectory = tuple[dict[str, Tensor], list[dict[str, float]]]


def small(space: Space, backbone: str = "lstm", **options: Any) -> Autoregressive:
    return assemble(space, backbone, {"layers": 2, "hidden": 8, "dropout": 0.0, **options}, "softmax", {})


def of_table(name: str) -> Any:
    def made(dtype: torch.dtype) -> tuple[Any, Any, Autoregressive]:
        if name == "pretraining":
            model = small(Space(13, 16), "xlnet", heads=2, attention_dropout=0.0).to(dtype)
            source: Any = PretrainingColumns(text=to_pretrain_on(), columns=3, seed=7)
        else:
            model = small(ENDING, **LAYERED if name == "auxiliary_losses" else {}).to(dtype)
            source = Batches(data=data(ROWS), batch_size=BATCH)
        return OBJECTIVES.make(name, OPTIONS.get(name, {}), model=model), source, model

    return made


def earm(space: Space, *, sources: bool = False, layered: bool = False, **options: Any) -> Any:
    def made(dtype: torch.dtype) -> tuple[Any, Any, Autoregressive]:
        model = small(space, **LAYERED if layered else {}).to(dtype)
        rows = data(ROWS)
        if space.end is None:
            rows = rows._replace(lengths=torch.full_like(rows.lengths, space.length))
        given = (rows, Context(data(ROWS, seed=1))) if sources else rows
        return (
            OBJECTIVES.make("earm", OPTIONS["earm"] | options, model=model),
            Batches(data=given, batch_size=BATCH),
            model,
        )

    return made


def earm_on_a_stream(dtype: torch.dtype) -> tuple[Any, Any, Autoregressive]:
    model = small(FIXED).to(dtype)
    tokens = torch.randint(5, (170,), generator=Generator().manual_seed(9)).int()
    source = Columns(stream=Stream(tokens, 6), columns=5, seed=7)
    objective = OBJECTIVES.make("earm", OPTIONS["earm"] | {"base": "scheduled_sampling", "k": 0.6}, model=model)
    return OnStream.of(objective, model, source), source, model


def policy_gradient(*, contexts: bool = False, ahead: bool = False, **options: Any) -> Any:
    def made(dtype: torch.dtype) -> tuple[Any, Any, Autoregressive]:
        model, base = small(ENDING).to(dtype), small(ENDING).to(dtype)
        same_everywhere([base])
        feature = Motif(motif="11", alphabet="01234", end=0)
        target = Tilted(base, Linear(Features([feature]), torch.tensor([1.5]).to(dtype)))
        if ahead:
            options["proposal"] = guided(target, draws=50, generator=Generator().manual_seed(2))
        elif options.get("replace"):
            options["proposal"] = base
        objective = PolicyGradient(target=target, model=model, check_every=2, **options)
        if contexts:
            return objective, Batches(data=Context(data(ROWS, seed=1)), batch_size=BATCH), model
        return objective, Rounds(draws=11), model

    return made


CASES: dict[str, Callable[[torch.dtype], tuple[Any, Any, Autoregressive]]] = {
    **{name: of_table(name) for name in OBJECTIVES},
    "earm, weights by source": earm(ENDING, sources=True, normalise="context", steps="mean"),
    "earm, windows anywhere": earm(FIXED, window=3, contexts="real", normalise="context", steps="sum"),
    "earm, langevin": earm(ENDING, negatives="langevin", langevin_steps=2, langevin_step_size=0.1),
    "earm, layers called one by one": earm(ENDING, layered=True),
    "earm on a stream": earm_on_a_stream,
    "policy gradient": policy_gradient(divergence="jensen_shannon", baseline="running"),
    "policy gradient, another proposal": policy_gradient(replace=True),
    "policy gradient, looking ahead": policy_gradient(ahead=True),
    "policy gradient, contexts": policy_gradient(contexts=True, draws=3),
}


def trajectory(case: str, dtype: torch.dtype, *, accumulate: int = 1, shard: int = 1) -> Trajectory:
    """Weights and metrics after each of five steps; the weights spread over `shard` processes."""
    seeded(3, rank=together.rank())  # ranks start apart, on purpose: what they share they must be given
    objective, source, model = CASES[case](dtype)
    objective = for_steps(objective, 20)
    memory = getattr(objective, "memory", None)
    if isinstance(memory, nn.Module):
        same_everywhere([memory])
    sharded = spread_weights(model, shard=shard)
    learnt = [*model.parameters(), *(memory.parameters() if isinstance(memory, nn.Module) else ())]
    moved = [parameter for parameter in learnt if parameter.requires_grad]
    optimiser = Sgd(learning_rate=0.3, momentum=0.9).build(moved)
    players = {"model": Player(module=model, optimiser=optimiser, clip_norm=1.0, sharded=sharded)}
    if isinstance(memory, nn.Module):
        players["objective"] = Player(module=memory)
    same_everywhere(player.module for player in players.values())
    weights, metrics = {}, []
    steps = fit(objective, source, players, generator=Generator().manual_seed(4), accumulate=accumulate)
    for step in islice(steps, STEPS):
        for key, value in model.state_dict().items():
            weights[f"{step.number}.{key}"] = whole(value).clone()
        metrics.append(step.metrics)
    return weights, metrics
