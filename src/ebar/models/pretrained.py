"""Any causal language model of Hugging Face as a distribution read token by token."""

import inspect
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.automata.lift import Reading
from ebar.backbones.backbone import Stepper
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.tokenisers import reading_of_space
from ebar.errors import UserError
from ebar.models.drawing import Advances
from ebar.models.hidden import Shown
from ebar.models.pretrained_stepper import PretrainedState, PretrainedStepper, can_step, continued
from ebar.models.stepwise import by_advancing, only_end_in_last_place
from ebar.models.truncated import Truncatable
from ebar.types import Context, Sequences, Space, draws_per_context

MEMORY = 2**30  # bytes that a draw may take


class _Prefixes(NamedTuple):
    """Different prefixes, padded on their left."""

    tokens: Int[Tensor, "different longest"]
    counts: Bool[Tensor, "different longest"] | None  # None: there is no padding


class Pretrained(Truncatable):
    """q(x|C): the network reads `beginning` (where there is one), then the prefix C, then x.

    With `begins` false the beginning stands only for an empty prefix, as models have it whose texts do not begin so.
    Only the first `space.vocabulary` logits are used: some networks have more of them than there are tokens.
    Each different prefix is read once, however many rows go on from it; a shorter one is padded on its left.
    """

    free_logits = True

    def __init__(
        self, network: nn.Module, space: Space, *, beginning: int | None, begins: bool = True,
        tokeniser: PretrainedTokeniser | None = None,
    ):  # fmt: skip
        super().__init__()
        self.network, self.space, self.beginning, self.begins = network, space, beginning, begins
        self.tokeniser = tokeniser  # what its tokens spell, where that is known
        if "past_key_values" not in self._accepted():
            raise ValueError(f"{type(network).__name__} keeps no keys and values of what it has read")

    @cached_property
    def reading(self) -> Reading | None:
        """How its tokens spell text, where they do."""
        return None if self.tokeniser is None else reading_of_space(self.tokeniser, self.space)

    def with_network(self, network: nn.Module, *, length: int | None = None) -> "Pretrained":
        """The same by another network of the same vocabulary (a copy to be trained, say), or over another length."""
        space = replace(self.space, length=length or self.space.length)
        return Pretrained(
            network, space, beginning=self.beginning, begins=self.begins, tokeniser=self.tokeniser
        )  # fmt: skip

    @property
    def positions(self) -> int | None:
        """How many tokens the network can read; None: any number."""
        network: Any = self.network
        found = getattr(network.config.get_text_config(), "max_position_embeddings", None)
        return int(found) if found is not None and found > 0 else None

    def read_before(self, prefix: int) -> int:
        """Tokens that are read before a continuation, for a prefix of so many."""
        return prefix + 1 if self.begins and self.beginning is not None else max(prefix, 1)

    @property
    def rows_at_once(self) -> int:
        """How many continuations fit in MEMORY while they are drawn: their keys, values and logits."""
        return max(1, MEMORY // (self.space.length * self._kept_of_a_token() + 16 * self.space.vocabulary))

    def prefixes_at_once(self, prefix: int) -> int:
        """How many prefixes of so many tokens fit in MEMORY, each with a continuation: their keys and values."""
        return max(1, MEMORY // ((self.read_before(prefix) + self.space.length) * self._kept_of_a_token()))

    def _kept_of_a_token(self) -> int:
        """Bytes of its keys and values."""
        network: Any = self.network
        config = network.config.get_text_config()
        heads = config.num_attention_heads
        shared = getattr(config, "num_key_value_heads", None) or heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        number = next(network.parameters()).element_size()
        return int(2 * config.num_hidden_layers * shared * size * number)

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], PretrainedState]:
        return self.started(rows, context)

    def started(self, rows: int, context: Context | None = None, *, shown: bool = False) -> tuple[Any, PretrainedState]:
        """`start`, with `Shown` in the place of logits where hidden vectors are to be shown."""
        prefixes, which = self._prefixes(rows, context)
        output = self._read(prefixes.tokens, prefixes.counts, keep=1, shown=shown)
        given = self._given(output, 0, shown, last=1)[:, 0][which]
        return given, PretrainedState(output.past_key_values, which, 0, prefixes.counts)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: PretrainedState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], PretrainedState]:
        if tokens.numel() == 0:
            shape = (*tokens.shape, self.space.vocabulary)
            nothing = torch.zeros(shape, device=self._device, dtype=next(self.network.parameters()).dtype)
            return self._used(nothing), state._replace(place=state.place + tokens.shape[1])
        return self.advanced(tokens, state)

    def advanced(
        self, tokens: Int[Tensor, "rows length"], state: PretrainedState, *, shown: bool = False
    ) -> tuple[Any, PretrainedState]:
        """`advance` along one token or more, with `Shown` in the place of logits where hidden vectors are to be."""
        counts = None
        if state.counts is not None:
            counts = F.pad(state.counts[state.rows], (0, tokens.shape[1]), value=True)
        output = self._read(tokens, counts, cache=continued(state), shown=shown)
        each = torch.arange(len(tokens), device=tokens.device)
        after = PretrainedState(output.past_key_values, each, state.place + tokens.shape[1], counts)
        return self._given(output, state.place + 1, shown), after

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it; in one pass where no two rows share a prefix."""
        prefixes, which = self._prefixes(len(tokens), context)
        if len(prefixes.tokens) < len(tokens) or tokens.shape[1] < 1:
            return by_advancing(self, tokens, context)
        read = torch.cat([prefixes.tokens[which], tokens[:, :-1]], 1)
        counts = prefixes.counts
        if counts is not None:
            counts = F.pad(counts[which], (0, tokens.shape[1] - 1), value=True)
        output = self._read(read, counts, keep=tokens.shape[1], remember=False)
        return only_end_in_last_place(self._used(output.logits[:, -tokens.shape[1] :]), 0, self.space)

    def stepper(self, state: PretrainedState) -> Stepper:
        return stepper_for(self, state)

    def next_logits(
        self, tokens: Int[Tensor, "rows 1"], cache: Any, place: int, *, positions: Int[Tensor, "rows 1"] | None = None,
        shown: bool = False,
    ) -> Any:  # fmt: skip
        """Logits in a place after one more token, or `Shown` in their place; the cache is changed."""
        where: dict[str, Any] = {} if positions is None else {"position_ids": positions}
        where |= {"output_hidden_states": True} if shown else {}
        output = self.network(input_ids=tokens, past_key_values=cache, use_cache=True, **where)
        return self._given(output, place, shown)[:, 0]

    def _given(self, output: Any, place: int, shown: bool, *, last: int = 0) -> Any:
        """Logits of all positions of an output or of so many last ones, from a place on; or `Shown`."""
        logits = only_end_in_last_place(self._used(output.logits[:, -last:]), place, self.space)
        return Shown(logits, output.hidden_states[-1][:, -last:]) if shown else logits

    @property
    def output_vectors(self) -> Float[Tensor, "vocabulary size"]:
        """The weights of the last layer, one row for each token."""
        network: Any = self.network
        layer = network.get_output_embeddings()
        if layer is None:
            raise UserError(f"{type(network).__name__} has no layer of output vectors: learn in 0 rounds.")
        weights: Tensor = layer.weight.detach()[: self.space.vocabulary]
        return weights

    def showing(self) -> "ShownPretrained":
        """The same model, whose `start`, `advance` and stepper give `Shown` in the place of logits."""
        return ShownPretrained(self)

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _used(self, logits: Float[Tensor, "rows length all"]) -> Float[Tensor, "rows length vocabulary"]:
        """In single precision at least: a probability needs it."""
        if logits.shape[-1] < self.space.vocabulary:
            raise UserError(
                f"{type(self.network).__name__} gives {logits.shape[-1]} logits for each token, fewer than the "
                f"{self.space.vocabulary} tokens of the vocabulary: take the tokeniser that was made for it."
            )
        used = logits[..., : self.space.vocabulary]
        return used if used.dtype in (torch.float32, torch.float64) else used.float()

    def _read(
        self, tokens: Int[Tensor, "rows length"], counts: Bool[Tensor, "rows seen"] | None, *, cache: Any = None,
        keep: int = 0, remember: bool = True, shown: bool = False,
    ) -> Any:  # fmt: skip
        """The network's output; `counts` runs over what the cache holds too. `keep`: so many last logits, 0: all."""
        arguments: dict[str, Any] = {"use_cache": remember}
        if shown:
            arguments["output_hidden_states"] = True
        if cache is not None:
            arguments["past_key_values"] = cache
        if counts is not None:
            arguments["attention_mask"] = counts.long()
            arguments["position_ids"] = (counts.long().cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        if keep and "logits_to_keep" in self._accepted():
            arguments["logits_to_keep"] = keep
        return self.network(input_ids=tokens.to(self._device), **arguments)

    def _accepted(self) -> frozenset[str]:
        network: Any = self.network
        inner = network.get_base_model() if hasattr(network, "get_base_model") else network  # of peft
        return frozenset(inspect.signature(inner.forward).parameters)

    def _prefixes(self, rows: int, context: Context | None) -> tuple[_Prefixes, Int[Tensor, " rows"]]:
        """The different prefixes, the beginning first, and which of them each row goes on from."""
        given = Sequences(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.long))
        if context is not None:
            given = context.given
        contexts = len(given.lengths)
        draws = draws_per_context(rows, context)
        longest = int(given.lengths.max()) if contexts else 0
        tokens, lengths = given.tokens[:, :longest].to(self._device), given.lengths.to(self._device)
        self._check(lengths, longest, self.space.after(context).length)
        # Padding may hold anything: prefixes are alike when what counts is.
        marked = torch.cat([lengths[:, None], torch.where(given.mask().to(self._device)[:, :longest], tokens, 0)], 1)
        different, kind = torch.unique(marked, dim=0, return_inverse=True)
        lengths, tokens = different[:, 0], different[:, 1:]
        if self.beginning is not None and self.begins:
            tokens, lengths = F.pad(tokens, (1, 0), value=self.beginning), lengths + 1
        elif self.beginning is not None:
            tokens = F.pad(tokens, (0, max(0, 1 - tokens.shape[1])))
            tokens = tokens.masked_fill((lengths == 0)[:, None], self.beginning)
            lengths = lengths.clamp(min=1)
        counts = None
        if bool((lengths != lengths.amax()).any()):
            if "position_ids" not in self._accepted():
                raise UserError(
                    f"{type(self.network).__name__} cannot read prefixes of unequal lengths together: "
                    "give it prefixes of one length at a time."
                )
            place = torch.arange(tokens.shape[1], device=tokens.device) - (tokens.shape[1] - lengths[:, None])
            counts = place >= 0
            tokens = torch.where(counts, tokens.gather(1, place.clamp(min=0)), 0)
        return _Prefixes(tokens, counts), kind.repeat_interleave(draws)

    def _check(self, lengths: Int[Tensor, " contexts"], longest: int, to_come: int) -> None:
        if self.beginning is None and (len(lengths) == 0 or int(lengths.min()) < 1):
            raise UserError(
                f"{type(self.network).__name__} has no token that begins a text: give a prefix of one token or more."
            )
        needed = self.read_before(longest) + to_come - 1  # the last token is not read
        if self.positions is not None and needed > self.positions:
            raise UserError(
                f"A prefix of {longest} tokens and a continuation of {to_come} are too long together: the "
                f"model would read {needed} and can read {self.positions}, so make one of them shorter."
            )


class ShownPretrained:
    """A model of Hugging Face, with the vectors of its last layer beside the logits."""

    def __init__(self, model: Pretrained):
        self.model, self.network = model, model.network

    def start(self, rows: int, context: Context | None = None) -> tuple[Shown, PretrainedState]:
        return self.model.started(rows, context, shown=True)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: PretrainedState
    ) -> tuple[Shown, PretrainedState]:  # fmt: skip
        return self.model.advanced(tokens, state, shown=True)

    def stepper(self, state: PretrainedState) -> Stepper:
        return stepper_for(self, state)

    def next_logits(
        self, tokens: Int[Tensor, "rows 1"], cache: Any, place: int, *, positions: Int[Tensor, "rows 1"] | None = None
    ) -> Shown:
        shown: Shown = self.model.next_logits(tokens, cache, place, positions=positions, shown=True)
        return shown


def stepper_for(model: Pretrained | ShownPretrained, state: PretrainedState) -> Stepper:
    """The prefixes' keys and values shared, where the network keeps nothing else."""
    shares = len(state.rows) > 0 and can_step(state.cache)
    return PretrainedStepper(model, state) if shares else Advances(model, state)
