"""AWD-LSTM: layers of an LSTM, dropout everywhere, each mask drawn once for all time steps. Merity et al. 2018.

Regularizing and Optimizing LSTM Language Models, arXiv:1708.02182. In the order in which a pass meets them, with the
names that the authors' code has for them:

    dropout_embedding   dropoute    whole word vectors: a word is dropped wherever it stands
    dropout_input       dropouti    of the word vectors, locked
    dropout_weight      wdrop       of the weights from a layer's memory to its gates (DropConnect, Wan et al. 2013)
    dropout_hidden      dropouth    between layers, locked
    dropout_output      dropout     of the last layer's output, locked

Locked ("variational", Gal & Ghahramani 2016): a row has one mask for all its time steps. Each pass draws new masks:
`start` and each `advance` have their own, `read` and `read_segment` have one for all of their places.
"""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ebar.backbones.backbone import Outputs, check_layers
from ebar.backbones.lstm import LstmStepper
from ebar.types import Context

TABLE = 2**24  # numbers in the table of a stepper, at most: 64 megabytes


class AwdLstmState(NamedTuple):
    """What the layers remember of each row's prefix, side by side; detached, it is the memory between segments."""

    hidden: Float[Tensor, "rows widths"]
    cell: Float[Tensor, "rows widths"]

    def select(self, rows: Int[Tensor, " selected"]) -> "AwdLstmState":
        return AwdLstmState(self.hidden[rows], self.cell[rows])


class AwdLstm(nn.Module):
    """LSTM layers with dropout of words, inputs, recurrent weights, hidden vectors and outputs (Merity et al. 2018).

    The last layer is as wide as the word vectors, or of size `last`, so that a head can tie its weights to them. The
    defaults are those of WikiText-2; Penn Treebank has dropout_input 0.4 and dropout_hidden 0.25. The mixtures of Yang
    et al. 2018 have another `last`. Weights that are dropped are a function of the parameters, made anew in each pass
    in training mode: a parameter is never changed by it, and in evaluation mode nothing is dropped. (In the authors'
    code the recurrent weights could stay dropped in evaluation.)
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 3, hidden: int = 1150, embedding: int = 400, last: int | None = None,
        dropout_embedding: float = 0.1, dropout_input: float = 0.65, dropout_hidden: float = 0.2,
        dropout_output: float = 0.4, dropout_weight: float = 0.5,
    ):  # fmt: skip
        super().__init__()
        dropouts = (dropout_embedding, dropout_input, dropout_hidden, dropout_output, dropout_weight)
        for dropout in dropouts:
            check_layers(layers, dropout)
        if min(hidden, embedding, embedding if last is None else last) < 1:
            raise ValueError("hidden, embedding and last are sizes of at least 1")
        self.vocabulary = vocabulary
        self.dropout_embedding, self.dropout_input, self.dropout_hidden = dropouts[:3]
        self.dropout_output, self.dropout_weight = dropouts[3:]
        self.widths = [hidden] * (layers - 1) + [embedding if last is None else last]
        # One row for each token, and a last one for the beginning of a text.
        self.inputs = nn.Parameter(torch.empty(vocabulary + 1, embedding).uniform_(-0.1, 0.1))
        # They hold the weights, with torch's names and first values; what is computed with is partly dropped.
        self.layers = nn.ModuleList(
            nn.LSTM(size, width, batch_first=True)
            for size, width in zip([embedding, *self.widths[:-1]], self.widths, strict=True)
        )

    @property
    def width(self) -> int:
        return self.widths[-1]

    @property
    def embedding(self) -> nn.Parameter:
        """The input vectors, a row for each token, then the beginning's: a head may tie to them."""
        return self.inputs

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], AwdLstmState]:
        state = self._begun(rows, context)
        return self._output(self._last(state)[:, None])[:, 0], state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: AwdLstmState
    ) -> tuple[Float[Tensor, "rows length width"], AwdLstmState]:
        raw, after = self._run(self.embed(tokens), state)
        return self._output(raw), after

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length size"]:
        """The input vectors; in training mode those of dropped words are zero, here where the words are known."""
        vectors = F.embedding(tokens, self.inputs)
        if not self.training or self.dropout_embedding == 0:
            return vectors
        kept = _mask(self.inputs, (len(self.inputs), 1), self.dropout_embedding)
        return vectors * kept[tokens]

    def read(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Hidden vectors before each input and after the last."""
        return self.read_outputs(inputs, context).dropped

    def read_outputs(self, inputs: Float[Tensor, "rows length size"], context: Context | None = None) -> Outputs:
        """The same, before dropout and after it."""
        if context is None:  # one pass, so that one mask serves the beginning too
            beginning = self.embed(self._beginning(len(inputs)))
            raw, _ = self._run(torch.cat([beginning, inputs], 1), self.empty_memory(len(inputs)))
        else:
            state = self._begun(len(inputs), context)
            raw = torch.cat([self._last(state)[:, None], self._run(inputs, state)[0]], 1)
        return Outputs(raw, self._output(raw))

    def empty_memory(self, rows: int) -> AwdLstmState:
        """Of texts of which nothing has been read: zeros."""
        zeros = self.inputs.new_zeros(rows, sum(self.widths))
        return AwdLstmState(zeros, zeros)

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: AwdLstmState
    ) -> tuple[Float[Tensor, "rows length width"], AwdLstmState]:
        """Hidden vectors after each of the tokens, and the memory after the last, without gradient."""
        outputs, after = self.segment_outputs(tokens, memory)
        return outputs.dropped, after

    def segment_outputs(
        self, tokens: Int[Tensor, "rows length"], memory: AwdLstmState
    ) -> tuple[Outputs, AwdLstmState]:  # fmt: skip
        """The same, before dropout and after it."""
        raw, after = self._run(self.embed(tokens), memory)
        return Outputs(raw, self._output(raw)), AwdLstmState(after.hidden.detach(), after.cell.detach())

    def stepper(self, state: AwdLstmState) -> LstmStepper:
        """The sampling step, fused; of a large vocabulary no table is made."""
        layers = [list(layer._parameters.values()) for layer in self.layers]
        few = len(self.inputs) * 4 * self.widths[0] <= TABLE
        hidden, cell = (part.split_with_sizes(self.widths, 1) for part in state)
        return LstmStepper(self.inputs, cast(list[list[Tensor]], layers), hidden, cell, tabulated=few)

    def _begun(self, rows: int, context: Context | None) -> AwdLstmState:
        """After the beginning and each row's own prefix. A context is read once, however many rows it serves."""
        conditions = 1 if context is None else context.rows
        tokens, lengths = self._beginning(conditions), None
        if context is not None:
            given = context.given
            tokens = torch.cat([tokens, torch.where(given.mask(), given.tokens, self.vocabulary)], 1)
            lengths = given.lengths + 1
        state = self._run(self.embed(tokens), self.empty_memory(conditions), lengths)[1]
        times = rows // max(conditions, 1)
        return AwdLstmState(state.hidden.repeat_interleave(times, 0), state.cell.repeat_interleave(times, 0))

    def _beginning(self, rows: int) -> Int[Tensor, "rows 1"]:
        return torch.full((rows, 1), self.vocabulary, device=self.inputs.device)

    def _last(self, state: AwdLstmState) -> Float[Tensor, "rows width"]:
        return state.hidden[:, -self.width :]

    def _output(self, raw: Float[Tensor, "rows length width"]) -> Float[Tensor, "rows length width"]:
        return locked_dropout(raw, self.dropout_output, self.training)

    def _run(
        self, vectors: Float[Tensor, "rows length size"], state: AwdLstmState,
        lengths: Int[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows length width"], AwdLstmState]:  # fmt: skip
        """The last layer's output before dropout, and the state after each row's last vector."""
        if 0 in vectors.shape[:2]:  # of which torch's LSTM would make an error
            return vectors.new_zeros(*vectors.shape[:2], self.width), state
        hiddens, cells = [], []
        before = zip(
            state.hidden.split_with_sizes(self.widths, 1), state.cell.split_with_sizes(self.widths, 1), strict=True
        )
        for number, (layer, (hidden, cell)) in enumerate(zip(self.layers, before, strict=True)):
            vectors = locked_dropout(vectors, self.dropout_hidden if number else self.dropout_input, self.training)
            of_input, of_memory, *biases = cast(list[Tensor], list(layer._parameters.values()))
            weights = [of_input, F.dropout(of_memory, self.dropout_weight, self.training), *biases]
            vectors, hidden, cell = _layer(vectors, hidden, cell, weights, lengths)
            hiddens.append(hidden)
            cells.append(cell)
        return vectors, AwdLstmState(torch.cat(hiddens, 1), torch.cat(cells, 1))


def locked_dropout(
    vectors: Float[Tensor, "rows length size"], dropout: float, training: bool
) -> Float[Tensor, "rows length size"]:
    """Dropout with one mask for all places of a row, in training mode."""
    if not training or dropout == 0:
        return vectors
    return vectors * _mask(vectors, (vectors.shape[0], 1, vectors.shape[2]), dropout)


def _mask(like: Tensor, shape: tuple[int, ...], dropout: float) -> Tensor:
    """1 / (1 − dropout) with that chance, else 0: what is dropped keeps its mean."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - dropout).div_(1 - dropout)


def _layer(
    vectors: Float[Tensor, "rows length size"], hidden: Float[Tensor, "rows width"], cell: Float[Tensor, "rows width"],
    weights: list[Tensor], lengths: Int[Tensor, " rows"] | None,
) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows width"], Float[Tensor, "rows width"]]:  # fmt: skip
    """One layer as torch computes it, of weights that are no parameters. Each row stops where its own length does."""
    # cuDNN has a gradient in training mode only; without torch's own dropout that is the same function.
    train = torch.is_grad_enabled()
    if lengths is None:
        out, last, after = torch.lstm(vectors, (hidden[None], cell[None]), weights, True, 1, 0.0, train, False, True)
        return out, last[0], after[0]
    packed = pack_padded_sequence(vectors, lengths.cpu(), True, enforce_sorted=False)
    there, back = packed.sorted_indices, packed.unsorted_indices
    assert there is not None and back is not None  # noqa: PT018 — for the type checker
    state = hidden[there][None], cell[there][None]
    data, last, after = torch.lstm(packed.data, packed.batch_sizes, state, weights, True, 1, 0.0, train, False)
    out, _ = pad_packed_sequence(PackedSequence(data, packed.batch_sizes, there, back), True, 0.0, vectors.shape[1])
    return out, last[0][back], after[0][back]
