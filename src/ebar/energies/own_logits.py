"""The energy a model carries in its own logits. Wang et al. 2022 (E-ARM)."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.types import Context, Sequences, State, Stepwise, context_rows, draws_per_context

Reading = Literal["lse", "last_logit"]
ELEMENTS = 2**24  # logits computed at a time where there is no gradient


class OwnLogits(nn.Module):
    """E(x, C) of a sequence of length k, read off the logits that predict its last token (the end, where there is one).

    - `lse`: −LSE(x₍<k₎). Since q(x₍<k₎)·exp(logit of xₖ) = q(x)·exp(LSE(x₍<k₎)), the model tilted by it is p_θ of
      equation 5 at that length. Over sequences of several lengths it is q·exp(LSE)/Z with one Z for all of them, where
      Wang et al. have a Z for each length: given the length, both are the same.
    - `last_logit`: −logit of xₖ, the wording of the paper (§4.3); the tilted model is q·exp(logit), which counts the
      last step twice.

    Needs logits whose shift is free: of log-probabilities LSE is 0, and so would be the energy.
    """

    def __init__(self, model: Stepwise, reading: Reading = "lse"):
        super().__init__()
        if not model.free_logits:
            raise UserError(
                "This model's head gives log-probabilities, whose log-sum-exp is 0 whatever the sequence: "
                "an energy in its own logits needs a plain softmax head, neither a mixture nor a truncation."
            )
        if reading not in ("lse", "last_logit"):
            raise ValueError(f"the energy is read off as lse or last_logit, not {reading}")
        self.model, self.reading = model, reading

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        batch, width = x.tokens.shape
        draws = draws_per_context(batch, context)
        first, state = self.model.start(context_rows(context), context)  # each context is read once
        if batch == 0:
            return first.new_zeros(0)
        every = torch.arange(batch, device=first.device)
        size = max(1, batch if torch.is_grad_enabled() else ELEMENTS // (max(width, 1) * self.model.space.vocabulary))
        parts = []
        for rows in torch.split(every, size):
            condition = rows // draws
            parts.append(self._last(x.select(rows), first[condition], state.select(condition)))
        return -torch.cat(parts)

    def _last(self, x: Sequences, first: Float[Tensor, "rows vocabulary"], state: State) -> Float[Tensor, " rows"]:
        last: Int[Tensor, " rows"] = (x.lengths - 1).clamp(min=0)
        width = int(x.lengths.max())
        tokens = torch.where(x.mask(), x.tokens, 0)[:, :width]
        logits = first[:, None]
        if width > 1:
            logits = torch.cat([logits, self.model.advance(tokens[:, :-1], state)[0]], 1)
        logits = logits[torch.arange(len(last), device=last.device), last]
        if self.reading == "lse":
            return logits.logsumexp(1)
        return logits.gather(1, tokens.gather(1, last[:, None])).squeeze(1)
