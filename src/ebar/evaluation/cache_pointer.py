"""A neural cache: a word seen not long ago, where the model stood much as now, is likelier. Grave et al. 2017.

Improving Neural Language Models with a Continuous Cache (arXiv:1612.04426). With hₜ the hidden vector that predicts
token xₜ, and i over the last `window` places before t,

    p(w) = (1 − λ)·p_model(w) + λ·p_cache(w),     p_cache(w) = Σᵢ 1[xᵢ = w]·exp(θ·hₜ·hᵢ) / Σᵢ exp(θ·hₜ·hᵢ)

Nothing is learnt; θ, λ and the window are chosen on validation data.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.bounds import Amount, Count, Share, check
from ebar.errors import UserError
from ebar.estimators.moments import weighted_mean
from ebar.evaluation.cross_entropy import StreamCost, cost_of_windows
from ebar.heads.head import target_log_probs
from ebar.models.construction import Autoregressive
from ebar.models.continued import carries_memory
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Estimate

SCORES = 2**24  # of tokens with what is cached, computed at a time: 128 megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePointer:
    """How the cache is mixed in; the defaults are those of Merity et al. 2018 for WikiText-2.

    Their code begins to use the cache once it is full, which is `unused=3786`, one more than the window (here
    from the second token on, as in the paper): on a text not much longer than the window that matters.
    """

    window: Count = 3785
    """Tokens that are remembered. Penn Treebank: 500."""
    theta: Amount = 0.6625
    """Flatness of the cache: near 0 all tokens of the window count alike. Penn Treebank: 1."""
    weight: Share = 0.1279
    """λ, the share of the cache. Penn Treebank: 0.1."""
    unused: Count = 1
    """First tokens of a text, which the model predicts alone; at the very first the cache is empty in any case."""

    def __post_init__(self) -> None:
        check(self)


class CachedCost(NamedTuple):
    """What a text costs a model by itself and with the cache, the same tokens read in the same pass."""

    alone: StreamCost
    cached: StreamCost
    difference: Estimate  # nats per token, with the cache less without; the interval is over segments, paired


@torch.no_grad()
def cache_pointer_cost(
    model: Autoregressive,
    stream: Int[Tensor, " tokens"],
    pointer: CachePointer = CachePointer(),  # noqa: B008 — immutable
    *,
    segment: int = 256,
) -> CachedCost:
    """−log p of each token of one long text given all before it, with and without the cache, in evaluation mode.

    The text is read in segments, which change memory, not the numbers: the backbone carries its memory over, and of
    the cache no more than the window and a segment are held.
    """
    if not carries_memory(model):
        raise UserError(f"{type(model.backbone).__name__} carries no memory along a text: choose awd_lstm.")
    if model.space.end is not None:
        raise UserError("A stream is scored by a model of windows, whose sequences have one length and no end.")
    if len(stream) < 1 or segment < 1:
        raise UserError("A text has at least one token, and so has a segment of it.")
    backbone: Any = model.backbone
    device = next(model.parameters()).device
    stream = stream.to(device)
    memory = backbone.empty_memory(1)
    vectors, words = torch.zeros(0, model.backbone.width, device=device), stream[:0]
    alone, cached, sizes = [], [], []
    rows = max(1, SCORES // (pointer.window + segment))
    with evaluation_mode(model), bar("scoring", len(stream), "tokens") as progress:
        for first in range(0, len(stream), segment):
            targets = stream[first : first + segment]
            before = stream[first - 1 : first] if first else stream.new_full((1,), model.space.vocabulary)
            hidden, memory = backbone.read_segment(torch.cat([before, targets[:-1]])[None], memory)
            own = target_log_probs(model.head, hidden, targets[None])[0].double()
            vectors, words = torch.cat([vectors.to(hidden), hidden[0]]), torch.cat([words, targets])
            places = torch.arange(len(words) - len(targets), len(words), device=device)
            mixed = torch.cat(
                [_mixed(vectors, words, some, own[some - places[0]], pointer) for some in torch.split(places, rows)]
            )
            early = torch.arange(first, first + len(targets), device=device) < pointer.unused
            mixed = torch.where(early, own, mixed)
            vectors, words = vectors[-pointer.window :], words[-pointer.window :]
            alone.append(-own.sum().cpu())
            cached.append(-mixed.sum().cpu())
            sizes.append(len(targets))
            progress.advance(len(targets))
    scored = torch.tensor(sizes)
    plain, helped = torch.stack(alone), torch.stack(cached)
    per_token = ((helped - plain) / scored)[None]
    difference = weighted_mean(scored.double().log()[None], per_token, name="difference")[0]
    return CachedCost(cost_of_windows(plain, scored), cost_of_windows(helped, scored), difference)


def _mixed(
    vectors: Float[Tensor, "held width"],
    words: Int[Tensor, " held"],
    places: Int[Tensor, " places"],
    own: Float[Tensor, " places"],
    pointer: CachePointer,
) -> Float[Tensor, " places"]:
    """log p of the words in some places, given the model's own and those of the window before each place."""
    back = places[:, None] - torch.arange(len(words), device=words.device)
    within = (back >= 1) & (back <= pointer.window)
    scores = (pointer.theta * (vectors[places] @ vectors.T)).double().masked_fill(~within, -math.inf)
    same = scores.masked_fill(words != words[places, None], -math.inf)
    # With nothing in the window both are −inf: their difference is no number, and the model is alone.
    found = torch.logsumexp(same, 1) - torch.logsumexp(scores, 1)
    shares = [math.log1p(-pointer.weight) if pointer.weight < 1 else -math.inf]
    shares.append(math.log(pointer.weight) if pointer.weight > 0 else -math.inf)
    return torch.where(within.any(1), torch.logaddexp(shares[0] + own, shares[1] + found), own)
