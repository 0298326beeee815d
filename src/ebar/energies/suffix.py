"""What must come after x: P(x|C) = q(x, suffix | C), so that Z(C) is the probability of the suffix in its place."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.types import Context, Energy, Sequences, State, Stepwise, context_rows, draws_per_context

ELEMENTS = 2**24  # logits computed at a time


class Suffix(nn.Module):
    """E(x, C) = −log q(suffix | C, x), to which the energies `beside` it are added.

    The tilted model p(x|C) ∝ q(x|C)·q(suffix|C, x) is q's own law of what stands between prompt and suffix. The suffix
    is given in tokens: spelt with other tokens it is another. x has a fixed number of tokens: after an end nothing
    can come.
    """

    def __init__(self, model: Stepwise, suffix: list[int], *beside: Energy):
        super().__init__()
        if model.space.end is not None:
            raise UserError("A suffix comes after texts of a fixed number of tokens: let them have no end.")
        if not suffix:
            raise UserError("A suffix has one token or more: leave it out where nothing must follow.")
        self.model, self.beside = model, beside
        self.tokens: Tensor
        self.register_buffer("tokens", torch.tensor(suffix))

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        batch, count = len(x.lengths), len(self.tokens)
        draws = draws_per_context(batch, context)
        first, state = self.model.start(context_rows(context), context)  # each context is read once
        length = int(x.lengths.max()) if batch else 0
        if bool((x.lengths != length).any()):
            raise ValueError("a suffix comes after texts of one length")
        whole = torch.cat([x.tokens[:, :length], self.tokens.to(x.tokens).expand(batch, -1)], 1)  # no padding between
        size = max(1, ELEMENTS // (whole.shape[1] * self.model.space.vocabulary))
        parts = [
            self._log_prob(whole[rows], first[rows // draws], state.select(rows // draws), count)
            for rows in torch.split(torch.arange(batch, device=first.device), size)
        ]
        energy = -torch.cat(parts) if parts else first.new_zeros(0)
        for other in self.beside:
            energy = energy + other(x, context)
        return energy

    def _log_prob(
        self, whole: Int[Tensor, "rows length"], first: Float[Tensor, "rows vocabulary"], state: State, count: int
    ) -> Float[Tensor, " rows"]:
        logits = first[:, None]
        if whole.shape[1] > 1:
            logits = torch.cat([logits, self.model.advance(whole[:, :-1], state)[0]], 1)
        log_probs = torch.log_softmax(logits[:, -count:].double(), -1)
        return log_probs.gather(2, whole[:, -count:, None]).sum((1, 2))
