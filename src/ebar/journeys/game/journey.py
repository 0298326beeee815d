"""A game: a generator and an energy, each with its own optimiser, in a run folder or in memory.

It leaves a generator to draw from, and an energy to rank and to measure by.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.bounds import Amount, Count
from ebar.energies.discriminators import DISCRIMINATORS
from ebar.errors import UserError
from ebar.estimators.log_z import log_z
from ebar.evaluation.ranking import Ranking, rank_by_energy
from ebar.journeys.description import architecture, entry, run_description
from ebar.journeys.game.data import GameData, game_data
from ebar.journeys.train import Learnt, player_of, seed_of, train_in_folder
from ebar.maths.randomness import default_generator
from ebar.models.generators import GENERATORS, ImplicitGenerator, sample_generator
from ebar.models.inference import GaussianInference
from ebar.models.points import UniformBox
from ebar.models.tilted import Tilted
from ebar.objectives.adversarial_costs import COSTS, Costs, EnergyGap
from ebar.objectives.energy_gan import CONTROLS, Control, EnergyGan, GapControl, HaltRule
from ebar.objectives.entropy_terms import ENTROPIES, EntropyTerm, NeighbourEntropy, VariationalEntropy
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.store.fingerprint import fingerprint
from ebar.training import distributed
from ebar.training.batches import Batches, OnDevice, number_of_rows
from ebar.training.games import WithNoise
from ebar.training.optimisers import Adam, EpochDecay, OptimiserConfig, Schedule
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.train import Plan
from ebar.types import Context, Estimate, PointSpace


class Calibrated(nn.Module):
    """c(x)/α: the energy in nats, where c tends to −α·log p."""

    def __init__(self, energy: nn.Module, weight: float):
        super().__init__()
        self.energy, self.weight = energy, weight

    def forward(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        found: Tensor = self.energy(x)
        return found / self.weight


@dataclass(frozen=True, kw_only=True)
class Played(Learnt):
    """A generator and an energy that have learnt from each other, and how it went."""

    generator: nn.Module  # both with the last good weights, in evaluation mode
    energy: nn.Module
    inference: nn.Module | None
    data: GameData
    weight: float  # α of the entropy, 0 where there is none

    @property
    def calibrated(self) -> nn.Module:
        """c/α, which tends to −log p + constant; without an entropy the energy as it is."""
        return Calibrated(self.energy, self.weight or 1.0)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of what is logged with whoever moves first: gap, energy_data, energy_samples, spread."""
        return sorted(self.history.curve(f"discriminator.{name}") + self.history.curve(f"generator.{name}"))

    def sample(self, n: int, *, generator: Generator | None = None) -> Float[Tensor, "n ..."]:
        """Draws of the generator."""
        random = default_generator(next(self.generator.parameters()).device) if generator is None else generator
        return sample_generator(self.generator, n, generator=random)

    def rank(self, x: Float[Tensor, "rows ..."] | None = None) -> Ranking:
        """Rows by energy, by default those held out: the likeliest first."""
        rows = self.data.rows(self.data.held_out) if x is None else x
        return rank_by_energy(self.energy, rows.to(next(self.energy.parameters())))

    def on_box(
        self, low: Float[Tensor, " dimensions"] | None = None, high: Float[Tensor, " dimensions"] | None = None
    ) -> "Tilted[Tensor, PointSpace]":
        """exp(−c/α) on a box, a model that samplers and estimators take.

        By default the box of the training points, each side moved out by a quarter of their range.
        """
        if len(self.data.shape) != 1:
            raise UserError("Only points have a box to integrate over: images have too many dimensions.")
        rows, like = self.data.rows(), next(self.energy.parameters())
        ends = rows.amin(0), rows.amax(0)
        margin = (ends[1] - ends[0]) / 4
        low = ends[0] - margin if low is None else low
        high = ends[1] + margin if high is None else high
        return Tilted(UniformBox(low.to(like), high.to(like)), self.calibrated)

    def log_z(self, *, draws: int = 20_000, generator: Generator | None = None, **box: Any) -> Estimate:
        """log ∫ exp(−c/α) over a box (`on_box`), by importance sampling from the uniform law on it."""
        model = self.on_box(**box)
        random = default_generator(next(self.energy.parameters()).device) if generator is None else generator
        found = log_z(draw(Importance(), model, draws, generator=random))[0].estimate
        base: Any = model.base
        volume = base.log_volume
        return found.mapped(lambda value: value + volume)

    def report(self, path: Path | str) -> Path:
        """One page: contours, samples and curves of points in the plane; sheets of samples and ranked images."""
        from ebar.journeys.game.report import write_game_page

        return write_game_page(self, Path(path))


def energies_of(played: Played, x: Float[Tensor, "rows ..."]) -> Float[Tensor, " rows"]:
    """The energy of each row, in evaluation mode, on the CPU in double precision."""
    return played.rank(x).energies if len(x) else torch.zeros(0, dtype=torch.float64)


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
        made_of = {
            "data": rows.origin or {"digest": fingerprint(rows.rows())},
            **{name: architecture(module) for name, module in own.items()},
            "costs": entry(COSTS, costs),
            "entropy": entry(ENTROPIES, entropy),
            "control": entry(CONTROLS, control),
            "halt": asdict(halt),
            "smoothness": smoothness,
        }
        description = run_description(
            own["generator"], made_of, seed=drawn, training=training, optimiser=optimiser, schedule=schedule
        )
    batches = _batches(rows, own["generator"], training, drawn, device)
    players = {name: player_of(module, optimiser, schedule, clip=training.clip) for name, module in own.items()}
    moved = players["generator"].optimiser
    for group in [] if moved is None else moved.param_groups:
        group["lr"] *= training.generator_rate
    players["memory"] = Player(module=played.memory.to(device))
    plan = Plan(epochs=training.epochs, log_every=training.log_every, checkpoint_every=training.checkpoint_every)
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
