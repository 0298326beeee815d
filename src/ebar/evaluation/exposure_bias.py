"""How often one model finds the true next word likelier than another does, after prefixes of their own making.

Wang et al. 2022, D.2 and Table 8, after Zhang et al. 2019.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.moments import weighted_mean
from ebar.models.drawing import stepper_of
from ebar.models.stepwise import token_log_probs
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.samplers.beam import greedy
from ebar.types import Context, Estimate, Sequences, Stepwise

AT_ONCE = 2048  # words scored together


class ExposureBias(NamedTuple):
    """Shares of the tokens, or words, that are strictly likelier under the first model; the end token is not tested.

    Intervals are over sentences, whose tokens depend on one another. Each model sees, before the token of place t:
    """

    own: Estimate  # the first t − 1 tokens of its own greedy decoding: the table of the document
    gold: Estimate  # the first t − 1 tokens of the reference
    own_tested: int
    gold_tested: int
    left_out: int  # places that the decoding of one model or the other does not reach, tested with gold prefixes only

    def __str__(self) -> str:
        return (
            f"own decoding as prefix: {self.own} of {self.own_tested:,} tokens "
            f"({self.left_out:,} past the end of a decoding left out); gold prefix: {self.gold} of {self.gold_tested:,}"
        )


def exposure_bias(
    model: Stepwise, baseline: Stepwise, x: Sequences, context: Context | None = None, *,
    begins: Bool[Tensor, " vocabulary"] | None = None, batch: int = 256,
) -> ExposureBias:  # fmt: skip
    """Counts over the references x, whose sources are the rows of the context.

    With `begins`, which says of each token whether a word begins with it, words are counted in place of tokens: a
    word's probability is that of its tokens one after another, after the words before it (or as many words of a
    model's own decoding).
    """
    if model.space != baseline.space:
        raise UserError("Models can be compared token by token only where they share their tokens: these do not.")
    if begins is not None:
        return _by_words(model, baseline, x, context, begins, batch)
    wins, tests = [], []
    total = len(x.lengths)
    with bar("decoding", total, "sentences") as progress:
        for rows in torch.split(torch.arange(total, device=x.lengths.device), batch):
            own, some = None if context is None else context.select(rows), x.select(rows)
            inside = some.mask() if model.space.end is None else some.mask() & (some.tokens != model.space.end)
            gold = _gold(model, some, own) > _gold(baseline, some, own)
            mine, in_mine = after_own_prefix(model, some, own)
            theirs, in_theirs = after_own_prefix(baseline, some, own)
            both = inside & in_mine & in_theirs
            wins.append(torch.stack([((mine > theirs) & both).sum(1), (gold & inside).sum(1)]))
            tests.append(torch.stack([both.sum(1), inside.sum(1)]))
            progress.advance(len(rows))
    return _rates(torch.cat(wins, 1).double(), torch.cat(tests, 1).double())


Words = list[list[int]]  # of a sentence: the tokens of each


def _by_words(
    model: Stepwise, baseline: Stepwise, x: Sequences, context: Context | None, begins: Bool[Tensor, " vocabulary"],
    batch: int,
) -> ExposureBias:  # fmt: skip
    wins: tuple[list[int], list[int]] = ([], [])
    tests: tuple[list[int], list[int]] = ([], [])
    end, device = model.space.end, x.lengths.device
    with bar("decoding", len(x.lengths), "sentences") as progress:
        for rows in torch.split(torch.arange(len(x.lengths), device=device), batch):
            own, some = None if context is None else context.select(rows), x.select(rows)
            gold = [words_of(row, begins, end) for row in some.rows()]
            longest = min(model.space.length, 2 * int(some.lengths.max()))
            mine, theirs = (
                [words_of(row, begins, end) for row in greedy(one, own, maximal_length=longest)[0].rows()]
                for one in (model, baseline)
            )
            if context is None:  # one decoding serves all
                mine, theirs = mine * len(gold), theirs * len(gold)
            # A decoding reaches the place after its last word too: there it has its end.
            reached = [min(len(g), len(m) + 1, len(t) + 1) for g, m, t in zip(gold, mine, theirs, strict=True)]
            kinds = (((mine, theirs), reached), ((gold, gold), list(map(len, gold))))
            for kind, (before, counts) in enumerate(kinds):
                scores = [
                    _after(one, prefixes, gold, counts, own, device)
                    for one, prefixes in zip((model, baseline), before, strict=True)
                ]
                wins[kind].extend(int(likelier.sum()) for likelier in torch.split(scores[0] > scores[1], counts))
                tests[kind].extend(counts)
            progress.advance(len(rows))
    return _rates(torch.tensor(wins).double(), torch.tensor(tests).double())


def _rates(won: Float[Tensor, "2 sentences"], tested: Float[Tensor, "2 sentences"]) -> ExposureBias:
    """From the counts of each sentence, after its own decoding and after the reference."""
    own_tested, gold_tested = (int(count) for count in tested.sum(1))
    left_out = gold_tested - own_tested
    return ExposureBias(win_rate(won[0], tested[0]), win_rate(won[1], tested[1]), own_tested, gold_tested, left_out)


def words_of(tokens: list[int], begins: Bool[Tensor, " vocabulary"], end: int | None) -> Words:
    """The tokens of each word, the end left out; the first token begins a word whatever it is."""
    words: Words = []
    for token in tokens:
        if token == end:
            continue
        if not words or bool(begins[token]):
            words.append([])
        words[-1].append(token)
    return words


@torch.no_grad()
def _after(
    model: Stepwise, before: list[Words], gold: list[Words], counts: list[int], context: Context | None,
    device: torch.device,
) -> Float[Tensor, " words"]:  # fmt: skip
    """log p of each of the first `counts` words of the references, after as many words of `before` as precede it."""
    rows, tokens, firsts = [], [], []
    for row, count in enumerate(counts):
        for place in range(count):
            prefix = [token for word in before[row][:place] for token in word]
            tokens.append(torch.tensor([*prefix, *gold[row][place]][: model.space.length], device=device))
            rows.append(row)
            firsts.append(len(prefix))
    if not rows:
        return torch.zeros(0, device=device)
    lengths = torch.tensor([len(one) for one in tokens], device=device)
    x = Sequences(torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True), lengths)
    inside = x.mask() & (torch.arange(x.tokens.shape[1], device=device) >= torch.tensor(firsts, device=device)[:, None])
    found = []
    with evaluation_mode(model):
        for some in torch.split(torch.arange(len(rows), device=device), AT_ONCE):
            own = None if context is None else context.select(torch.tensor(rows, device=device)[some])
            found.append(torch.where(inside[some], token_log_probs(model, x.select(some), own), 0.0).sum(1))
    return torch.cat(found)


def win_rate(won: Float[Tensor, " sentences"], tested: Float[Tensor, " sentences"]) -> Estimate:
    """Σ won / Σ tested with sentences as units."""
    some = tested > 0
    if not bool(some.any()):
        raise UserError("There is no token to test: give references that hold more than an end.")
    won, tested = won[some], tested[some]
    return weighted_mean(tested.log()[None], (won / tested)[None], low=0.0, high=1.0, name="likelier")[0]


@torch.no_grad()
def _gold(model: Stepwise, x: Sequences, context: Context | None) -> Float[Tensor, "batch length"]:
    with evaluation_mode(model):
        return token_log_probs(model, x, context)


@torch.no_grad()
def after_own_prefix(
    model: Stepwise, x: Sequences, context: Context | None = None
) -> tuple[Float[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
    """log p(xₜ | the model's own greedy tokens before t), and which places its decoding reaches (elsewhere 0)."""
    batch, length = x.tokens.shape
    space, inside = model.space.after(context), x.mask()
    with evaluation_mode(model):
        logits, state = model.start(batch, context)
        device = logits.device
        found = torch.zeros(batch, length, dtype=logits.dtype, device=device)
        reached = torch.zeros(batch, length, dtype=torch.bool, device=device)
        stepper = stepper_of(model, state)
        alive = torch.arange(batch, device=device)
        for place in range(min(length, space.length)):
            gold = torch.where(inside[alive, place], x.tokens[alive, place], 0)
            found[alive, place] = torch.log_softmax(logits, 1).gather(1, gold[:, None]).squeeze(1)
            reached[alive, place] = True
            token = logits.argmax(1)
            over = x.lengths[alive] <= place + 1
            if space.end is not None:
                over |= token == space.end
            going_on = (~over).nonzero().squeeze(1)
            if len(going_on) == 0 or place + 1 == space.length:
                break
            if len(going_on) < len(alive):
                alive, token = alive[going_on], token[going_on]
                stepper.keep(going_on)
            logits = stepper.step(token)
    return found, reached
