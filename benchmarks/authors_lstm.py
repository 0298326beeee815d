"""The autoregressive model r of Parshakova et al. 2019, trained by its authors' recipe on strings that hold a motif.

Two layers of 200, frozen one-hot input, dropout 0.2, decoder uniform in ±0.1; Adam 1e-3, batches of at most 500,
gradients clipped at 0.25, at most 130 epochs. Patience is 10 and its counter never resets: the tenth epoch in all,
not in a row, that is no better ends training, as in the authors' code. The best weights on held-out data are kept.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.data.languages import Language
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.store.writing import replace
from ebar.training.batches import Batches
from ebar.training.loop import fit
from ebar.training.optimisers import Adam
from ebar.training.players import Player, evaluating
from ebar.types import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which strings, how many, and the seed of data, weights and dropout."""

    size: int  # |D|
    seed: int
    motif: str = "10001011111000"
    length: int = 30
    epochs: int = 130
    patience: int = 10

    @property
    def space(self) -> Space:
        """Sequences that r may draw are up to twice as long as those it has seen."""
        return Space(3, 2 * self.length + 1, end=2)


def untrained(recipe: Recipe) -> Autoregressive:
    """r before training."""
    backbone = Lstm(recipe.space.vocabulary, layers=2, hidden=200, dropout=0.2)
    return Autoregressive(backbone, Softmax(backbone.width, recipe.space.vocabulary), recipe.space)


def trained(recipe: Recipe) -> Autoregressive:
    """r, in evaluation mode."""
    batch = min(recipe.size, 500)
    held_out = int(min(max(batch, 0.25 * recipe.size), 2000))
    generator = Generator().manual_seed(recipe.seed)
    language = Language(motif=recipe.motif, length=recipe.length).distribution()
    data = language.sample(recipe.size, generator=generator)
    validation = language.sample(held_out - held_out % batch, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)  # initial weights and dropout are torch's own randomness
        model = untrained(recipe)
        player = Player(module=model, optimiser=Adam(learning_rate=1e-3).build(model.parameters()), clip_norm=0.25)
        batches = Batches(data=data, batch_size=batch, seed=recipe.seed, drop_last=True)
        best, best_weights, no_better = float("inf"), model.state_dict(), 0
        for step in fit(MaximumLikelihood(model=model), batches, {"model": player}, generator=generator):
            if not step.ends_epoch:
                continue
            with evaluating(player):
                loss = -float(model.log_prob(validation).sum() / validation.lengths.sum())
            if loss < best:
                best, best_weights = loss, {name: weight.clone() for name, weight in model.state_dict().items()}
            else:
                no_better += 1
            if no_better == recipe.patience or step.position.epoch == recipe.epochs:
                break
    model.load_state_dict(best_weights)
    return model.eval()


def kept(recipe: Recipe, cache: Path) -> Path:
    """Where r is kept."""
    return cache / f"authors-lstm-{recipe.motif}-{recipe.size}-{recipe.seed}.safetensors"


def prepare(recipe: Recipe, cache: Path) -> Autoregressive:
    """r from the cache, or trained and put there."""
    path = kept(recipe, cache)
    about = path.with_suffix(".json")
    wanted = asdict(recipe)
    if path.exists() and about.exists() and json.loads(about.read_text()) == wanted:
        model = untrained(recipe)
        model.load_state_dict(load_file(path))
        return model.eval()
    model = trained(recipe)
    cache.mkdir(parents=True, exist_ok=True)
    about.unlink(missing_ok=True)  # what describes the weights is written after them, and never describes others
    replace(path, save(model.state_dict()))
    replace(about, json.dumps(wanted).encode())
    return model
