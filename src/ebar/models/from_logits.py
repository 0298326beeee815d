"""Any network that maps tokens to logits, as a stepwise model."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.automata.reading import Reading
from ebar.models.drawing import Placed
from ebar.models.stepwise import ByChainRule, only_end_in_last_place
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, Space


class FromLogits(ByChainRule):
    """A causal network, tokens [rows, length] → logits [rows, length, vocabulary] of what follows each, as a model.

    It reads `beginning` before the first token, and a context as a prefix after it. It must not look ahead: what stands
    right of a token must not change its logits. Each step reads the whole prefix anew, as the network has no memory
    that we know of.
    """

    free_logits = True
    reading: Reading | None = None  # how its tokens spell text, where it was made for data

    def __init__(self, module: nn.Module, space: Space, *, beginning: int):
        super().__init__()
        self.module, self.space, self.beginning = module, space, beginning

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:  # fmt: skip
        state = self._begin(rows, context)
        last = self._logits(state.inner.tokens).gather(1, self._places(state.inner.lengths - 1, 1))
        return only_end_in_last_place(last, 0, self.space)[:, 0], state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        read = self._appended(state.inner, tokens)
        logits = self._logits(read.tokens).gather(1, self._places(state.inner.lengths, tokens.shape[1]))
        after = Placed(read, state.place + tokens.shape[1])
        return only_end_in_last_place(logits, state.place + 1, self.space), after

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass."""
        before = self._begin(len(tokens), context).inner
        read = self._appended(before, tokens[:, :-1])
        logits = self._logits(read.tokens).gather(1, self._places(before.lengths - 1, tokens.shape[1]))
        return only_end_in_last_place(logits, 0, self.space)

    def _begin(self, rows: int, context: Context | None) -> Placed:
        """All that each row has read, the beginning first."""
        if context is None:
            # Where the network's weights are, if it has any.
            device = next((parameter.device for parameter in self.module.parameters()), None)
            tokens = torch.full((rows, 1), self.beginning, device=device)
            return Placed(Sequences(tokens, torch.ones_like(tokens[:, 0])), 0)
        given = context.given
        # Padding may hold anything, a token outside the vocabulary included.
        tokens = F.pad(torch.where(given.mask(), given.tokens, self.beginning), (1, 0), value=self.beginning)
        return Placed(Sequences(tokens, given.lengths + 1).repeat(rows // context.rows), 0)

    def _appended(self, read: Sequences, tokens: Int[Tensor, "rows length"]) -> Sequences:
        """Each row's tokens at its own end."""
        room = F.pad(read.tokens, (0, tokens.shape[1]), value=self.beginning)
        places = read.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        return Sequences(room.scatter(1, places, tokens), read.lengths + tokens.shape[1])

    def _logits(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length vocabulary"]:
        wanted = (*tokens.shape, self.space.vocabulary)
        what = f"What the network makes of tokens {list(tokens.shape)}, a logit for each token of the vocabulary,"
        return of_shape(self.module(tokens), wanted, what)

    def _places(self, first: Int[Tensor, " rows"], length: int) -> Int[Tensor, "rows length vocabulary"]:
        places = first[:, None] + torch.arange(length, device=first.device)
        return places[:, :, None].expand(-1, -1, self.space.vocabulary)
