"""A stack of LSTM layers. Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000.

One step of an LSTM without gradient, with nothing computed twice.

Per layer one matrix product; the first layer's product with its input is looked up in a table, a row for each token.
tanh a = 1 − 2σ(−2a), and σ is several times cheaper than tanh on a CPU: the factor −2 is folded into the weights of
the candidate gate, and into the cell, which is kept as c′ = −2c.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple, no_type_check

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ebar.backbones.backbone import Outputs, check_layers
from ebar.types import Context


class LstmStepper:
    """A draw under way; `hidden` holds the layers side by side, so that a layer's input and memory are one slice.

    `weights` are those of each layer as `nn.LSTM.all_weights` has them; layers may be of unequal width. With
    `tabulated` the first layer's product with every input vector is computed beforehand: quick where tokens are few, a
    waste of memory where they are tens of thousands. Without, the vector of the token stands left of the first layer.
    """

    def __init__(
        self, inputs: Float[Tensor, "tokens size"], weights: Sequence[Sequence[Tensor]],
        hidden: Sequence[Tensor] | Tensor, cell: Sequence[Tensor] | Tensor, *,
        compiled: bool = False, tabulated: bool = True,
    ):  # fmt: skip
        self.compiled, self.inputs, widths = compiled, inputs, [len(layer[0]) // 4 for layer in weights]
        with torch.no_grad():
            self.table, self.weights, self.biases = _folded(inputs, weights, tabulated)
            left = [] if tabulated else [inputs.new_zeros(len(hidden[0]), inputs.shape[1])]
            self.hidden = torch.cat([*left, *hidden], 1)  # a copy, even of one layer: a state is never changed
            self.cells = [-2 * layer for layer in cell]
        ends = list(accumulate([0 if tabulated else inputs.shape[1], *widths]))
        self.own = [slice(first, end) for first, end in pairwise(ends)]  # where each layer's hidden vector stands
        begins = [ends[0] if tabulated else 0, *ends[:-2]]
        self.read = [slice(first, end) for first, end in zip(begins, ends[1:], strict=True)]  # and what it reads
        self.gates = {width: self.hidden.new_empty(len(self.hidden), 4 * width) for width in set(widths)}
        self.squashed = {cell.shape[1]: torch.empty_like(cell) for cell in self.cells}

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        if self.table is None:
            self.hidden[:, : self.inputs.shape[1]] = self.inputs[tokens]
        for layer, (weight, cell) in enumerate(zip(self.weights, self.cells, strict=True)):
            new, read = self.hidden[:, self.own[layer]], self.hidden[:, self.read[layer]]
            gates, squashed = self.gates[cell.shape[1]], self.squashed[cell.shape[1]]
            table = self.table if layer == 0 else None
            if self.compiled:
                torch.mm(read, weight, out=gates)
                addend, at = (self.biases[layer], None) if table is None else (table, tokens)
                _compiled_update()(gates, addend, at, cell, new)
                continue
            if table is None:
                torch.addmm(self.biases[layer], read, weight, out=gates)
            else:
                torch.index_select(table, 0, tokens, out=gates).addmm_(read, weight)
            entry, forget, candidate, output = gates.sigmoid_().chunk(4, 1)
            cell.mul_(forget).addcmul_(entry, candidate, value=4).sub_(entry, alpha=2)
            torch.sigmoid(cell, out=squashed)
            torch.addcmul(output, output, squashed, value=-2, out=new)
        return self.hidden[:, self.own[-1]]

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.hidden = self.hidden[rows]
        self.cells = [cell[rows] for cell in self.cells]
        self.gates = {width: gates[: len(rows)] for width, gates in self.gates.items()}
        self.squashed = {width: squashed[: len(rows)] for width, squashed in self.squashed.items()}


def _folded(
    inputs: Tensor, layers: Sequence[Sequence[Tensor]], tabulated: bool
) -> tuple[Tensor | None, list[Tensor], list[Tensor]]:
    """The first layer's table, and each layer's [input; memory] weights and bias, factors of −2 and all."""
    weights, biases = [], []
    table = None
    for number, (of_input, of_memory, *bias) in enumerate(layers):
        width = of_memory.shape[1]
        scale = inputs.new_ones(4 * width)
        scale[2 * width : 3 * width] = -2  # torch's order of gates: input, forget, candidate, output
        biases.append((bias[0] + bias[1]) * scale)
        if number == 0 and tabulated:
            table = inputs @ (of_input * scale[:, None]).T + biases[0]
        joined = of_memory if number == 0 and tabulated else torch.cat([of_input, of_memory], 1)
        weights.append((joined * scale[:, None]).T.contiguous())
    return table, weights, biases


Update = Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor], None]


@cache
def _compiled_update() -> Update:
    """All of a layer but its matrix product, as one kernel; compiled again for any number of rows when that changes."""
    return torch.compile(_update)


@no_type_check  # torch.compile cannot see through run-time shape checks
def _update(product, addend, tokens, cell, hidden):
    gates = product + (addend if tokens is None else addend[tokens])
    entry, forget, candidate, output = _sigmoid(gates).chunk(4, 1)
    cell.copy_(cell * forget + entry * (4 * candidate - 2))
    hidden.copy_(output - 2 * output * _sigmoid(cell))


# σ(x) − ½ = x·P(x²)/Q(x²) to 2e-8 for |x| ≤ 18, where float32's σ is 0 or 1 to rounding: a least-squares fit with
# weights that level the error (Lawson 1961). Once fused, half the time of an exponential.
P = (2.499999766e-01, 8.358253246e-03, 5.447797813e-05, 7.996861713e-08, 1.287538752e-11)
Q = (1.0, 1.167662552e-01, 1.615125802e-03, 5.111561388e-06, 3.008881795e-09)


@no_type_check
def _sigmoid(x):
    if x.dtype != torch.float32:
        return x.sigmoid()
    x = x.clamp(-18, 18)
    u = x * x
    above = (((P[4] * u + P[3]) * u + P[2]) * u + P[1]) * u + P[0]
    below = (((Q[4] * u + Q[3]) * u + Q[2]) * u + Q[1]) * u + Q[0]
    return 0.5 + x * above / below


class LstmState(NamedTuple):
    """What the layers remember of each row's prefix."""

    hidden: Float[Tensor, "layers rows width"]
    cell: Float[Tensor, "layers rows width"]

    def select(self, rows: Int[Tensor, " selected"]) -> "LstmState":
        return LstmState(self.hidden[:, rows], self.cell[:, rows])


class LstmMemory(NamedTuple):
    """The state of the layers between two segments of a text, rows first and without gradient."""

    hidden: Float[Tensor, "rows layers width"]
    cell: Float[Tensor, "rows layers width"]


class Lstm(nn.Module):
    """Tokens → hidden vectors of the top layer, with dropout on input, between layers and on output.

    The input is a frozen one-hot vector, the beginning of a sequence being the zero vector (as in the
    code of Parshakova et al. 2019, like its defaults), or a learnt embedding of size `embedding`, the beginning
    having its own. A context is a prefix, read after the beginning; an empty one is no context.
    `compiled` has torch compile the sampling step: some tens of seconds at the first draw, faster ever after.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 2, hidden: int = 200, dropout: float = 0.2,
        embedding: int | None = None, compiled: bool = False,
    ):  # fmt: skip
        super().__init__()
        check_layers(layers, dropout)
        if embedding is not None and embedding < 1:
            raise ValueError(f"an embedding has at least one dimension, not {embedding}")
        self.vocabulary, self.dropout, self.compiled = vocabulary, dropout, compiled
        if embedding is None:
            one_hot = torch.eye(vocabulary + 1, vocabulary)  # the last row, all zero, is the beginning
            self.register_buffer("inputs", one_hot, persistent=False)
        else:
            self.inputs = nn.Parameter(torch.empty(vocabulary + 1, embedding).uniform_(-0.1, 0.1))
        self.lstm = nn.LSTM(
            embedding or vocabulary, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )

    inputs: Tensor  # one row for each token, and a last one for the beginning

    @property
    def width(self) -> int:
        return self.lstm.hidden_size

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], LstmState]:
        beginning = torch.full((1 if context is None else context.rows, 1), self.vocabulary, device=self.inputs.device)
        if context is None:
            _, state = self.advance(beginning, None)
        else:
            given = context.given
            tokens = torch.cat([beginning, torch.where(given.mask(), given.tokens, self.vocabulary)], 1)
            # Packed, each row stops where its own prefix does.
            packed = pack_padded_sequence(
                self._dropped(self.embed(tokens)), given.lengths.cpu() + 1, True, enforce_sorted=False
            )
            state = LstmState(*self.lstm(packed)[1])
        times = rows // state.hidden.shape[1]
        state = LstmState(state.hidden.repeat_interleave(times, 1), state.cell.repeat_interleave(times, 1))
        return F.dropout(state.hidden[-1], self.dropout, self.training), state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: LstmState | None
    ) -> tuple[Float[Tensor, "rows length width"], LstmState]:
        hidden, after = self.lstm(self._dropped(self.embed(tokens)), state)
        return F.dropout(hidden, self.dropout, self.training), LstmState(*after)

    def empty_memory(self, rows: int) -> LstmMemory:
        """All zero, from which `start` reads the beginning too."""
        zeros = next(self.lstm.parameters()).new_zeros(rows, self.lstm.num_layers, self.width)
        return LstmMemory(zeros, zeros.clone())

    def enter_segment(self, memory: LstmMemory) -> LstmState:
        """An LSTM reads on as if there were no segments."""
        return LstmState(*(part.transpose(0, 1).contiguous() for part in memory))

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: LstmMemory
    ) -> tuple[Float[Tensor, "rows length width"], LstmMemory]:
        """Gradients end where the segment begins: back-propagation is truncated there."""
        hidden, after = self.advance(tokens, self.enter_segment(memory))
        return hidden, LstmMemory(*(part.detach().transpose(0, 1).contiguous() for part in after))

    @property
    def embedding(self) -> nn.Parameter | None:
        """The input vectors, a row for each token, then the beginning's, where they are learnt: a head may tie to
        them."""
        return self.inputs if isinstance(self.inputs, nn.Parameter) else None

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length size"]:
        """The input vectors, before dropout."""
        return F.embedding(tokens, self.inputs)

    def read(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Hidden vectors before each input and after the last."""
        return self.read_outputs(inputs, context).dropped

    def read_outputs(self, inputs: Float[Tensor, "rows length size"], context: Context | None = None) -> Outputs:
        """The same, before dropout and after it."""
        first, state = self.start(len(inputs), context)
        if inputs.shape[1] == 0:  # of which torch's LSTM would make an error
            return Outputs(state.hidden[-1][:, None], first[:, None])
        raw = self.lstm(self._dropped(inputs), state)[0]
        dropped = F.dropout(raw, self.dropout, self.training)
        return Outputs(torch.cat([state.hidden[-1][:, None], raw], 1), torch.cat([first[:, None], dropped], 1))

    def _dropped(self, inputs: Float[Tensor, "rows length size"]) -> Float[Tensor, "rows length size"]:
        return F.dropout(inputs, self.dropout, self.training)

    def stepper(self, state: LstmState) -> LstmStepper:
        """The sampling step, fused."""
        return LstmStepper(self.inputs, self.lstm.all_weights, state.hidden, state.cell, compiled=self.compiled)
