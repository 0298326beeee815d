"""Playing a game: a generator and an energy, each with its own optimiser, in a run folder or in memory."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Generator, nn

from ebar.bounds import Amount, Count
from ebar.energies.discriminators import DISCRIMINATORS
from ebar.errors import UserError
from ebar.journeys.description import architecture, entry
from ebar.journeys.game.data import GameData, game_data
from ebar.journeys.game.played import Played
from ebar.journeys.train import seed_of, train_in_folder
from ebar.models.classifiers import GaussianInference
from ebar.models.generators import GENERATORS, ImplicitGenerator
from ebar.objectives.adversarial_costs import (
    COSTS,
    ENTROPIES,
    Costs,
    EnergyGap,
    EntropyTerm,
    NeighbourEntropy,
    VariationalEntropy,
)
from ebar.objectives.energy_gan import CONTROLS, Control, EnergyGan, GapControl, HaltRule
from ebar.store.differences import as_yaml
from ebar.store.fingerprint import fingerprint
from ebar.training import distributed
from ebar.training.batches import Batches, OnDevice, number_of_rows
from ebar.training.games import WithNoise
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, Adam, EpochDecay, OptimiserConfig, Schedule
from ebar.training.players import Player, Players
from ebar.training.randomness import seeded
from ebar.training.train import Plan


@dataclass(frozen=True, kw_only=True)
class GameTraining:
    """How long, in what batches, and at what rates."""

    epochs: Count = 100
    """Passes over the data."""
    batch_size: Count = 500
    """Rows of data, and samples, per step; a last batch that is not full is left out."""
    generator_rate: Amount = 10.0
    """The generator's learning rate, in that of the discriminator."""
    clip: Amount | None = None
    """Largest Euclidean norm of a player's gradient; by default any."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints."""
    log_every: Count = 50
    """Steps between lines of metrics.jsonl."""
    tensorboard: bool = False
    """Write TensorBoard files beside metrics.jsonl (extra `log`)."""


OPTIMISER = Adam(learning_rate=2e-4, betas=(0.0, 0.999))


def game(
    data: Any,
    *,
    generator: nn.Module | None = None,
    energy: nn.Module | None = None,
    inference: nn.Module | None = None,
    costs: Costs = EnergyGap(),  # noqa: B008 — immutable
    entropy: EntropyTerm = NeighbourEntropy(),  # noqa: B008
    control: Control = GapControl(),  # noqa: B008
    halt: HaltRule = HaltRule(),  # noqa: B008
    smoothness: float = 0.0,
    training: GameTraining = GameTraining(),  # noqa: B008
    optimiser: OptimiserConfig = OPTIMISER,
    schedule: Schedule = EpochDecay(),  # noqa: B008
    seed: int | None = None,
    random: Generator | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
    replace_config: bool = False,
    quiet: bool = True,
) -> Played:
    """Trains a generator and an energy against each other on points or images.

    By default both are fully connected networks, the entropy is by nearest neighbours (a calibrated energy GAN), and
    the energy tends to −α·log p with α the entropy's weight. `inference` is the network of a variational entropy, by
    default made like the energy's.

    With a folder, training continues from its newest checkpoint, if there is one. A game that fails, energies running
    away or samples collapsing, is halted with a warning that says why; the networks are then those of the last
    checkpoint before. `seed` decides the weights of networks made here, the order of the data and the noise; a caller
    that has seeded all random sources before it built the networks passes as `random` what `seeded` returned.
    Stopped by SIGINT or SIGTERM, it saves a checkpoint and raises `Interrupted`.
    """
    folder = None if folder is None else Path(folder)
    drawn = seed_of(folder) if seed is None else seed
    device = "cpu" if generator is None else str(next(generator.parameters()).device)
    if random is None:
        random = seeded(drawn, device=device, rank=distributed.rank())
    rows = game_data(data, dtype=None if generator is None else next(generator.parameters()).dtype)
    own = networks(rows.shape, entropy, generator=generator, energy=energy, inference=inference)
    played = EnergyGan(
        generator=own["generator"], energy=own["discriminator"], inference=own.get("inference"), costs=costs,
        entropy=entropy, control=control, halt=halt, smoothness=smoothness,
    )  # fmt: skip
    if description is None:
        description = _description(rows, own, played, training, optimiser, schedule, drawn)
    batches = _batches(rows, own["generator"], training, drawn, device)
    players = _players(own, played, training, optimiser, schedule, device)
    plan = Plan(
        epochs=training.epochs, log_every=training.log_every, checkpoint_every=training.checkpoint_every
    )  # fmt: skip
    result, history = train_in_folder(
        folder, played, batches, players, plan, description=description, seed=drawn, generator=random,
        validation=None, keep=lambda run: None, replace_config=replace_config, tensorboard=training.tensorboard,
        quiet=quiet,
    )  # fmt: skip
    if result.status == "halted":
        warnings.warn(f"the game was halted in step {result.position.step}: {result.reason}", stacklevel=2)
    return Played(
        generator=own["generator"], energy=own["discriminator"], inference=own.get("inference"), data=rows,
        weight=entropy.weight, history=history, result=result, folder=folder,
    )  # fmt: skip


def networks(
    shape: tuple[int, ...],
    entropy: EntropyTerm,
    *,
    generator: nn.Module | None = None,
    energy: nn.Module | None = None,
    inference: nn.Module | None = None,
    like: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The networks of the players, by name; those not given are made, weights from torch's global state.

    `like` is the kind and the options of the discriminator, of whose kind the inference network is.
    """
    made: dict[str, Any] = {
        "discriminator": DISCRIMINATORS.make("mlp", {}, shape=shape) if energy is None else energy,
        "generator": GENERATORS.make("mlp", {}, shape=shape) if generator is None else generator,
    }
    if not isinstance(made["generator"], ImplicitGenerator):
        raise UserError("A generator must have `latent`, `law` and `shape`, and turn rows of noise into rows.")
    if tuple(made["generator"].shape) != shape:
        theirs, ours = (" × ".join(map(str, one)) for one in (made["generator"].shape, shape))
        raise UserError(f"The generator makes rows of {theirs} and the data have rows of {ours}: make it for these.")
    if entropy.infers:
        bound = entropy.bound if isinstance(entropy, VariationalEntropy) else None
        options = {"kind": "mlp"} if like is None else dict(like)
        network = DISCRIMINATORS.make(options.pop("kind"), options, shape=shape) if inference is None else None
        latent = made["generator"].latent
        made["inference"] = inference or GaussianInference(network, latent, bound=bound)
    elif inference is not None:
        raise UserError("Only a variational entropy has an inference network: leave it out, or choose that entropy.")
    return made


def _batches(rows: GameData, generator: Any, training: GameTraining, seed: int, device: str) -> OnDevice:
    count = number_of_rows(rows.parts["train"])
    if count < training.batch_size:
        raise UserError(
            f"The data have {count:,} rows, fewer than a batch of {training.batch_size:,}: give a smaller "
            "training.batch_size, or more data."
        )
    source = Batches(data=rows.parts["train"], batch_size=training.batch_size, seed=seed, drop_last=True)
    return OnDevice(WithNoise(batches=source, latent=generator.latent, law=generator.law, seed=seed), device)


def _players(
    own: Mapping[str, Any], game: EnergyGan, training: GameTraining, optimiser: OptimiserConfig, schedule: Schedule,
    device: str,
) -> Players:  # fmt: skip
    players = {}
    for name, module in own.items():
        moved = optimiser.build(parameter for parameter in module.parameters() if parameter.requires_grad)
        if name == "generator":
            for group in moved.param_groups:
                group["lr"] *= training.generator_rate
        players[name] = Player(module=module, optimiser=moved, schedule=schedule, clip_norm=training.clip)
    return {**players, "memory": Player(module=game.memory.to(device))}


def _description(
    rows: GameData, own: Mapping[str, Any], game: EnergyGan, training: GameTraining, optimiser: OptimiserConfig,
    schedule: Schedule, seed: int,
) -> str:  # fmt: skip
    """What the run is made from, as YAML. First weights are no part of it."""
    weight = next(own["generator"].parameters())
    return as_yaml(
        {
            "seed": seed,
            "device": weight.device.type,
            "precision": str(weight.dtype).removeprefix("torch."),
            "data": rows.origin or {"digest": fingerprint(rows.rows())},
            **{name: architecture(module) for name, module in own.items()},
            "costs": entry(COSTS, game.costs),
            "entropy": entry(ENTROPIES, game.entropy),
            "control": entry(CONTROLS, game.control),
            "halt": asdict(game.halt),
            "smoothness": game.smoothness,
            "optimiser": entry(OPTIMISERS, optimiser),
            "schedule": entry(SCHEDULES, schedule),
            "training": asdict(training),
        }
    )
