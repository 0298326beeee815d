"""What a long text costs a model: read on with its memory, or with windows that are read anew for every few tokens."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.backbones.transformer_xl import TransformerXl
from ebar.data.corpus import Corpus
from ebar.evaluation.diversity import ngrams
from ebar.heads.head import target_log_probs
from ebar.models.construction import Autoregressive
from ebar.models.continued import Continued, begin, carrying, segment_log_probs
from ebar.modes import evaluation_mode

LOGITS = 2**24  # of windows that are scored together


class Costs(NamedTuple):
    """−log p of tokens, in nats."""

    nats: Float[Tensor, " tokens"]

    @property
    def mean(self) -> float:
        return float(self.nats.double().mean())


def timed(score: Callable[[], Costs]) -> dict[str, float]:
    """Nats per token, and seconds per 1,000 tokens."""
    began = time.perf_counter()
    costs = score()
    return {"nats": costs.mean, "seconds": 1000 * (time.perf_counter() - began) / len(costs.nats)}


def segment_costs(model: Autoregressive, columns: Int[Tensor, "columns length"], segment: int) -> Costs:
    """Of each token given what the model carries of its column; the first of a column is not scored, as published."""
    parts = torch.cat([-part for part in segment_log_probs(model, columns.long(), segment=segment)], 1)
    return Costs(parts[:, 1:].flatten())


@torch.no_grad()
def window_costs(model: Autoregressive, tokens: Int[Tensor, " tokens"], length: int, stride: int) -> Costs:
    """Of each token given the `length` tokens before it, or at least `length` − `stride` + 1: all is read anew."""
    own, backbone = carrying(model)
    costs = []
    with evaluation_mode(own):
        for some in torch.split(tokens.long().unfold(0, length + 1, stride), max(1, LOGITS // length**2)):
            hidden, _ = backbone.read_segment(some[:, :-1], backbone.empty_memory(len(some)))
            costs.append(-target_log_probs(own.head, hidden[:, -stride:], some[:, -stride:]).flatten())
    return Costs(torch.cat(costs))


def remembering(model: Autoregressive, places: int, *, clamp: int | None) -> Autoregressive:
    """The same model with another memory, its distances counted up to `clamp`."""
    backbone = model.backbone
    assert isinstance(backbone, TransformerXl)
    return Autoregressive(backbone.with_memory(places, clamp_length=clamp), model.head, model.space).eval()


def compared(
    model: Autoregressive, tokens: Int[Tensor, " tokens"], *, lengths: Sequence[int], scored: int, segment: int,
    clamp: int | None,
) -> dict[str, Any]:  # fmt: skip
    """By attention length, what the last `scored` tokens cost with a memory so long, and with windows read anew.

    The text before them is read first, and not timed: memory is full by then.
    """
    found = {}
    for length in lengths:
        longer, nothing = (remembering(model, places, clamp=clamp) for places in (length, 0))
        begin_at = len(tokens) - scored
        with evaluation_mode(longer):
            before = Continued(longer, begin(longer, 1))
            _, carried = before.read(tokens[None, max(0, begin_at - 2 * length) : begin_at].long())
            with_memory = timed(lambda: _read_on(longer, tokens[None, begin_at:].long(), carried, segment))  # noqa: B023
        anew = timed(lambda: window_costs(nothing, tokens[begin_at - length :], length, 1))  # noqa: B023
        found[str(length)] = {"memory": with_memory, "anew": anew}
    return found


@torch.no_grad()
def _read_on(model: Autoregressive, tokens: Int[Tensor, "1 tokens"], carried: Any, segment: int) -> Costs:
    costs = []
    for some in torch.split(tokens, segment, 1):
        hidden, carried = Continued(model, carried).read(some)
        costs.append(-target_log_probs(model.head, hidden, some)[0])
    return Costs(torch.cat(costs))


def written(model: Autoregressive, data: Corpus, *, seed: int, prompt: int, tokens: int, order: int) -> dict[str, Any]:
    """A text that the model writes after the first tokens of the test text, beside what really follows there.

    Of both: nats per token under the model, and the share of n-grams that have stood in the text before.
    """
    assert data.tokeniser is not None
    text = data.parts["test"].columns(1)[:, : prompt + tokens].long()  # type: ignore[union-attr]
    with evaluation_mode(model), torch.no_grad():
        _, carried = Continued(model, begin(model, 1)).read(text[:, :prompt])
    after = Continued(model, carried, length=tokens)
    x, log_prob = after.sample_with_log_prob(1, generator=Generator().manual_seed(seed))
    texts = {"written": x.tokens[0].tolist(), "real": text[0, prompt:].tolist()}
    scored = {
        name: _read_on(model, torch.tensor([own]), carried, model.space.length).mean for name, own in texts.items()
    }
    return {
        "prompt": data.tokeniser.decode(text[0, :prompt].tolist()),
        "text": data.tokeniser.decode(texts["written"]),
        "drawn": -float(log_prob) / tokens,  # as the sampler has it
        "nats": scored,
        "repeated": {name: repeated_share(own, order) for name, own in texts.items()},
    }


def repeated_share(tokens: Sequence[int], order: int) -> float:
    """The share of the n-grams of a text that have stood in it before."""
    found = ngrams(tokens, order)
    return 1 - len(set(found)) / len(found)
