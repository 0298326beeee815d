"""What a long text costs a model: read on with its memory, or with windows that are read anew for every few tokens.

And a long text that a model writes itself.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.data.corpus import Corpus
from ebar.evaluation.cross_entropy import StreamCost
from ebar.evaluation.diversity import ngrams
from ebar.evaluation.segments import at_evaluation, cost_by_blocks
from ebar.heads.head import target_log_probs
from ebar.models.construction import Autoregressive
from ebar.models.continued import Carried, Continued, begin, carrying
from ebar.models.rolling import lengthened
from ebar.modes import evaluation_mode
from ebar.types import Context, Sequences

SCORES = 2**24  # of attention, in windows that are read together


def timed(score: Callable[[], StreamCost]) -> dict[str, Any]:
    """Nats per token, and seconds per 1,000 tokens."""
    began = time.perf_counter()
    cost = score()
    return {"nats": cost.per_token, "seconds": 1000 * (time.perf_counter() - began) / cost.tokens}


@torch.no_grad()
def window_cost(
    model: Autoregressive, tokens: Int[Tensor, " tokens"], length: int, stride: int, *, at_once: int | None = None
) -> StreamCost:  # fmt: skip
    """Of each token given the `length` tokens before it, or at least `length` − `stride` + 1: all is read anew.

    `at_once` windows are read together, by default as many as keep memory bounded.
    """
    at_once = at_once or max(1, SCORES // length**2)
    own, backbone = carrying(model)
    costs = []
    with evaluation_mode(own):
        for some in torch.split(tokens.long().unfold(0, length + 1, stride), at_once):
            hidden, _ = backbone.read_segment(some[:, :-1], backbone.empty_memory(len(some)))
            costs.append(-target_log_probs(own.head, hidden[:, -stride:], some[:, -stride:]).flatten())
    return cost_by_blocks(torch.cat(costs))


def compared(
    model: Autoregressive, tokens: Int[Tensor, " tokens"], *, lengths: Sequence[int], scored: int, segment: int,
    clamp: int | None,
) -> dict[str, Any]:  # fmt: skip
    """By attention length, what the last `scored` tokens cost with a memory so long, and with windows read anew.

    What stands before them is read first, and not timed: the memory is full by then.
    """
    found, last = {}, tokens[-scored:]
    for length in lengths:
        longer, without = (at_evaluation(model, memory=places, clamp_length=clamp) for places in (length, 0))
        before = tokens[-scored - 2 * length : -scored]
        _, carried = read_on(longer, before, begin(longer, 1), segment)
        found[str(length)] = {
            "memory": timed(lambda: read_on(longer, last, carried, segment)[0]),  # noqa: B023
            "anew": timed(lambda: window_cost(without, torch.cat([before[-length:], last]), length, 1)),  # noqa: B023
        }
    return found


@torch.no_grad()
def read_on(
    model: Autoregressive, tokens: Int[Tensor, " tokens"], carried: Carried, segment: int
) -> tuple[StreamCost, Carried]:
    """What tokens cost from where a model stands in their text, and where it stands after them."""
    costs = []
    with evaluation_mode(model):
        for some in torch.split(tokens[None].long(), segment, 1):
            hidden, carried = Continued(model, carried).read(some)
            costs.append(-target_log_probs(model.head, hidden, some)[0])
    return cost_by_blocks(torch.cat(costs)), carried


@torch.no_grad()
def written(model: Autoregressive, data: Corpus, *, seed: int, prompt: int, tokens: int, order: int) -> dict[str, Any]:
    """A text that the model writes after the first tokens of the test text, beside what really follows there.

    Of both: nats per token under the model, and the share of n-grams that have stood in the text before.
    """
    assert data.tokeniser is not None
    test: Any = data.parts["test"]
    real = test.tokens[None, : prompt + tokens].long()
    given = Context(Sequences(real[:, :prompt], torch.tensor([prompt])))
    longer: Any = lengthened(model, tokens)
    x, drawn = longer.sample_with_log_prob(1, given, generator=Generator().manual_seed(seed))
    texts = {"written": x, "real": Sequences(real[:, prompt:], torch.tensor([tokens]))}
    return {
        "prompt": data.tokeniser.decode(real[0, :prompt].tolist()),
        "text": data.tokeniser.decode(x.tokens[0].tolist()),
        "drawn": -float(drawn) / tokens,  # as the sampler had it
        "nats": {name: -float(longer.log_prob(own, given)) / tokens for name, own in texts.items()},
        "repeated": {name: repeated_share(own.tokens[0].tolist(), order) for name, own in texts.items()},
    }


def repeated_share(tokens: Sequence[int], order: int) -> float:
    """The share of the n-grams of a text that have stood in it before."""
    found = ngrams(tokens, order)
    return 1 - len(set(found)) / len(found)
