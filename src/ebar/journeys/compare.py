"""Two trained models on the same test items, paired: what each item costs one, minus what it costs the other.

Where both read the same tokens, the cost is in nats per token, of images in bits per dimension. Where their tokenisers
differ it is in bits per byte of the same texts: a token of one is not a token of the other, a byte is. A text that is
read from end to end is cut into blocks, at places where tokens of both end.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.tokenisers import Spells
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.estimators.moments import weighted_mean
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.evaluation.segments import in_columns
from ebar.journeys.evaluate import COLUMNS
from ebar.journeys.train import Trained, as_kept
from ebar.models.continued import segment_log_probs
from ebar.models.stepwise import token_log_probs
from ebar.modes import evaluation_mode
from ebar.training.batches import to_device
from ebar.types import Estimate, Sequences

BLOCKS = 200  # of a text, at most
FOUND_BY = 64  # bytes by which the beginning of one text is found in the other
TRIED = 1000  # places where they are found
LOG_2 = math.log(2)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Costs of two models; intervals are over the draw of the test items, those of the difference paired."""

    unit: str  # of all three
    over: str  # what the items are, and how many
    first: Estimate
    second: Estimate
    difference: Estimate  # the first minus the second: below 0 the first is better

    @property
    def better(self) -> int | None:
        """0 or 1, the model that costs less; None where the interval does not tell."""
        return 0 if self.difference.high < 0 else 1 if self.difference.low > 0 else None


def compare(first: Trained[Any], second: Trained[Any]) -> Comparison:
    """What the test items cost two models. Models of different data are refused."""
    kinds = [getattr(one.data.source, "kind", None) for one in (first, second)]
    if "pretraining" in kinds:
        raise UserError("A run of `ebar pretrain` predicts tokens in any order: it has no cost that could be compared.")
    if kinds[0] in ("text", "stream") and kinds[1] in ("text", "stream"):
        return _texts(first, second)
    return _items(first, second)


def _different(why: str) -> UserError:
    return UserError(f"These runs have different test data ({why}): compare runs whose test items are the same.")


def _compared(costs: list[Float[Tensor, " items"]], sizes: Float[Tensor, " items"], unit: str, over: str) -> Comparison:
    """Total over total, each item weighted by its size."""
    for which, own in zip(("first", "second"), costs, strict=True):
        if not bool(own.isfinite().all()):
            raise UserError(f"A test item has no chance at all under the {which} run, so that its cost is infinite.")
    values = [*costs, costs[0] - costs[1]]
    first, second, difference = (weighted_mean(sizes.log()[None], (one / sizes)[None])[0] for one in values)
    return Comparison(unit=unit, over=over, first=first, second=second, difference=difference)


def _items(first: Trained[Any], second: Trained[Any]) -> Comparison:
    """Sequences, translations or images, one by one."""
    tests = [one.data.test for one in (first, second)]
    rows = [len(test.lengths) for test in tests]
    if rows[0] != rows[1]:
        raise _different(f"{rows[0]:,} items and {rows[1]:,}")
    pairs = [_sources(one.data) for one in (first, second)]
    if pairs[0] != pairs[1]:
        raise _different("what is translated differs")
    costs = [_costs(one, test) for one, test in zip((first, second), tests, strict=True)]
    if _same_tokens(first.data, second.data) and _equal(*tests):
        lengths = tests[0].lengths.double().cpu()
        if first.data.tokeniser is None:
            return _compared([own / LOG_2 for own in costs], lengths, "bits per dimension", f"{rows[0]:,} test images")
        return _compared(costs, lengths, "nats per token", f"{rows[0]:,} test items")
    if first.data.tokeniser is None or second.data.tokeniser is None:
        raise _different("images that are not the same, or none")
    texts = [one.data.text(test) for one, test in zip((first, second), tests, strict=True)]
    for number, (own, other) in enumerate(zip(*texts, strict=True), 1):
        if own != other:
            raise _different(f"item {number} is {own[:40]!r} and {other[:40]!r}")
    ends = [one.data.space.end is not None for one in (first, second)]
    if ends[0] != ends[1]:
        raise _different("sequences of one have an end, those of the other have none")
    sizes = torch.tensor([len(text.encode()) + ends[0] for text in texts[0]]).double()
    some = sizes > 0
    line_end = ", the end of each a byte" if ends[0] else ""
    return _compared(
        [own[some] / LOG_2 for own in costs], sizes[some], "bits per byte",
        f"{int(some.sum()):,} test items of {int(sizes.sum()):,} bytes{line_end}",
    )  # fmt: skip


def _costs(run: Trained[Any], test: Sequences) -> Float[Tensor, " items"]:
    device, context = str(device_of(run.model)), run.data.sources("test")
    context = None if context is None else to_device(context, device)
    model: Any = run.model
    return negative_log_scores(model, to_device(test, device), context).cpu()


def _sources(data: Corpus) -> list[str] | None:
    """What is translated, as text."""
    context = data.sources("test")
    if context is None or data.source_tokeniser is None:
        return None
    return [data.source_tokeniser.decode(row) for row in context.given.rows()]


def _same_tokens(one: Corpus, other: Corpus) -> bool:
    """Whether tokens mean the same in both."""
    if one.space.vocabulary != other.space.vocabulary or one.space.end != other.space.end:
        return False
    return as_kept(one.tokeniser) == as_kept(other.tokeniser)


def _equal(one: Sequences, other: Sequences) -> bool:
    return torch.equal(one.lengths.cpu(), other.lengths.cpu()) and torch.equal(
        one.tokens[one.mask()].cpu(), other.tokens[other.mask()].cpu()
    )


class _Read(NamedTuple):
    """A test text as one model reads it."""

    spelt: bytes  # tokens as bytes; of the same tokeniser's, as four bytes each
    ends: Int[Tensor, " tokens"]  # where each token ends in that
    costs: Float[Tensor, " tokens"]  # nats
    window: int  # the longest piece that is read at a time, in tokens


def _texts(first: Trained[Any], second: Trained[Any]) -> Comparison:
    """Texts that are read from end to end, by blocks of what both have."""
    same = _same_tokens(first.data, second.data)
    reads = [_read(one, as_numbers=same) for one in (first, second)]
    starts, size = _overlap(reads[0].spelt, reads[1].spelt)
    if 2 * size < min(len(one.spelt) for one in reads):
        raise _different("less than half of the shorter test text is in the other one")
    inside = [one.ends - start for one, start in zip(reads, starts, strict=True)]
    # A block begins and ends where tokens of both end; a text begins where its first token does.
    known = [{0, *own.tolist()} if start == 0 else set(own.tolist()) for own, start in zip(inside, starts, strict=True)]
    common = torch.tensor(sorted(place for place in known[0] & known[1] if 0 <= place <= size), dtype=torch.long)
    mean = max(one.window * len(one.spelt) / max(1, len(one.ends)) for one in reads)
    edges = _edges(common, max(mean, size / BLOCKS))
    if len(edges) < 3:
        raise UserError("The test text is too short: it needs two blocks at least, each as long as a model's windows.")
    costs = [_by_block(own, read.costs, edges) for own, read in zip(inside, reads, strict=True)]
    sizes = edges.diff().double()
    if same:
        tokens, spelt = sizes / 4, int(sizes.sum()) // 4
        return _compared(costs, tokens, "nats per token", f"{len(sizes):,} blocks of {spelt:,} tokens of test text")
    over = f"{len(sizes):,} blocks of {int(sizes.sum()):,} bytes of test text"
    return _compared([own / LOG_2 for own in costs], sizes, "bits per byte", over)


@torch.no_grad()
def _read(run: Trained[Any], *, as_numbers: bool) -> _Read:
    part, model = run.data.parts["test"], run.model
    if isinstance(part, Stream):
        columns = in_columns(part.tokens, max(1, min(COLUMNS, len(part.tokens) // part.length)))
        found = segment_log_probs(model, columns.to(device_of(model)), segment=part.length)
        tokens, costs = columns.flatten(), -torch.cat(list(found), 1).double().cpu().flatten()
        window = part.length
    else:
        test = to_device(run.data.test, str(device_of(model)))
        with evaluation_mode(model):
            costs = -token_log_probs(model, test).double().cpu().flatten()
        tokens, window = test.tokens.cpu().flatten(), run.data.space.length
    if as_numbers:
        return _Read(tokens.int().numpy().tobytes(), 4 * torch.arange(1, len(tokens) + 1), costs, window)
    tokeniser = run.data.tokeniser
    if not isinstance(tokeniser, Spells):
        raise UserError(
            f"Runs with different tokenisers are compared per byte, and tokens of {type(tokeniser).__name__.lower()} "
            "spell none: compare runs with the same tokeniser, or with characters, bytes, bpe or unigram."
        )
    spellings = [each or b"" for each in tokeniser.spellings()]
    pieces = [spellings[token] for token in tokens.tolist()]
    return _Read(b"".join(pieces), torch.tensor([len(piece) for piece in pieces]).cumsum(0), costs, window)


def _overlap(one: bytes, other: bytes) -> tuple[tuple[int, int], int]:
    """Where the longest part begins that is the end of one text and the beginning of the other, or all of one.

    Held-out text that is cut off a longer one begins with a whole window, so that where it does depends on tokens.
    """
    best: tuple[tuple[int, int], int] = ((0, 0), 0)
    for turned, (longer, shorter) in enumerate(((one, other), (other, one))):
        place = longer.find(shorter[:FOUND_BY])
        for _ in range(TRIED):
            if place < 0 or len(longer) - place <= best[1]:
                break
            size = min(len(longer) - place, len(shorter))
            if size > best[1] and longer[place : place + size] == shorter[:size]:
                best = ((0, place) if turned else (place, 0)), size
                break
            place = longer.find(shorter[:FOUND_BY], place + 1)
    return best


def _by_block(
    ends: Int[Tensor, " tokens"], costs: Float[Tensor, " tokens"], edges: Int[Tensor, " edges"]
) -> Float[Tensor, " blocks"]:
    """The cost of each block, of the tokens that end after its first edge and up to its last."""
    sums = torch.zeros(len(edges) + 1, dtype=torch.float64)
    return sums.index_add(0, torch.searchsorted(edges, ends), costs)[1:-1]


def _edges(places: Int[Tensor, " places"], least: float) -> Int[Tensor, " edges"]:
    """Some of the places, each at least so far from the one before; the last block may be up to twice as long."""
    found: list[int] = []
    for place in places.tolist():
        if not found or place - found[-1] >= least:
            found.append(place)
    if len(found) > 1 and len(places):
        found[-1] = int(places[-1])
    return torch.tensor(found, dtype=torch.long)
