"""Translations of lines, or continuations: by beam search, greedily, by sampling, by energy resampling; and images."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from ebar.bounds import Count
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.maths.randomness import default_generator
from ebar.models.stepwise import token_log_probs
from ebar.models.truncated import Truncation
from ebar.modes import in_evaluation_mode
from ebar.samplers.beam import Limit, alike, by_source, restored
from ebar.samplers.beam import decode_contexts as search
from ebar.samplers.joint import energy_resampling
from ebar.training.batches import to_device
from ebar.types import Context, Sequences, Space, Stepwise

AT_ONCE = 4096  # lines that are read and decoded together
BATCH = 128  # of them in one pass of the model


@dataclass(frozen=True, kw_only=True)
class Decoding(Truncation):
    """How lines are decoded."""

    method: Literal["beam", "greedy", "sample", "energy"] = "beam"
    """How to decode."""
    best: Count = 1
    """Lines for each: the best of a beam, or draws."""
    width: Count = 5
    """Of the beam."""
    length_penalty: float = 1.0
    """A: the score is log p / length^A."""
    enough: Count | None = None
    """Leave a beam once so many of its sequences have ended; by default when nothing better can come."""
    candidates: Count = 10
    """For each line, of energy resampling."""
    weights: Literal["lse", "last_logit"] = "lse"
    """The energy: see the guide."""
    distinct: bool = False
    """Candidates are those of a beam, not draws."""
    maximal_length: Count | None = None
    """In tokens, the end included."""

    def __post_init__(self) -> None:
        if self.truncates and self.method in ("beam", "greedy"):
            raise UserError("Temperature, top_k and top_p are for draws: choose --method sample or energy.")
        if self.truncates and self.distinct:
            raise UserError("Distinct candidates come from a beam, which has no temperature, top_k or top_p.")
        if self.method == "greedy" and self.best > 1:
            raise UserError("Greedy search finds one sequence: choose --method beam for several.")
        if self.method == "beam" and self.best > self.width:
            raise UserError(f"A beam of width {self.width} has no {self.best} best: make --width larger.")


class Output(NamedTuple):
    """A decoded line."""

    text: str
    log_prob: float
    score: float | None  # of a beam


class Decoded(NamedTuple):
    """What was decoded of one line."""

    source: str
    outputs: list[Output]  # fewer than `best` where the space holds no more
    warning: str | None


def decode(
    model: Stepwise,
    data: Corpus,
    lines: Iterable[str] | None = None,
    how: Decoding = Decoding(),  # noqa: B008 — immutable
    *,
    where: str = "the input",
    generator: Generator | None = None,
) -> Iterator[Decoded]:
    """Translates or continues each line; by default the test sentences, or the empty beginning.

    Lines are read and decoded some thousand at a time. One that cannot be read is an error that names it (`where`).
    """
    if data.tokeniser is None:
        raise UserError("This run's model makes images, not lines: draw them with `ebar sample`.")
    device = str(device_of(model))
    generator = default_generator(device) if generator is None else generator
    for sources, context in _contexts(data, lines, where):
        x, log_probs, scores, warning = _decoded(model, data, to_device(context, device), how, generator)
        texts = iter(zip(data.text(x), x.lengths.tolist(), strict=True))
        for row, source in enumerate(sources):
            outputs = []
            for place, (text, length) in enumerate(islice(texts, how.best)):
                score = None if scores is None else float(scores[row, place])
                if length:
                    outputs.append(Output(text, float(log_probs[row, place]), score))
            yield Decoded(source, outputs, warning)


def _contexts(data: Corpus, lines: Iterable[str] | None, where: str) -> Iterator[tuple[list[str], Context | None]]:
    """Sources or beginnings, as text and as a context."""
    if lines is None:
        context, tokeniser = data.sources("test"), data.source_tokeniser
        if context is None or tokeniser is None:
            yield [""], None
            return
        for rows in torch.split(torch.arange(context.rows), AT_ONCE):
            own = context.select(rows)
            tokens = [[token for token in own.given.prefix(row) if token < tokeniser.size] for row in range(len(rows))]
            yield [tokeniser.decode(row) for row in tokens], own
        return
    numbered = enumerate(lines, 1)
    while together := list(islice(numbered, AT_ONCE)):
        encoded = [_tokens(data, text, f"{where}, line {number}") for number, text in together]
        lengths = torch.tensor([len(tokens) for tokens in encoded])
        x = Sequences(torch.zeros(len(encoded), int(lengths.max()), dtype=torch.long), lengths)
        x.tokens[x.mask()] = torch.tensor([token for tokens in encoded for token in tokens], dtype=torch.long)
        yield [text for _, text in together], Context(x)


def _tokens(data: Corpus, text: str, where: str) -> list[int]:
    """A source with its end, or a beginning, which has none."""
    tokeniser = data.source_tokeniser or data.tokeniser
    assert tokeniser is not None
    try:
        tokens = tokeniser.encode(text)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return tokens if data.source_tokeniser is None else [*tokens, tokeniser.size]


def _limit(data: Corpus, context: Context | None, wanted: int | None) -> Limit:
    """How long each may become: what is asked for; else about as long as its source, or what a window leaves."""
    if wanted is not None or context is None:
        return wanted
    if data.source_tokeniser is not None:
        return by_source(context)
    return (data.space.length - context.given.lengths).clamp(min=1)


@torch.no_grad()
@in_evaluation_mode
def _decoded(
    model: Stepwise, data: Corpus, context: Context | None, how: Decoding, generator: Generator
) -> tuple[Sequences, Tensor, Tensor | None, str | None]:
    """`best` sequences for each row, their log-probabilities, a beam's scores, and a warning."""
    longest = _limit(data, context, how.maximal_length)
    if how.method in ("beam", "greedy"):
        beams = search(
            model, context, width=1 if how.method == "greedy" else how.width, length_penalty=how.length_penalty,
            best=how.best, maximal_length=longest, enough=how.enough, batch=BATCH,
        )  # fmt: skip
        return beams.x, beams.log_probs, beams.scores, None
    base, warning = how.of(model, length=how.maximal_length), None
    if how.method == "sample":
        parts, order = [], []
        for rows, own in alike(context, BATCH):
            parts.append(base.sample(how.best, own, generator=generator))
            order.append(rows)
        x = restored(Sequences.join(parts), torch.cat(order).argsort(), how.best)
    else:
        drawn = energy_resampling(
            model, context, n=how.best, candidates=how.candidates, weights=how.weights,
            proposal=None if base is model else base, distinct=how.distinct, batch=BATCH, generator=generator,
        )  # fmt: skip
        x, warning = drawn.x, drawn.warning
    x = _cut(x, longest, model.space, how.best)
    return x, _log_probs(model, x, context, how.best), None, warning


def _log_probs(model: Stepwise, x: Sequences, context: Context | None, n: int) -> Tensor:
    parts, order = [], []
    for rows, own in alike(context, BATCH):
        parts.append(token_log_probs(model, restored(x, rows, n).trimmed(), own).sum(1).view(-1, n))
        order.append(rows)
    return torch.cat(parts)[torch.cat(order).argsort().to(x.lengths.device)]


def _cut(x: Sequences, longest: Limit, space: Space, n: int) -> Sequences:
    """Draws without an end are as long as a window; what the beginning leaves no room for is not shown."""
    if space.end is not None or longest is None:
        return x
    most = longest.repeat_interleave(n) if isinstance(longest, Tensor) else torch.full_like(x.lengths, longest)
    return Sequences(x.tokens, torch.minimum(x.lengths, most.to(x.lengths)))


def complete_images(
    model: Stepwise, originals: Sequences, given: int, *, n: int = 1, generator: Generator
) -> Sequences:  # fmt: skip
    """Whole images that begin with the `given` first tokens of the originals: n consecutive rows for each."""
    start = originals.tokens[:, :given].to(device_of(model))
    drawn = model.sample(n, Context(Sequences(start, torch.full_like(start[:, 0], given))), generator=generator)
    whole = torch.cat([start.repeat_interleave(n, 0), drawn.tokens], 1).cpu()
    return Sequences(whole, torch.full_like(whole[:, 0], whole.shape[1]))
