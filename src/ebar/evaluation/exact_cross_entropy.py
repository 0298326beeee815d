"""Cross-entropy against a language known as an automaton: every string counted, nothing sampled.

CE = −Σₓ p(x)·log π(x) = Σᵤ p(u)·Σₐ p(a|u)·(−log π(a|u)), u over the prefixes of strings. A prefix that strings share
is evaluated once: the 1,113,640 strings of Parshakova et al. 2019's 14-bit motif have 34.5 million tokens, but
3.8 million prefixes.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.automata.deterministic import ranges
from ebar.automata.graph import Graph
from ebar.automata.measures import count_strings, mean_length
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.moments import true_moment
from ebar.models.tilted import Tilted
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.shards import Workers, run_shards
from ebar.types import Context, Estimate, State, Stepwise

BATCH = 1024  # prefixes evaluated together: more are no faster
SHARDS = 64  # at least, that a tree is cut into for workers
LARGEST = 100_000_000  # prefixes: half an hour or so of a small model


class ExactCrossEntropy(NamedTuple):
    """Known without error, but for the rounding of the model's own logits."""

    per_sequence: Estimate  # nats
    per_token: Estimate  # the same over the language's mean length, the end counted
    strings: int
    prefixes: int  # those that are not yet whole strings, the empty one included


@torch.no_grad()
def exact_cross_entropy(
    truth: ProbabilisticAutomaton,
    model: Stepwise,
    *,
    context: Context | None = None,
    batch: int = BATCH,
    largest: int = LARGEST,
    workers: Workers | None = None,
) -> ExactCrossEntropy:
    """The expected −log π(x) over the strings of a finite language, without dropout whatever the model's mode.

    Depth first, `batch` prefixes at a time: no more than that many of the model's states for each place of a string
    are in memory at once. `context` is one condition. Infinite where the model cannot make a string of the language.
    With `workers`, the parts of the tree below its first levels are shards that they do.
    """
    if (truth.space.vocabulary, truth.space.end) != (model.space.vocabulary, model.space.end):
        raise ValueError(f"the language is on {truth.space}, the model on {model.space}: their tokens differ")
    if context is not None and context.rows != 1:
        raise ValueError(f"a cross-entropy is that of one condition, not of {context.rows}")
    prefixes = count_prefixes(truth.graph)
    if prefixes > largest:
        number = "infinitely many" if math.isinf(prefixes) else f"{prefixes:.3g}"
        raise UserError(
            f"The language has {number} prefixes, more than {largest:,}, too many for an exact cross-entropy: "
            "estimate it from a sample of the language, or shorten the language."
        )
    space = model.space.after(context)
    fits = truth.graph.longest <= space.length
    if space.end is None:
        fits = truth.space.length == space.length
    total = math.inf
    if fits:
        with evaluation_mode(model), bar("exact cross-entropy", int(prefixes), "prefixes") as progress:
            costs = []
            for size, cost in _costs(_Tree(truth, model, batch), context, workers):
                costs.append(cost)
                progress.advance(size)
                if cost == math.inf:
                    break
            total = math.fsum(costs)
    per_sequence = Estimate.exact(total)
    return ExactCrossEntropy(per_sequence, per_token(truth, per_sequence), int(count_strings(truth)), int(prefixes))


def tilted_cross_entropy(
    truth: ProbabilisticAutomaton, tilted: Tilted, log_z: Estimate, base_cross_entropy: Estimate
) -> Estimate:
    """CE(p_λ) = CE(r) − ⟨λ, E_truth φ⟩ + log Z for P_λ = r·exp⟨λ, φ⟩ (equation 4), in nats per sequence.

    CE(r) and E_truth φ being exact, the interval is that of log Z. Features that no automaton follows are an error.
    """
    if not isinstance(tilted.energy, Linear):
        raise UserError("An exact cross-entropy of a tilted model needs an energy that is linear in features.")
    energy = 0.0
    for feature, coefficient in zip(tilted.energy.features.features, tilted.energy.coefficients.tolist(), strict=True):
        mean = true_moment(truth, feature)
        energy -= coefficient * mean if mean else 0.0  # 0·(−∞) is 0 here, as in the energy
    shift = base_cross_entropy.value + energy
    return log_z.mapped(lambda value: shift if math.isinf(shift) else value + shift)


def per_token(truth: ProbabilisticAutomaton, per_sequence: Estimate) -> Estimate:
    """Nats per sequence over the language's mean length, the end counted."""
    length = mean_length(truth)
    return per_sequence.mapped(lambda nats: nats / length)


def count_prefixes(graph: Graph) -> float:
    """How many prefixes, whole strings left out, there are to evaluate: a float, since there may be 10³⁰⁰ of them."""
    if graph.cyclic:
        return math.inf
    below = np.ones(graph.states)
    below[-1] = 0.0
    edges = zip(graph.arcs.sources[::-1].tolist(), graph.arcs.targets[::-1].tolist(), strict=True)
    with np.errstate(over="ignore"):
        for source, target in edges:  # by falling source, and targets come after sources: below[target] is complete
            below[source] += below[target]
    return float(below[0])


class _Waiting(NamedTuple):
    """Prefixes not yet read by the model: rows of the state it was in a token earlier, and that token."""

    place: int  # how many tokens they have
    before: State
    rows: Int[Tensor, " batch"]
    tokens: Int[Tensor, " batch"]
    at: Int[Tensor, " batch"]  # the automaton's states
    mass: Float[Tensor, " batch"]  # p(u)


class _Tree(NamedTuple):
    """What all prefixes have in common."""

    truth: ProbabilisticAutomaton
    model: Stepwise
    batch: int


def _costs(tree: _Tree, context: Context | None, workers: Workers | None) -> Iterator[tuple[int, float]]:
    """How many prefixes were done, and Σ p(u)·Σₐ p(a|u)·(−log π(a|u)) over them."""
    logits, state = tree.model.start(1, context)
    at, mass = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.float64)
    cost, stack = _expand(tree, logits, state, at, mass, 0)
    yield 1, cost
    if workers is None:
        yield from _below(tree, stack)
        return
    while stack and len(stack) < SHARDS:  # level by level, until there are enough
        waiting = stack.pop(0)
        cost, more = _read(tree, waiting)
        stack.extend(more)
        yield len(waiting.at), cost
    # Each goes with the states of its own rows alone.
    jobs = (
        one._replace(before=one.before.select(one.rows.to(logits.device)), rows=torch.arange(len(one.rows)))
        for one in stack
    )  # fmt: skip
    for _, done in run_shards(_shard, tree, jobs, workers=workers, in_order=True):
        yield from done


@torch.no_grad()
def _shard(tree: _Tree, waiting: _Waiting) -> list[tuple[int, float]]:
    """All below some prefixes."""
    with evaluation_mode(tree.model):
        return list(_below(tree, [waiting]))


def _below(tree: _Tree, stack: list[_Waiting]) -> Iterator[tuple[int, float]]:
    while stack:
        waiting = stack.pop()
        cost, more = _read(tree, waiting)
        stack.extend(more)
        yield len(waiting.at), cost


def _read(tree: _Tree, waiting: _Waiting) -> tuple[float, list[_Waiting]]:
    """The model reads some prefixes."""
    space = tree.model.space
    if space.end is not None and waiting.place == space.length - 1:  # only the end can stand there: it costs nothing
        return 0.0, []
    device = device_of(tree.model)
    state = waiting.before.select(waiting.rows.to(device))
    after, state = tree.model.advance(waiting.tokens.to(device)[:, None], state)
    return _expand(tree, after[:, 0], state, waiting.at, waiting.mass, waiting.place)


def _expand(
    tree: _Tree, logits: Float[Tensor, "rows vocabulary"], state: State, at: Int[Tensor, " rows"],
    mass: Float[Tensor, " rows"], place: int,
) -> tuple[float, list[_Waiting]]:  # fmt: skip
    """What the next tokens cost, and the prefixes that go on, in parts of equal size and at most a batch each."""
    truth, tables = tree.truth, tree.truth.tables
    first = tables.first[at].numpy()
    degree = tables.last[at].numpy() + 1 - first
    arcs = torch.from_numpy(ranges(first, degree))
    rows = torch.repeat_interleave(torch.arange(len(at)), torch.from_numpy(degree))
    labels, targets = tables.labels[arcs], tables.targets[arcs]
    log_probs = torch.log_softmax(logits, -1, dtype=torch.float64).cpu()[rows, labels]
    if bool((log_probs == -math.inf).any()):
        return math.inf, []
    mass = mass[rows] * tables.log_weights[arcs].exp()
    cost = -float((mass * log_probs).sum())
    (going_on,) = (targets != truth.final).nonzero(as_tuple=True)
    parts = going_on.tensor_split(-(-len(going_on) // tree.batch)) if len(going_on) else ()
    return cost, [_Waiting(place + 1, state, rows[p], labels[p], targets[p], mass[p]) for p in parts]
