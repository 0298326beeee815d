"""Laws of distributions over sequences, and of those that can be advanced token by token."""

from typing import Any

import torch
from torch import Generator, Tensor

from ebar.maths.enumeration import all_sequences, has_at_most
from ebar.models.stepwise import teacher_forced, token_log_probs
from ebar.modes import evaluation_mode
from ebar.testing.laws import require, require_close
from ebar.types import Context, Distribution, SamplesWithLogProb, Sequences, Space, Stepwise, context_rows

ENUMERABLE = 20_000  # sequences, up to which their probabilities are added up


@torch.no_grad()
def check_distribution(
    model: Distribution, context: Context | None = None, *, draws: int = 50, tolerance: float | None = None
) -> None:
    """`sample` and `log_prob` agree, and the probabilities of a small space add up to 1.

    So they do in every order: give a context with a row for each. Context-major order, the generator as the only source
    of randomness, and dropout off in training mode are laws too.
    """
    rows = context_rows(context)
    x = model.sample(draws, context, generator=Generator().manual_seed(1))
    require(len(x.lengths) == rows * draws, f"sample({draws}) gives {draws} sequences for each row of the context")
    log_prob = model.log_prob(x, context)
    require(log_prob.shape == (rows * draws,), "log_prob gives one number for each sequence")
    require(log_prob.isfinite().all(), "what is drawn has a finite log-probability")
    require((log_prob <= 1e-4).all(), "no sequence of a discrete space has a probability above 1")
    _check_generator(model, context, x, draws)
    _check_dropout(model, x, context)
    for row in range(rows if context is not None else 0):
        one = torch.tensor([row])
        some = slice(row * draws, (row + 1) * draws)
        alone = model.log_prob(x.select(some), context.select(one))  # type: ignore[union-attr]
        require_close(
            alone, log_prob[some], "draws of row r of the context are n consecutive rows", tolerance=tolerance
        )
    if isinstance(model, SamplesWithLogProb):
        drawn, own = model.sample_with_log_prob(draws, context, generator=Generator().manual_seed(2))
        scored = model.log_prob(drawn, context)
        wide = None if tolerance is None else tolerance * max(1, drawn.tokens.shape[1])
        require_close(own, scored, "sample_with_log_prob and log_prob agree", tolerance=wide)
    coming = None if context is None else context.coming
    if context is not None and coming is not None and bool((coming != coming[0]).any()):
        for row in range(rows):
            _check_total(model, context.select(torch.tensor([row])))
    else:
        _check_total(model, context)


def _check_total(model: Distribution, context: Context | None) -> None:
    """Of contexts in which equally many tokens are to come."""
    space, rows = model.space.after(context), context_rows(context)
    if has_at_most(space, ENUMERABLE):
        every = all_sequences(space)
        whole = Sequences(every.tokens.repeat(rows, 1), every.lengths.repeat(rows))
        total = model.log_prob(whole, context).double().view(rows, -1).exp().sum(1)
        require_close(total, torch.ones_like(total), "probabilities of the whole space add up to 1", tolerance=1e-4)


def _check_generator(model: Distribution, context: Context | None, x: Sequences, draws: int) -> None:
    before = torch.get_rng_state()
    again = model.sample(draws, context, generator=Generator().manual_seed(1))
    require(torch.equal(torch.get_rng_state(), before), "sample leaves torch's own random state alone")
    same = torch.equal(again.lengths, x.lengths) and torch.equal(again.tokens[again.mask()], x.tokens[x.mask()])
    require(same, "the generator alone decides what is drawn")


def _check_dropout(model: Any, x: Sequences, context: Context | None) -> None:
    if not hasattr(model, "train"):
        return
    was = model.training
    try:
        model.train()
        first, second = model.log_prob(x, context), model.log_prob(x, context)
        require(torch.equal(first, second), "log_prob is without dropout in training mode too")
        require(model.training, "log_prob leaves the model in the mode it was in")
    finally:
        model.train(was)


@torch.no_grad()
def check_stepwise(
    model: Stepwise, context: Context | None = None, *, rows: int = 3, tolerance: float | None = None
) -> None:
    """Cached steps equal the parallel pass, states are values that can be selected; and all laws of a distribution."""
    check_distribution(model, context, tolerance=tolerance)
    with evaluation_mode(model):
        count, space = rows * context_rows(context), model.space.after(context)
        tokens = _prefixes(space, count)
        first, state = model.start(count, context)
        require(first.shape == (count, space.vocabulary), "start gives logits over the vocabulary for each row")
        if tokens.shape[1] == 0:
            return
        whole, _ = model.advance(tokens, state)
        padded = torch.cat([tokens, tokens[:, :1]], 1)  # the last token's own logits are asked for, not what follows it
        parallel = teacher_forced(model, padded, context).log_softmax(-1)
        stepped = torch.cat([first[:, None], whole], 1).log_softmax(-1)
        require_close(stepped, parallel, "steps and the parallel pass agree", tolerance=tolerance)
        alone, following = [], state
        for token in tokens.unbind(1):
            logits, following = model.advance(token[:, None], following)
            alone.append(logits[:, 0])
        require_close(torch.stack(alone, 1), whole, "single steps and one segment agree", tolerance=tolerance)
        again, _ = model.advance(tokens, state)
        require_close(again, whole, "a state is a value: advancing from it twice gives the same", tolerance=tolerance)
        chosen = torch.tensor([count - 1, 0, 0])
        picked, _ = model.advance(tokens[chosen], state.select(chosen))
        require_close(picked, whole[chosen], "rows of a state can be reordered and repeated", tolerance=tolerance)
        x = model.sample(rows, context, generator=Generator().manual_seed(3))
        total, wide = token_log_probs(model, x, context).sum(1), None if tolerance is None else tolerance * space.length
        require_close(total, model.log_prob(x, context), "log_prob is the sum over the steps", tolerance=wide)


def _prefixes(space: Space, rows: int) -> Tensor:
    """Tokens of which none is the end, one fewer than there is room for."""
    inner = space.vocabulary - int(space.end is not None)
    tokens = torch.randint(inner, (rows, min(space.length - 1, 8)), generator=Generator().manual_seed(4))
    return tokens if space.end is None else tokens + (tokens >= space.end).long()
