"""A stack of LSTM layers. Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ebar.backbones.backbone import check_layers
from ebar.backbones.lstm_stepper import LstmStepper
from ebar.types import Context


class LstmState(NamedTuple):
    """What the layers remember of each row's prefix."""

    hidden: Float[Tensor, "layers rows width"]
    cell: Float[Tensor, "layers rows width"]

    def select(self, rows: Int[Tensor, " selected"]) -> "LstmState":
        return LstmState(self.hidden[:, rows], self.cell[:, rows])


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

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length size"]:
        """The input vectors, before dropout."""
        return F.embedding(tokens, self.inputs)

    def read(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Hidden vectors before each input and after the last."""
        first, state = self.start(len(inputs), context)
        if inputs.shape[1] == 0:  # of which torch's LSTM would make an error
            return first[:, None]
        hidden = F.dropout(self.lstm(self._dropped(inputs), state)[0], self.dropout, self.training)
        return torch.cat([first[:, None], hidden], 1)

    def _dropped(self, inputs: Float[Tensor, "rows length size"]) -> Float[Tensor, "rows length size"]:
        return F.dropout(inputs, self.dropout, self.training)

    def stepper(self, state: LstmState) -> LstmStepper:
        """The sampling step, fused."""
        return LstmStepper(self.inputs, self.lstm, state.hidden, state.cell, compiled=self.compiled)
