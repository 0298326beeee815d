"""`ebar decode`: translate or continue lines with a trained model."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from ebar.bounds import Count, Natural
from ebar.cli.show import show_json
from ebar.cli.trained import Trained, load_trained, truncated
from ebar.config.drawing import OfRun, Truncation
from ebar.config.reader import Manual, option, read
from ebar.data.corpora import lines
from ebar.data.corpus import Corpus
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.estimators.models import device_of
from ebar.models.stepwise import token_log_probs
from ebar.progress import shown
from ebar.samplers.beam import alike, by_source, decode, restored
from ebar.samplers.energy_resampling import energy_resampling
from ebar.types import Context, Sequences, Space, Stepwise

AT_ONCE = 4096  # lines that are read, decoded and written together
BATCH = 128  # of them in one pass of the model


MANUAL = Manual(
    command="decode",
    purpose="Translate lines, or continue them: by beam search, greedily, by sampling, or by resampling candidates "
    "with the model's own energy. Without an input: the test sentences of a translation run, or the empty "
    "beginning. With --best above 1 each line begins with the number of its source and its log-probability, "
    "and tabs.",
    example="ebar decode runs/de-en --input german.txt > english.txt\n"
    "  echo 'Guten Morgen.' | ebar decode runs/de-en --input - --best 3\n"
    "  ebar decode runs/de-en --input german.txt --method energy --candidates 10 --weights lse\n"
    "  ebar decode runs/text --input beginnings.txt --method sample --top_p 0.9 --maximal_length 40",
)


@dataclass(frozen=True, kw_only=True)
class DecodeConfig(Truncation, OfRun):
    """How to decode, and what."""

    input: str | None = option(metavar="FILE")
    """A line each; - reads the pipe."""
    method: Literal["beam", "greedy", "sample", "energy"] = "beam"
    """How to decode."""
    best: Count = 1
    """Lines for each: the best of a beam, or draws."""
    width: Count = 5
    """Of the beam."""
    length_penalty: float = option(1.0, metavar="A")
    """Score is log p / length^A."""
    enough: Count | None = None
    """Leave a beam once so many of its sequences have ended; by default when nothing better can come."""
    candidates: Count = 10
    """For each line, of energy resampling."""
    weights: Literal["lse", "last_logit"] = "lse"
    """The energy: see the guide."""
    distinct: bool = False
    """Candidates are those of a beam, not draws."""
    seed: Natural = 0
    """Of the draws."""


def main(words: Sequence[str]) -> int:
    """Print one line for each line of the input, or several with their number and score."""
    arguments = read(words, MANUAL, DecodeConfig)
    _check(arguments)
    trained = load_trained(arguments.run)
    if trained.corpus.tokeniser is None:
        raise UserError("This run's model makes images, not lines: draw them with `ebar sample`.")
    generator = Generator(device=device_of(trained.model)).manual_seed(arguments.seed)
    found: list[dict[str, object]] = []
    warnings: dict[str, None] = {}
    number = 0
    with shown(not arguments.json), torch.no_grad():
        for sources, context in _inputs(arguments.input, trained):
            made = _decoded(trained, context, arguments, generator)
            if made.warning is not None:
                warnings[made.warning] = None
            found += _write(made, sources, trained.corpus, arguments, number)
            number += len(sources)
    if arguments.json:
        show_json({"method": arguments.method, "lines": found, "warnings": list(warnings)})
    for warning in warnings:
        sys.stderr.write(f"⚠ {warning}\n")
    return 0


class Made(NamedTuple):
    """What was decoded: `best` sequences for each source."""

    x: Sequences
    log_probs: Tensor
    scores: Tensor | None = None  # of a beam
    warning: str | None = None


def _check(arguments: DecodeConfig) -> None:
    draws = arguments.method in ("sample", "energy")
    truncates = (arguments.temperature, arguments.top_k, arguments.top_p) != (1.0, None, None)
    if truncates and not draws:
        raise UserError("Temperature, top_k and top_p are for draws: choose --method sample or energy.")
    if truncates and arguments.distinct:
        raise UserError("Distinct candidates come from a beam, which has no temperature, top_k or top_p.")
    if arguments.method == "greedy" and arguments.best > 1:
        raise UserError("Greedy search finds one sequence: choose --method beam for several.")
    if arguments.method == "beam" and arguments.best > arguments.width:
        raise UserError(f"A beam of width {arguments.width} has no {arguments.best} best: make --width larger.")


def _inputs(name: str | None, trained: Trained) -> Iterator[tuple[list[str], Context | None]]:
    """Sources or beginnings, as text and as a context, some thousand at a time."""
    corpus = trained.corpus
    device = device_of(trained.model)
    if name is None:
        context = corpus.sources("test")
        if context is None:
            yield [""], None
            return
        for rows in torch.split(torch.arange(context.rows), AT_ONCE):
            own = context.select(rows)
            given = Sequences(own.given.tokens.to(device), own.given.lengths.to(device))
            yield _source_texts(corpus, own.given), Context(given)
        return
    numbered = enumerate((line.rstrip("\r\n") for line in sys.stdin), 1) if name == "-" else lines(Path(name))
    where = "the input" if name == "-" else name
    while together := _next(numbered, where):
        encoded = [_tokens(corpus, text, f"{where}, line {number}") for number, text in together]
        yield [text for _, text in together], _context(encoded, device)


def _next(numbered: Iterator[tuple[int, str]], where: str) -> list[tuple[int, str]]:
    try:
        return list(islice(numbered, AT_ONCE))
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text: {error}.") from None


def _tokens(corpus: Corpus, text: str, where: str) -> list[int]:
    """A source with its end, or a beginning, which has none."""
    translates = corpus.source_tokeniser is not None
    tokeniser: Tokeniser | None = corpus.source_tokeniser if translates else corpus.tokeniser
    assert tokeniser is not None
    try:
        tokens = tokeniser.encode(text)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return [*tokens, tokeniser.size] if translates else tokens


def _context(encoded: list[list[int]], device: torch.device) -> Context:
    lengths = torch.tensor([len(tokens) for tokens in encoded])
    x = Sequences(torch.zeros(len(encoded), int(lengths.max()), dtype=torch.long), lengths)
    x.tokens[x.mask()] = torch.tensor([token for tokens in encoded for token in tokens], dtype=torch.long)
    return Context(Sequences(x.tokens.to(device), lengths.to(device)))


def _source_texts(corpus: Corpus, given: Sequences) -> list[str]:
    tokeniser = corpus.source_tokeniser
    assert tokeniser is not None
    return [tokeniser.decode([t for t in given.prefix(row) if t < tokeniser.size]) for row in range(len(given.lengths))]


def limit(corpus: Corpus, context: Context | None, wanted: int | None) -> int | Tensor | None:
    """How long each may become: what is asked for; else about as long as its source, or what a window leaves."""
    if wanted is not None or context is None:
        return wanted
    if corpus.source_tokeniser is not None:
        return by_source(context)
    return (corpus.space.length - context.given.lengths).clamp(min=1)


def _decoded(trained: Trained, context: Context | None, arguments: DecodeConfig, generator: Generator) -> Made:
    model, best = trained.model, arguments.best
    longest = limit(trained.corpus, context, arguments.maximal_length)
    if arguments.method in ("beam", "greedy"):
        width = 1 if arguments.method == "greedy" else arguments.width
        beams = decode(
            model, context, width=width, length_penalty=arguments.length_penalty, best=best, maximal_length=longest,
            enough=arguments.enough, batch=BATCH,
        )  # fmt: skip
        return Made(beams.x, beams.log_probs, beams.scores)
    base = truncated(model, arguments)
    warning = None
    if arguments.method == "sample":
        x = _sampled(base, best, context, generator)
    else:
        drawn = energy_resampling(
            model, context, n=best, candidates=arguments.candidates, weights=arguments.weights,
            proposal=None if base is model else base, distinct=arguments.distinct, batch=BATCH, generator=generator,
        )  # fmt: skip
        x, warning = drawn.x, drawn.warning
    x = _cut(x, longest, model.space, best)
    return Made(x, _log_probs(model, x, context, best), None, warning)


def _sampled(model: Stepwise, n: int, context: Context | None, generator: Generator) -> Sequences:
    parts, order = [], []
    for rows, own in alike(context, BATCH):
        parts.append(model.sample(n, own, generator=generator))
        order.append(rows)
    return restored(Sequences.join(parts), torch.cat(order).argsort(), n)


def _log_probs(model: Stepwise, x: Sequences, context: Context | None, n: int) -> Tensor:
    parts, order = [], []
    each = torch.arange(n, device=x.lengths.device)
    for rows, own in alike(context, BATCH):
        some = x.select((rows.to(each.device)[:, None] * n + each).flatten())
        some = Sequences(some.tokens[:, : int(some.lengths.max())], some.lengths)
        parts.append(token_log_probs(model, some, own).sum(1).view(-1, n))
        order.append(rows)
    return torch.cat(parts)[torch.cat(order).argsort().to(each.device)]


def _cut(x: Sequences, longest: int | Tensor | None, space: Space, n: int) -> Sequences:
    """Draws without an end are as long as a window; what the beginning leaves no room for is not shown."""
    if space.end is not None or longest is None:
        return x
    most = longest.repeat_interleave(n) if isinstance(longest, Tensor) else torch.full_like(x.lengths, longest)
    return Sequences(x.tokens, torch.minimum(x.lengths, most.to(x.lengths)))


def _write(
    made: Made, sources: list[str], corpus: Corpus, arguments: DecodeConfig, before: int
) -> list[dict[str, object]]:
    texts = corpus.text(made.x)
    rows, best = made.log_probs.shape
    found: list[dict[str, object]] = []
    for row in range(rows):
        outputs = []
        for place in range(best):
            text, log_prob = texts[row * best + place], float(made.log_probs[row, place])
            if int(made.x.lengths[row * best + place]) == 0:
                continue  # the space holds no more
            score = {} if made.scores is None else {"score": float(made.scores[row, place])}
            outputs.append({"text": text, "log_prob": log_prob, **score})
            if not arguments.json:
                start = f"{before + row + 1}\t{log_prob:.6f}\t" if best > 1 else ""
                # One line each, whatever the text holds.
                sys.stdout.write(start + text.replace("\n", "\\n") + "\n")
        found.append({"source": sources[row], "outputs": outputs})
    return found if arguments.json else []
