"""Transformer-XL: a Transformer whose positions are distances and whose memory outlives a segment.

Dai et al. 2019 (arXiv:1901.02860), and the variants that they compare it with. Its sinusoids have other frequencies
than those of `Transformer`, and its layers are normalised after each part unless said.
"""

import copy
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.adaptive import AdaptiveEmbedding
from ebar.backbones.backbone import check_attention
from ebar.backbones.decoder import served
from ebar.backbones.relative_attention import Positions, RelativeAttention, View, relative_sinusoids, view
from ebar.backbones.transformer_xl_layer import Dropout, Normalise, TransformerXlLayer
from ebar.backbones.transformer_xl_memory import SegmentMemory, TransformerXlState
from ebar.backbones.transformer_xl_stepper import TransformerXlStepper
from ebar.errors import UserError, choose
from ebar.types import Context, spread

SCALE = 0.02  # standard deviation of first weights


class TransformerXl(nn.Module):
    """Tokens → hidden vectors of the top layer; positions are distances, and text is read on with a memory.

    There are two ways to read. Token by token or in parallel (`start`, `advance`, `read`), each place sees the last
    `memory` places, itself included, so that the numbers are the same however a text is cut. By segments
    (`read_segment`), as in training on a stream, it sees all that is remembered of earlier segments, `memory` places,
    and all of its own segment before it; with `same_length`, `memory` places as in the first way.

    `head_size` is hidden / heads and `feedforward` 4 × hidden unless said. Distances count up to `clamp_length`. With
    `positions` absolute, sinusoids of the place in the segment are added to the input, and recurrence makes places of
    different segments look alike; with shaw, distances have learnt vectors and terms (c) and (d) are missing. Without
    `recurrence` nothing is carried from segment to segment. `untie_biases`: u and v of each layer's own. `cutoffs` cut
    a vocabulary that is sorted by frequency into clusters, whose input vectors are `divide` times shorter each.
    `variational` dropout drops the same numbers of a vector in all places of a row.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, head_size: int | None = None,
        feedforward: int | None = None, dropout: float = 0.1, attention_dropout: float = 0.0, memory: int = 128,
        clamp_length: int | None = None, same_length: bool = False, normalise: Normalise = "after",
        positions: Positions = "relative", recurrence: bool = True, untie_biases: bool = False,
        cutoffs: tuple[int, ...] = (), divide: int = 1, variational: bool = False,
    ):  # fmt: skip
        super().__init__()
        sizes = {"feedforward": feedforward, "memory": memory}
        check_attention(hidden, heads, head_size, layers, dropout, attention_dropout, **sizes)
        choose(dict.fromkeys(("after", "before")), normalise, "place of normalisation")
        choose(dict.fromkeys(("relative", "absolute", "shaw")), positions, "kind of positions")
        if divide != 1 and not cutoffs:
            raise ValueError("divide shortens the vectors of later clusters: give cutoffs, or leave it 1")
        self.vocabulary, self.hidden, self.scale = vocabulary, hidden, math.sqrt(hidden)
        self.positions, self.recurrence, self.untied = positions, recurrence, untie_biases
        self._remember(memory, clamp_length, same_length)
        self.inputs: nn.Parameter | AdaptiveEmbedding = (
            AdaptiveEmbedding(vocabulary, hidden, cutoffs=tuple(cutoffs), divide=divide) if cutoffs
            else nn.Parameter(torch.randn(vocabulary + 1, hidden) * SCALE)
        )  # fmt: skip
        size = hidden // heads if head_size is None else head_size
        self.dropout = Dropout(dropout, variational=variational)
        self.layers = nn.ModuleList(
            TransformerXlLayer(
                hidden, feedforward=feedforward or 4 * hidden, dropout=self.dropout, normalise=normalise,
                attention=RelativeAttention(
                    hidden, heads, size, positions=positions, distances=2 * memory, dropout=attention_dropout
                ),
            )
            for _ in range(layers)
        )  # fmt: skip
        shared = (layers if untie_biases else 1) if positions == "relative" else 0
        self.biases = nn.ParameterList(torch.randn(2, heads, size) * SCALE for _ in range(shared))
        self.layers.apply(_first_weights)

    @property
    def width(self) -> int:
        return self.hidden

    @property
    def embedding(self) -> nn.Parameter | AdaptiveEmbedding:
        """The input vectors, a row for each token, then that of the beginning: what a head may tie to."""
        return self.inputs

    def with_memory(
        self, memory: int, *, clamp_length: int | None = None, same_length: bool = False
    ) -> "TransformerXl":
        """The same network, not a copy of its weights, with another memory: longer in evaluation than in training."""
        other = copy.copy(self)
        other._remember(memory, clamp_length, same_length)
        return other

    def _remember(self, memory: int, clamp_length: int | None, same_length: bool) -> None:
        if memory < 0 or (same_length and memory < 1):
            raise ValueError(f"memory must be at least 0, and 1 where all places see as many, not {memory}")
        if clamp_length is not None and clamp_length < 1:
            raise ValueError(f"clamp_length must be at least 1, not {clamp_length}")
        self.memory, self.clamp_length, self.same_length = memory, clamp_length, same_length

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        """Times √width; the token after the last of the vocabulary is the beginning."""
        if isinstance(self.inputs, AdaptiveEmbedding):
            return self.inputs(tokens) * self.scale  # type: ignore[no-any-return]
        return nn.functional.embedding(tokens, self.inputs) * self.scale

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows width"], TransformerXlState]:
        tokens, state = self._prefix(context, 1)
        hidden, state = self._advance(self.embed(tokens), state)
        first = self.dropout(hidden[-1][:, -1:])[:, 0]
        return served(first, state, rows)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: TransformerXlState
    ) -> tuple[Float[Tensor, "rows length width"], TransformerXlState]:
        hidden, state = self._advance(self.embed(tokens), state)
        return self.dropout(hidden[-1]), state

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One pass over the beginning, the prefix and the inputs, unless rows share a prefix."""
        if context is None or context.rows == len(inputs):
            return self.dropout(self._read(inputs, context)[-1])  # type: ignore[no-any-return]
        first, state = self.start(len(inputs), context)  # each prefix is read once
        return torch.cat([first[:, None], self.dropout(self._advance(inputs, state)[0][-1])], 1)

    def read_layers(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> tuple[Float[Tensor, "rows places width"], ...]:
        """What `read` gives, of every layer."""
        return tuple(self.dropout(layer) for layer in self._read(inputs, spread(context, len(inputs))))

    def _read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None
    ) -> list[Float[Tensor, "rows places width"]]:
        tokens, state = self._prefix(context, len(inputs))
        whole = torch.cat([self.embed(tokens), inputs], 1)
        return [layer[:, tokens.shape[1] - 1 :] for layer in self._advance(whole, state)[0]]

    def empty_memory(self, rows: int) -> SegmentMemory:
        weight = next(self.layers.parameters())
        places = self.memory if self.recurrence else 0
        return SegmentMemory(
            weight.new_zeros(rows, len(self.layers), places, self.hidden),
            torch.zeros(rows, dtype=torch.long, device=weight.device),
        )

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: SegmentMemory
    ) -> tuple[Float[Tensor, "rows length width"], SegmentMemory]:
        state = self.enter_segment(memory)
        reach = self.memory if self.same_length else None
        x = self._entered(self.embed(tokens), 0)
        before: list[Tensor | None] = list(state.memory) if state.memory else [None] * len(self.layers)
        seen = view(state.seen, tokens.shape[1], x.device, reach=reach, first=state.first())
        layers, _ = self._through(x, before, seen)
        return self.dropout(layers[-1]), memory.appended(layers[:-1])

    def enter_segment(self, memory: SegmentMemory) -> TransformerXlState:
        """Keys and values of what is remembered, by the weights of today."""
        wanted = self.memory if self.recurrence else 0
        if memory.hidden.shape[2] != wanted:
            raise UserError(
                f"This memory has {memory.hidden.shape[2]} places where the model has {wanted}: begin anew."
            )
        used = int(memory.valid.max()) if wanted and len(memory.valid) else 0
        place = memory.valid if bool((memory.valid < used).any()) else used
        remembered = tuple(
            layer.remember(memory.hidden[:, number, wanted - used :])  # type: ignore[operator]
            for number, layer in enumerate(self.layers)
        )
        return TransformerXlState(remembered if used else (), place, segment=place)

    def stepper(self, state: TransformerXlState) -> TransformerXlStepper:
        """The sampling step, its memory written in place and never longer than a place sees."""
        return TransformerXlStepper(self, state)

    def _prefix(self, context: Context | None, rows: int) -> tuple[Int[Tensor, "rows places"], TransformerXlState]:
        """The beginning and the prefix, which all end in the last place; before a shorter one there is padding."""
        if context is None:
            device = next(self.layers.parameters()).device
            return torch.full((rows, 1), self.vocabulary, device=device), TransformerXlState((), 0)
        given = context.given
        longest = int(given.lengths.max()) if context.rows else 0
        padding = longest - given.lengths
        place = torch.arange(-1, longest, device=given.lengths.device) - padding[:, None]
        # Padding may hold anything, a token outside the vocabulary included.
        tokens = nn.functional.pad(given.tokens, (0, 1)).gather(1, place.clamp(min=0))
        tokens = torch.where(place >= 0, tokens, self.vocabulary)
        return tokens, TransformerXlState((), -padding if bool(padding.any()) else 0)

    def _advance(
        self, inputs: Float[Tensor, "rows length width"], state: TransformerXlState
    ) -> tuple[list[Float[Tensor, "rows length width"]], TransformerXlState]:
        """What comes out of every layer, before the last dropout."""
        if self.memory == 0 and state.segment is None:
            raise UserError("Without memory a place would see itself only: choose a memory of at least 1, or segments.")
        length, kept, reach = inputs.shape[1], self.memory - 1, self.reach(state)
        seen = view(state.seen, length, inputs.device, reach=reach, first=state.first())
        before: list[Tensor | None] = list(state.memory) if state.memory else [None] * len(self.layers)
        layers, after = self._through(self._entered(inputs, state.place - (state.segment or 0)), before, seen)
        if reach is not None and state.seen + length > kept:  # copied: nothing holds on to what no one sees any more
            after = [layer[:, state.seen + length - kept :].clone() for layer in after]
        return layers[1:], state._replace(memory=tuple(after), place=state.place + length)

    def reach(self, state: TransformerXlState) -> int | None:
        """How many places each place sees, itself included; None: all there are."""
        return None if state.segment is not None and not self.same_length else self.memory

    def _entered(
        self, inputs: Float[Tensor, "rows length width"], place: Int[Tensor, " rows"] | int
    ) -> Float[Tensor, "rows length width"]:
        if self.positions == "absolute":
            first = torch.as_tensor(place, device=inputs.device).reshape(-1, 1)
            inputs = inputs + self.sinusoids((first + torch.arange(inputs.shape[1], device=inputs.device)), inputs)
        return self.dropout(inputs)  # type: ignore[no-any-return]

    def sinusoids(self, places: Int[Tensor, "*shape"], like: Tensor) -> Float[Tensor, "*shape width"]:
        """Of distances or places, in the precision of `like`."""
        flat = relative_sinusoids(places.flatten().to(like.dtype), self.hidden)
        return flat.view(*places.shape, self.hidden)

    def of_distances(self, distances: Int[Tensor, " distances"], like: Tensor) -> Tensor | None:
        """R, which counts up to the clamp; None where distances are not told apart by sinusoids."""
        if self.positions != "relative":
            return None
        return self.sinusoids(self.clamped(distances), like)

    def clamped(self, distances: Int[Tensor, " distances"]) -> Int[Tensor, " distances"]:
        return distances if self.clamp_length is None else distances.clamp(max=self.clamp_length)

    def biases_of(self, number: int) -> Tensor | None:
        """u and v of a layer."""
        return self.biases[number if self.untied else 0] if len(self.biases) else None

    def _through(
        self, x: Float[Tensor, "rows length width"], before: list[Tensor | None], seen: View
    ) -> tuple[list[Float[Tensor, "rows length width"]], list[Float[Tensor, "rows places 2 heads size"]]]:
        """The inputs of every layer and the output of the last, and their keys and values."""
        seen = seen._replace(distances=self.clamped(seen.distances))
        vectors = self.of_distances(seen.distances, x)
        if vectors is not None:
            vectors = self.dropout(vectors[None])[0]
        layers, after = [x], []
        for number, layer in enumerate(self.layers):
            x, memory = layer(x, before[number], seen, vectors, self.biases_of(number))
            layers.append(x)
            after.append(memory)
        return layers, after


def _first_weights(module: Any) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, SCALE)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight, 1, SCALE)
