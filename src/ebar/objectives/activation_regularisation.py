"""Cross-entropy with activation regularisation: hidden vectors are kept small, and slow. Merity et al. 2017.

Revisiting Activation Regularization for Language RNNs (arXiv:1708.01009), as AWD-LSTM has it (Merity et al. 2018):

    loss = cross-entropy + α·mean(dropped²) + β·mean((rawₜ₊₁ − rawₜ)²)

`dropped` is the output of the last layer after dropout, `raw` before it. Means are over all elements of all vectors, as
in the authors' code (the papers write Euclidean norms).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar import together
from ebar.errors import UserError
from ebar.models.outputs import GivesOutputs
from ebar.models.stepwise import belongs
from ebar.objectives.scheduled_sampling import Batch, MaximumLikelihood, inside, parted
from ebar.types import Clock, Distribution, Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRegularised:
    """Cross-entropy per token, and a cost of large hidden vectors and of fast changes of them (AWD-LSTM's AR and TAR).

    Held-out data is measured by cross-entropy alone. The means are those of the whole batch, whatever its parts.
    """

    model: Distribution
    alpha: float = 2.0
    """Of the mean square of the last layer's output after dropout."""
    beta: float = 1.0
    """Of the mean square of the difference between successive outputs before dropout."""
    player: str = "model"

    def __post_init__(self) -> None:
        if min(self.alpha, self.beta) < 0:
            raise ValueError("alpha and beta must be at least 0")

    @property
    def validation(self) -> MaximumLikelihood:
        """What held-out data is measured by."""
        return MaximumLikelihood(model=self.model, player=self.player)

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        model = self.model
        if not isinstance(model, GivesOutputs):
            raise UserError(f"{type(model).__name__} shows no outputs of its last layer: use maximum_likelihood.")
        x, context = parted(batch)
        space = model.space.after(context)
        safe = inside(x, space)
        counted = x.mask()[:, : safe.tokens.shape[1]]
        terms, pairs = int(x.lengths.sum()), int(counted[:, 1:].sum())
        [counts] = together.joined(torch.tensor([[terms, pairs]]))
        outputs = model.outputs(safe.tokens, context)
        costs = torch.where(counted, -outputs.log_probs, 0.0).sum(1)
        nll = torch.where(belongs(x, space, context), costs, torch.inf).sum() / terms
        size, speed = size_and_speed(outputs.raw, outputs.dropped, counted)
        if pairs:
            # The loss counts by its tokens, and the mean over pairs by its pairs.
            speed = speed * (pairs / terms / (int(counts[:, 1].sum()) / int(counts[:, 0].sum())))
        metrics = {"nll_per_token": nll, "activation": size, "activation_change": speed}
        value = nll + self.alpha * size + self.beta * speed
        yield Loss(
            value, self.player, {name: float(one.detach()) for name, one in metrics.items()}, weight=float(terms)
        )


def size_and_speed(
    raw: Float[Tensor, "rows length width"],
    dropped: Float[Tensor, "rows length width"],
    counted: Bool[Tensor, "rows length"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """mean(dropped²), and mean((rawₜ₊₁ − rawₜ)²) over places that count; 0 where there is no pair of them."""
    squares = dropped.square().mean(2)
    changes = (raw[:, 1:] - raw[:, :-1]).square().mean(2)
    pairs = counted[:, 1:]
    size = torch.where(counted, squares, 0.0).sum() / counted.sum()
    return size, torch.where(pairs, changes, 0.0).sum() / pairs.sum().clamp(min=1)
