"""An encoder that several tasks share, with a head for each.

Heads of tasks: from the vectors of a text to scores of classes, or to the span of an answer.

The likeliest span of each passage, by one model or by several together.

K-NRM: a ranking model that learns only how much each degree of likeness of words counts. Xiong et al. 2017.

End-to-End Neural Ad-hoc Ranking with Kernel Pooling (arXiv:1706.06613):

    M_ij = cos(query word i, document word j)
    φ_k  = Σᵢ log Σⱼ exp(−(M_ij − μ_k)² / (2·σ_k²))
    score = tanh(w·φ + b)

Here the vectors of words are those of a pretrained encoder's tokens, before any layer, and stay as they are: what the
score tells is how good these vectors are (Yang et al. 2019, ClueWeb09-B).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.transformer import picked
from ebar.data.labelled import Inputs, Task
from ebar.devices import in_full_precision
from ebar.errors import UserError, choose
from ebar.maths.pooling import mean_pooled
from ebar.models.task.encoders import TaskEncoder


class SummaryHead(nn.Module):
    """Scores of a whole text: logits = W·dropout(tanh(V·h + b)) + c, with h the vector of CLS or, with `mean`, the mean
    over all places, which needs no training to hold what stands in the text.

    One score for each class; or a single one, for regression, for the relevance of a document, for a choice.
    """

    def __init__(self, width: int, outputs: int, *, dropout: float = 0.1, mean: bool = False):
        super().__init__()
        self.mean = mean
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, outputs)

    @in_full_precision
    def forward(
        self, hidden: Float[Tensor, "texts length width"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts outputs"]:
        if self.mean:
            inside = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
            summary = mean_pooled(hidden, inside)
        else:
            summary = picked(hidden, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        return self.out(self.dropout(torch.tanh(self.project(summary))))  # type: ignore[no-any-return]


class SpanHead(nn.Module):
    """p(first, last) = p(first)·p(last | first): where an answer stands in a passage. Yang et al. 2019's span head.

    The last token is scored from its own vector and the first token's, tanh, a layer norm and a linear map. Unlike
    theirs no span ends before it begins: the probabilities of all spans add up to 1. Whether there is an answer at all
    is a logistic regression on the vector of CLS.
    """

    def __init__(self, width: int, *, dropout: float = 0.1):
        super().__init__()
        self.first = nn.Linear(width, 1)
        self.of_first, self.of_last = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)
        self.answerable = SummaryHead(width, 1, dropout=dropout)

    @in_full_precision
    def first_log_probs(
        self, hidden: Float[Tensor, "texts length width"], places: Bool[Tensor, "texts length"]
    ) -> Float[Tensor, "texts length"]:
        """log p(first), −inf outside the passage. A text without a passage is all passage: nothing else is finite."""
        allowed = places | ~places.any(1, keepdim=True)
        scores: Tensor = self.first(hidden)[:, :, 0]
        return scores.masked_fill(~allowed, -torch.inf).log_softmax(1)

    @in_full_precision
    def last_log_probs(
        self,
        hidden: Float[Tensor, "texts length width"],
        places: Bool[Tensor, "texts length"],
        first: Int[Tensor, "texts some"],
    ) -> Float[Tensor, "texts some length"]:
        """log p(last | first) for some first tokens of each text, −inf before it and outside the passage."""
        begun = self.of_first(picked(hidden, first))
        mixed = self.norm(torch.tanh(begun[:, :, None] + self.of_last(hidden)[:, None]))
        scores: Tensor = self.last(mixed)[..., 0]
        steps = torch.arange(hidden.shape[1], device=hidden.device)
        allowed = (places[:, None] & (steps > first[:, :, None])) | (steps == first[:, :, None])
        return scores.masked_fill(~allowed, -torch.inf).log_softmax(2)

    def answerable_logits(
        self, hidden: Float[Tensor, "texts length width"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, " texts"]:
        """Of there being an answer."""
        return self.answerable(hidden, lengths)[:, 0]  # type: ignore[no-any-return]


def passage_places(
    segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"], segment: int = 0
) -> Bool[Tensor, "texts length"]:
    """The tokens of one segment, without the separator that ends it: where an answer may stand."""
    steps = torch.arange(segments.shape[1], device=segments.device)
    own = (segments == segment) & (steps < lengths[:, None])
    followed = torch.zeros_like(own)
    followed[:, :-1] = own[:, 1:]
    return own & followed


Probabilities = Float[Tensor, "rows outcomes"]


class Read(NamedTuple):
    """A batch of texts as a span head wants it."""

    hidden: Float[Tensor, "rows length width"]
    lengths: Int[Tensor, " rows"]
    places: Bool[Tensor, "rows length"]  # where an answer may stand


@runtime_checkable
class GivesScores(Protocol):
    """What classifies, measures, ranks or chooses."""

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        """For each choice of each example (one, but for multiple choice and for pairs) its scores."""


class TaskModel(nn.Module):
    """Texts → scores of classes, numbers or spans, by one encoder and a head for each task."""

    origin: dict[str, Any] | None = None  # the kind and the options of the network, where it was made by name

    def __init__(self, encoder: TaskEncoder, heads: Mapping[str, nn.Module]):
        super().__init__()
        self.encoder: Any = encoder
        for name in heads:
            if not name.isidentifier():
                raise UserError(f"{name!r} cannot be the name of a task: use letters, digits and _.")
        self.heads = nn.ModuleDict(heads)

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        head = self._head(task)
        if isinstance(head, SpanHead):
            raise UserError(f"The task {task} finds spans: it has no scores of whole texts.")
        rows, choices = inputs.lengths.shape
        tokens, segments, lengths = (part.flatten(0, 1) for part in inputs)
        found = head(self.encoder(tokens, segments, lengths), lengths)
        # A question may have fewer choices than others: what is no choice can never be chosen.
        return found.masked_fill(lengths[:, None] == 0, -torch.inf).view(rows, choices, -1)  # type: ignore[no-any-return]

    def read(self, inputs: Inputs) -> Read:
        """For a span head."""
        tokens, segments, lengths = (part[:, 0] for part in inputs)
        return Read(self.encoder(tokens, segments, lengths), lengths, passage_places(segments, lengths))

    def span_head(self, task: str) -> SpanHead:
        """That of a task of spans."""
        head = self._head(task)
        if not isinstance(head, SpanHead):
            raise UserError(f"The task {task} finds no spans.")
        return head

    def _head(self, task: str) -> nn.Module:
        return choose(dict(self.heads.items()), task, "task of this model")


def new_head(
    task: Task, width: int, *, classes: int = 0, dropout: float = 0.1, mean: bool = False
) -> SummaryHead | SpanHead:
    """For a task, its weights drawn from torch's global state."""
    if task == "span":
        return SpanHead(width, dropout=dropout)
    return SummaryHead(width, classes if task == "classification" else 1, dropout=dropout, mean=mean)


BEAM = 5  # first tokens for which the last one is looked for
LONGEST = 64  # tokens of an answer


class Spans(NamedTuple):
    """One span of each passage."""

    first: Int[Tensor, " rows"]
    last: Int[Tensor, " rows"]
    probability: Float[Tensor, " rows"]
    answerable: Float[Tensor, " rows"]  # the probability that there is an answer at all


def best_spans(members: Sequence[tuple[SpanHead, Read]], *, beam: int = BEAM, longest: int = LONGEST) -> Spans:
    """The likeliest among the spans that begin with one of the `beam` likeliest first tokens.

    Of several models the probabilities are averaged, those of first tokens and then those of whole spans. With a beam
    as long as the text nothing is missed.
    """
    begins = torch.stack([head.first_log_probs(read.hidden, read.places) for head, read in members])
    rows, length = begins.shape[1:]
    top = begins.exp().mean(0).topk(min(beam, length)).indices
    joint = torch.stack(
        [
            (own.gather(1, top)[:, :, None] + head.last_log_probs(read.hidden, read.places, top)).exp()
            for own, (head, read) in zip(begins, members, strict=True)
        ]
    ).mean(0)
    steps = torch.arange(length, device=top.device)
    joint = torch.where(steps < top[:, :, None] + longest, joint, 0.0)
    probability, place = joint.view(rows, -1).max(1)
    answerable = torch.stack([head.answerable_logits(read.hidden, read.lengths).sigmoid() for head, read in members])
    first = top.gather(1, place[:, None] // length)[:, 0]
    return Spans(first, place % length, probability, answerable.mean(0))


SMALLEST = 1e-10  # of what a logarithm is taken of, where no word is alike
SCALE = 0.01  # of φ, as in the authors' code: unscaled, the sums over words would saturate tanh


def kernels(number: int = 11) -> tuple[Float[Tensor, " kernels"], Float[Tensor, " kernels"]]:
    """Means and widths: one narrow kernel at 1 for the same word, the others evenly spread over −1 … 1, width 0.1."""
    if number < 2:
        raise ValueError(f"kernel pooling needs 2 kernels or more, not {number}")
    step = 2.0 / (number - 1)
    centres = [1.0, *(1.0 - step / 2 - step * place for place in range(number - 1))]
    return torch.tensor(centres), torch.tensor([1e-3, *([0.1] * (number - 1))])


def pooled(
    likeness: Float[Tensor, "texts query document"],
    query: Bool[Tensor, "texts query"],
    document: Bool[Tensor, "texts document"],
    means: Float[Tensor, " kernels"],
    widths: Float[Tensor, " kernels"],
) -> Float[Tensor, "texts kernels"]:
    """φ: log-sums over the words of the document, added over those of the query; other places do not count."""
    closeness = torch.exp(-((likeness[..., None] - means) ** 2) / (2 * widths**2))
    sums = torch.where(document[:, None, :, None], closeness, 0.0).sum(2)
    return torch.where(query[:, :, None], sums.clamp(min=SMALLEST).log(), 0.0).sum(1)


class KernelPooling(nn.Module):
    """Relevance of a document (the second text of a pair) to a query (the first), from the likeness of their words."""

    origin: dict[str, Any] | None = None  # the kind and the options of the network, where it was made by name

    def __init__(self, encoder: TaskEncoder, *, number: int = 11):
        super().__init__()
        means, widths = kernels(number)
        table = encoder.table.detach()
        self.register_buffer("vectors", F.normalize(table, dim=1))
        self.register_buffer("means", means.to(table), persistent=False)
        self.register_buffer("widths", widths.to(table), persistent=False)
        self.out = nn.Linear(number, 1)

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        """Like those of a `TaskModel` with one output."""
        rows, choices = inputs.lengths.shape
        tokens, segments, lengths = (part.flatten(0, 1) for part in inputs)
        found = torch.tanh(self.out(SCALE * self.features(tokens, segments, lengths)))
        return found.view(rows, choices, 1)

    def features(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts kernels"]:
        """φ of each text."""
        query, document = (passage_places(segments, lengths, segment) for segment in (0, 1))
        vectors = F.embedding(tokens, self.vectors)  # type: ignore[arg-type]
        ends = int((segments == 0).sum(1).max())  # no place of a query is past this
        likeness = vectors[:, :ends] @ vectors.transpose(1, 2)
        return pooled(likeness, query[:, :ends], document, self.means, self.widths)  # type: ignore[arg-type]
