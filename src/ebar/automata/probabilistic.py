"""Probabilistic automata: exact samples and exact log-probabilities, in batches."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from ebar.automata.deterministic import ranges
from ebar.automata.graph import Graph
from ebar.maths.randomness import default_generator
from ebar.types import Context, Sequences, Space, context_rows

CHUNK = 32_768  # rows drawn together: the working set stays in cache


class Tables(NamedTuple):
    """The graph's arrays as tensors, and the cumulated weights of each state's arcs."""

    first: Int[Tensor, " states"]
    last: Int[Tensor, " states"]  # the last arc of each state
    labels: Int[Tensor, " arcs"]
    targets: Int[Tensor, " arcs"]
    log_weights: Float[Tensor, " arcs"]
    cumulated: Float[Tensor, " arcs"]


class AutomatonState(NamedTuple):
    """Where each row stands."""

    at: Int[Tensor, " rows"]

    def select(self, rows: Int[Tensor, " selected"]) -> "AutomatonState":
        return AutomatonState(self.at[rows])


@dataclass(frozen=True, eq=False)
class ProbabilisticAutomaton:
    """A distribution over strings, its arcs' weights summing to one in every state. Parshakova et al. 2019, A.2.

    Deterministic: the tokens fix the path, so a string's probability is the product of its arcs. Where the space
    has an end token, ending is an arc like any other, which carries that token. A distribution of unbounded
    length has `space.length` = `UNBOUNDED`; `capped` conditions it on a length.
    """

    graph: Graph
    space: Space
    log_partition: float = 0.0  # log Z of the weights before they were made to sum to one

    @property
    def free_logits(self) -> bool:
        return False

    @cached_property
    def tables(self) -> Tables:
        offsets, arcs = self.graph.offsets, self.graph.arcs
        cumulated = np.empty(len(arcs.labels))
        degrees = np.diff(offsets)
        for degree in np.unique(degrees[degrees > 0]):  # a few: states of one degree are one matrix
            rows = offsets[:-1][degrees == degree, None] + np.arange(degree)
            cumulated[rows] = np.cumsum(self.graph.weights[rows], 1)
            cumulated[rows[:, -1]] = np.inf  # the last arc takes what rounding leaves
        arrays = (offsets[:-1], offsets[1:] - 1, arcs.labels, arcs.targets, arcs.log_weights, cumulated)
        return Tables(*map(torch.from_numpy, arrays))

    @property
    def final(self) -> int:
        return self.graph.states - 1

    @cached_property
    def _halvings(self) -> int:
        return int(np.diff(self.graph.offsets).max() - 1).bit_length()

    def _search(
        self, values: Shaped[Tensor, " arcs"], wanted: Shaped[Tensor, " rows"], state: Int[Tensor, " rows"]
    ) -> Int[Tensor, " rows"]:
        """The first of a state's arcs whose value exceeds what is wanted, or else its last arc, by bisection."""
        first, last = self.tables.first.index_select(0, state), self.tables.last.index_select(0, state)
        for _ in range(self._halvings):
            middle = (first + last) >> 1
            beyond = values.index_select(0, middle) > wanted
            first = torch.where(beyond, first, middle + 1).clamp(max=last)
            last = torch.where(beyond, middle, last)
        return first

    def _choose(self, uniform: Float[Tensor, " rows"], state: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """An arc of each state, drawn by inverting the cumulated weights."""
        if self._halvings > 1:
            return self._search(self.tables.cumulated, uniform, state)
        first = self.tables.first.index_select(0, state)  # two arcs at most: one comparison
        return first + (self.tables.cumulated.index_select(0, first) <= uniform)

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        rows = n * context_rows(context)
        # First, so that too many rows are refused before any is drawn.
        lengths, log_prob = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.float64)
        drawn = []
        for begin in range(0, rows, CHUNK):
            end = min(begin + CHUNK, rows)
            part, lengths[begin:end], log_prob[begin:end] = self._draw(end - begin, generator)
            drawn.append(part)
        width = max((part.shape[0] for part in drawn), default=0)
        tokens = torch.zeros(rows, width, dtype=torch.int64)
        for index, part in enumerate(drawn):
            tokens[index * CHUNK : index * CHUNK + part.shape[1], : part.shape[0]] = part.T
        device = generator.device
        return Sequences(tokens.to(device), lengths.to(device)), log_prob.to(device)

    def _draw(
        self, rows: int, generator: Generator
    ) -> tuple[Int[Tensor, "length rows"], Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        tables, final = self.tables, self.final
        log_prob = torch.zeros(rows, dtype=torch.float64)
        lengths = torch.zeros(rows, dtype=torch.int64)
        running = torch.arange(rows)  # the rows that have not ended, and where each stands
        state = torch.zeros(rows, dtype=torch.int64)
        steps: list[Tensor] = []
        while len(running):
            uniform = torch.rand(len(running), dtype=torch.float64, generator=generator, device=generator.device)
            arc = self._choose(uniform.cpu(), state)
            state = tables.targets.index_select(0, arc)
            labels = tables.labels.index_select(0, arc)
            log_weights = tables.log_weights.index_select(0, arc)
            if len(running) == rows:
                steps.append(labels)
                log_prob += log_weights
            else:
                steps.append(torch.zeros(rows, dtype=torch.int64).index_copy_(0, running, labels))
                log_prob.index_add_(0, running, log_weights)
            ended = state == final
            if ended.any():
                lengths[running[ended]] = len(steps)
                running, state = running[~ended], state[~ended]
        return torch.stack(steps), lengths, log_prob

    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        return self.sample_with_log_prob(n, context, generator=generator or default_generator())[0]

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        tokens, lengths = x.tokens.cpu(), x.lengths.cpu()
        parts = [
            self._log_prob(tokens[begin : begin + CHUNK], lengths[begin : begin + CHUNK])
            for begin in range(0, len(lengths), CHUNK)
        ]
        return torch.cat(parts or [torch.zeros(0, dtype=torch.float64)]).to(x.tokens.device)

    def _log_prob(self, tokens: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        state = torch.zeros_like(lengths)
        log_prob = torch.zeros(len(lengths), dtype=torch.float64)
        for place, token in enumerate(tokens[:, : int(lengths.max())].T.contiguous()):
            counts = lengths > place
            after, log_weights = self.step(state, token)
            state = torch.where(counts, after, state)
            log_prob += torch.where(counts, log_weights, 0.0)
        return torch.where(state == self.final, log_prob, -torch.inf)

    def step(
        self, state: Int[Tensor, " rows"], token: Int[Tensor, " rows"]
    ) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
        """The next state and the token's log-probability; what cannot be continued is at its end."""
        tables = self.tables
        arc = self._search(tables.labels, token - 1, state).clamp(0, len(tables.labels) - 1)
        there = (tables.labels.index_select(0, arc) == token) & (state != self.final)
        after = torch.where(there, tables.targets.index_select(0, arc), self.final)
        return after, torch.where(there, tables.log_weights.index_select(0, arc), -torch.inf)

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], AutomatonState]:
        state = torch.zeros(rows, dtype=torch.int64)
        return self._next(state), AutomatonState(state)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: AutomatonState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], AutomatonState]:
        at, logits = state.at, []
        for place in range(tokens.shape[1]):
            at, _ = self.step(at, tokens[:, place].cpu())
            logits.append(self._next(at))
        return torch.stack(logits, 1).to(tokens.device), AutomatonState(at)

    def _next(self, state: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        """Next-token log-probabilities; after the end, or an impossible prefix, all weight is on the end token."""
        logits = torch.full((len(state), self.space.vocabulary), -torch.inf, dtype=torch.float64)
        first = self.tables.first[state].numpy()
        count = self.tables.last[state].numpy() + 1 - first
        arcs = torch.from_numpy(ranges(first, count))
        rows = torch.repeat_interleave(torch.arange(len(state)), torch.from_numpy(count))
        logits[rows, self.tables.labels[arcs]] = self.tables.log_weights[arcs]
        logits[state == self.final, self.space.end or 0] = 0.0
        return logits
