"""A model in the middle of a long text, as a distribution over what comes next.

A long text is read in segments. Between two of them a model is at `Carried`: the memory of its backbone, and the last
token, which has not been read yet because nothing was predicted from it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.backbones.backbone import Carries, CarriesOutputs, Enters, Quick, Stepper
from ebar.backbones.decoder import each_row
from ebar.errors import UserError
from ebar.heads.head import target_log_probs
from ebar.maths.rows import named_tensors, take
from ebar.models.construction import Autoregressive
from ebar.models.drawing import Advances, Placed, PlacedSteps, draw_block, drawn_at_once
from ebar.models.outputs import TokenOutputs
from ebar.models.stepwise import LOGITS, ByChainRule, belongs, check_order
from ebar.modes import evaluation_mode
from ebar.types import Context, Sequences, Space


class Carried(NamedTuple):
    """Where a model stands in each of several texts; rows are taken of it like rows of a batch."""

    memory: Any  # the backbone's, a NamedTuple of tensors, rows first
    last: Int[Tensor, " rows"]  # not yet read; at the beginning of a text, the number after the vocabulary's last


class Segment(NamedTuple):
    """The next tokens of several texts that are read side by side, each in its own column."""

    x: Sequences
    column: Int[Tensor, " rows"]  # whose memory each row goes on from
    begins: Bool[Tensor, " rows"]  # whether the text begins here, with no memory
    rate: Float[Tensor, " rows"]  # factor on the learning rate, the same in all rows


def carrying(model: object) -> tuple[Autoregressive, Carries]:
    """The model and its backbone, where that can carry a memory from segment to segment."""
    if isinstance(model, Autoregressive) and isinstance(model.backbone, Carries):
        return model, model.backbone
    body = type(model.backbone if isinstance(model, Autoregressive) else model).__name__
    raise UserError(
        f"{body} cannot go on from one segment of a text to the next: train it on data of kind text, or choose another "
        "backbone, such as lstm."
    )


def carries_memory(model: object) -> bool:
    """Whether a model takes anything from one segment to the next: a plain Transformer does not."""
    return any(tensor.is_floating_point() and tensor.numel() for tensor in kept_of_a_text(model))


def kept_of_a_text(model: object) -> list[Tensor]:
    """What a model takes from one segment to the next, of one text; nothing where its backbone carries no memory."""
    if not (isinstance(model, Autoregressive) and isinstance(model.backbone, Carries)):
        return []
    return list(named_tensors(model.backbone.empty_memory(1)).values())


def begin(model: object, rows: int) -> Carried:
    """At the beginning of so many texts."""
    own, backbone = carrying(model)
    device = next(own.parameters()).device
    return Carried(backbone.empty_memory(rows), torch.full((rows,), own.space.vocabulary, device=device))


class Reread(NamedTuple):
    """Within a segment, for backbones that cannot be entered there: the memory before it, and what was read since."""

    memory: Any
    tokens: Int[Tensor, "rows read"]

    def select(self, rows: Int[Tensor, " selected"]) -> "Reread":
        return Reread(take(self.memory, rows), self.tokens[rows])


class Continued(ByChainRule):
    """The model over the next `length` tokens of texts of which it has read the beginning.

    With one text it is a distribution like any other. With several it is as if each were a row of a context: n draws
    for each text are n consecutive rows, and so are rows that are scored. A context is a prefix that comes after what
    has been read, of one length in all rows.

    `own` are the tokens that the texts really go on with. Whoever scores just these by `teacher_forced` or `log_prob`
    leaves in `after` where the model then stands, so that no second pass is needed to go on.
    """

    def __init__(
        self, model: Autoregressive, carried: Carried, *, own: Int[Tensor, "rows length"] | None = None,
        length: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.model, self.backbone = carrying(model)
        self.carried, self.own = carried, own
        if length is None:
            length = model.space.length if own is None else own.shape[1]
        if model.space.end is not None:
            raise UserError("A text that goes on has no end: a model of sequences that end does not read it.")
        self.space: Space = replace(model.space, length=length, any_order=False)
        self.after: Carried | None = None

    @property
    def free_logits(self) -> bool:
        return self.model.free_logits

    def read(
        self, tokens: Int[Tensor, "rows length"], carried: Carried | None = None
    ) -> tuple[Float[Tensor, "rows length width"], Carried]:
        """The hidden vectors from which each of the tokens is predicted, and where the model stands after the last."""
        memory, last = self._for_rows(len(tokens)) if carried is None else carried
        hidden, after = self.backbone.read_segment(torch.cat([last[:, None], tokens[:, :-1]], 1), memory)
        return hidden, Carried(after, tokens[:, -1])

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass."""
        return self.model.head(self._hidden(tokens, context))

    def without_logits(self, places: int) -> bool:
        """Whether so many tokens are better scored by `given_log_probs` than from their logits."""
        return self.model.without_logits(places)

    def given_log_probs(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length"]:
        """The log-probability of each of the tokens given those before it, by the head's own way where it has one."""
        return target_log_probs(self.model.head, self._hidden(tokens, context), tokens)

    def outputs(self, tokens: Int[Tensor, "rows length"], context: Context | None = None) -> TokenOutputs:
        """The log-probability of each of the texts' own tokens, and what the last layer gave, in one pass."""
        if not isinstance(self.backbone, CarriesOutputs):
            raise UserError(f"{type(self.backbone).__name__} shows no outputs before dropout: choose awd_lstm.")
        if context is not None:
            raise UserError("Outputs are shown of the tokens that a text goes on with, without a prefix before them.")
        memory, last = self._for_rows(len(tokens))
        (raw, dropped), after = self.backbone.segment_outputs(torch.cat([last[:, None], tokens[:, :-1]], 1), memory)
        self._remember(tokens, Carried(after, tokens[:, -1]))
        return TokenOutputs(target_log_probs(self.model.head, dropped, tokens), raw, dropped)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        """Of the model in evaluation mode; where the head can, no logits but those of the targets are kept."""
        check_order(self.space, context)
        width = min(x.tokens.shape[1], self.space.length)
        tokens = torch.where(x.mask()[:, :width], x.tokens[:, :width], 0)
        with evaluation_mode(self):
            total = self.given_log_probs(tokens, context).sum(1)
        return torch.where(belongs(x, self.space), total, -torch.inf)

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:
        carried = self.carried if context is None else self._for_rows(context.rows)
        tokens = carried.last[:, None]
        if context is not None:
            tokens = torch.cat([tokens, _prefix(context)], 1)
        if isinstance(self.backbone, Enters):
            hidden, inner = self.model.backbone.advance(tokens, self.backbone.enter_segment(carried.memory))
        else:
            hidden, inner = self._reread(tokens, Reread(carried.memory, tokens[:, :0]))
        each = each_row(len(tokens), rows, tokens.device)
        logits, state = self.model.head(hidden[:, -1]), Placed(inner, 0)
        return (logits, state) if rows == len(tokens) else (logits[each], state.select(each))

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        go_on = self._reread if isinstance(state.inner, Reread) else self.model.backbone.advance
        hidden, inner = go_on(tokens, state.inner)
        return self.model.head(hidden), Placed(inner, state.place + tokens.shape[1])

    def stepper(self, state: Placed) -> Stepper:
        """The backbone's own way to draw, where it has one."""
        if isinstance(self.backbone, Quick) and not isinstance(state.inner, Reread):
            return PlacedSteps(
                self.backbone.stepper(state.inner), state.place, lambda hidden, _: self.model.head(hidden)
            )
        return Advances(self, state)

    @torch.no_grad()
    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        """n draws for each text, and their log-probabilities."""
        with evaluation_mode(self):
            rows = len(self.carried.last) if context is None else context.rows
            logits, state = self.start(rows, context)
            drawn = [
                draw_block(self, logits[some], state.select(some), generator=generator)
                for some in torch.split(each_row(rows, n * rows, logits.device), drawn_at_once(self))
            ]
        return Sequences.join([x for x, _ in drawn]), torch.cat([log_probs.sum(1) for _, log_probs in drawn])

    def _hidden(
        self, tokens: Int[Tensor, "rows length"], context: Context | None
    ) -> Float[Tensor, "rows length width"]:  # fmt: skip
        if context is not None:
            prefix = _prefix(context)
            prefix = prefix[each_row(len(prefix), len(tokens), tokens.device)]
            return self.read(torch.cat([prefix, tokens], 1))[0][:, prefix.shape[1] :]
        hidden, after = self.read(tokens)
        self._remember(tokens, after)
        return hidden

    def _remember(self, tokens: Int[Tensor, "rows length"], after: Carried) -> None:
        """Where the model stands after the tokens that the texts really go on with."""
        if self.after is None and self.own is not None and torch.equal(tokens, self.own):
            self.after = after

    def _reread(
        self, tokens: Int[Tensor, "rows length"], state: Reread
    ) -> tuple[Float[Tensor, "rows length width"], Reread]:
        read = torch.cat([state.tokens, tokens], 1)
        hidden, _ = self.backbone.read_segment(read, state.memory)
        return hidden[:, state.tokens.shape[1] :], Reread(state.memory, read)

    def _for_rows(self, rows: int) -> Carried:
        """What each of so many rows goes on from, text by text."""
        texts = len(self.carried.last)
        if rows == texts:
            return self.carried
        if rows % texts:
            raise ValueError(f"{rows} rows cannot be shared evenly by {texts} texts")
        carried: Carried = take(self.carried, each_row(texts, rows, self.carried.last.device))
        return carried


def _prefix(context: Context) -> Int[Tensor, "rows prefix"]:
    given = context.given
    if bool((given.lengths != given.tokens.shape[1]).any()):
        raise UserError("In the middle of a text, prefixes must all have as many tokens: cut them to one length.")
    return given.tokens


def segment_log_probs(
    model: Autoregressive, columns: Int[Tensor, "columns length"], *, segment: int
) -> Iterator[Float[Tensor, "columns part"]]:
    """log p of each token given all that the model remembers of its column, segment by segment, without dropout.

    The first token of a column is predicted from the mark of a text's beginning. Memory is bounded: columns are read
    side by side, a segment at a time, and a segment that has too many logits in parts.
    """
    carried = begin(model, len(columns))
    for part in torch.split(columns, segment, 1):
        tokens = part.long()
        with torch.no_grad(), evaluation_mode(model):
            hidden, carried = Continued(model, carried, length=tokens.shape[1]).read(tokens)
            at_once = max(1, LOGITS // (len(tokens) * model.space.vocabulary))
            parts = [
                target_log_probs(model.head, hidden[:, some], tokens[:, some])
                for some in (slice(at, at + at_once) for at in range(0, tokens.shape[1], at_once))
            ]
        yield torch.cat(parts, 1)
