"""Laws of distributions of points."""

import torch
from scipy import stats
from torch import Generator, Tensor

from ebar.evaluation.grid import grid_around
from ebar.models.tilted import score
from ebar.testing.laws import require, require_close
from ebar.types import Context, Distribution, PointSpace, SamplesWithLogProb, context_rows

DRAWS, BLOCKS, FINER = 20_000, 15, 12  # cells of a plane in which draws are counted, each cut finer to integrate
FALSE_ALARM = 1e-6  # a distribution that keeps the law fails once in a million seeds
OFF = 0.02  # by how much the sum over the cells may differ from 1: a density that jumps is cut along its edge


@torch.no_grad()
def check_point_distribution(
    model: Distribution[Tensor, PointSpace], context: Context | None = None, *, draws: int = 50, seed: int = 1
) -> None:
    """As many float tensors of the space's shape as are asked for, which the generator alone decides; log_prob gives
    each a finite number that no other row changes. In the plane without a context, log_prob adds up to 1 on a fine
    grid, and draws fall into its cells as often as log_prob says (χ², failing once in a million seeds).
    """
    rows, shape = context_rows(context), model.space.shape
    x = model.sample(draws, context, generator=Generator().manual_seed(seed))
    require(
        tuple(x.shape) == (rows * draws, *shape), f"sample({draws}) gives {draws} points for each row of the context"
    )
    require(x.is_floating_point(), "points are numbers of a float type")
    before = torch.get_rng_state()
    again = model.sample(draws, context, generator=Generator().manual_seed(seed))
    require(torch.equal(torch.get_rng_state(), before), "sample leaves torch's own random state alone")
    require(torch.equal(again, x), "the generator alone decides what is drawn")
    log_prob = score(model, x, context)
    require(log_prob.isfinite().all(), "what is drawn has a finite log-density")
    if isinstance(model, SamplesWithLogProb):
        drawn, own = model.sample_with_log_prob(draws, context, generator=Generator().manual_seed(seed))
        require_close(own, score(model, drawn, context), "sample_with_log_prob and log_prob agree")
    if context is None:
        backwards = score(model, x.flip(0)).flip(0)
        require_close(backwards, log_prob, "log_prob of a point depends on no other row")
        if shape == (2,):
            _check_plane(model, seed)


def _check_plane(model: Distribution[Tensor, PointSpace], seed: int) -> None:
    x = model.sample(DRAWS, generator=Generator().manual_seed(seed + 1)).double()
    grid = grid_around(x, size=BLOCKS * FINER)
    # The cells around the nodes: each block has FINER × FINER of them, and what lies outside belongs to the edge.
    step = (grid.high - grid.low) / (grid.size - 1)
    like = model.sample(1, generator=Generator().manual_seed(seed))
    density = torch.cat([score(model, part.to(like)).double().exp() for part in torch.split(grid.nodes(), 10_000)])
    shares = density.view(BLOCKS, FINER, BLOCKS, FINER).sum((1, 3)).flatten() * float(step.prod())
    total = float(shares.sum())
    require(abs(total - 1) <= OFF, f"log_prob adds up to 1 over the plane: it does to {total:.4g} on a grid")
    node = grid.nearest(x)
    row, column = node // grid.size // FINER, node % grid.size // FINER
    counts = torch.bincount(row * BLOCKS + column, minlength=BLOCKS**2).double()
    wanted = shares / total * DRAWS
    common = wanted >= 10
    seen = torch.cat([counts[common], counts[~common].sum()[None]])
    expected = torch.cat([wanted[common], wanted[~common].sum().clamp(min=1.0)[None]])
    statistic = float(((seen - expected).square() / expected).sum())
    chance = float(stats.chi2.sf(statistic, int(common.sum())))
    require(
        chance >= FALSE_ALARM,
        f"draws fall where log_prob says: over {len(seen)} cells χ² is {statistic:.4g}, whose chance is {chance:.1g}",
    )
