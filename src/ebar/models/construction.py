"""Models made for data: a backbone and a head of the tables, or a network of the user's own.

What the data knows (vocabulary, lengths, image size, how tokens spell text) is not given again.

A backbone and a head: a distribution read token by token.

Any network that maps tokens to logits, as a stepwise model.

Pretrained causal language models: read with their tokeniser, and saved so that transformers can read them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.automata.lift import Reading
from ebar.backbones import BACKBONES
from ebar.backbones.backbone import Backbone, Quick, Reads, ShowsOutputs, Stepper
from ebar.backbones.pretrained.reading import Precision, merged, read_network
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.corpus import Corpus
from ebar.data.tokenisers import Tokeniser
from ebar.devices import device_named, in_single
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.heads.head import Head, target_log_probs, without_logits
from ebar.hugging_face import quiet, transformers
from ebar.models.drawing import Advances, Placed, PlacedSteps
from ebar.models.hidden import Showing, Shown, ShownThrough
from ebar.models.outputs import TokenOutputs
from ebar.models.pretrained import Pretrained
from ebar.models.stepwise import (
    ByChainRule,
    by_advancing,
    check_order,
    only_end_in_last_place,
    sure_of_end_in_last_place,
)
from ebar.models.truncated import Truncatable
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, Space


class Autoregressive(Truncatable):
    """q(x|C) = Πₜ softmax(head(backbone(C, x₍<t₎)))ₓₜ, the last place of the space being the end token's.

    `log_prob` and `sample` are without dropout, whatever the mode: a number about the model is one about the model in
    evaluation mode. `teacher_forced`, `start` and `advance` have dropout in training mode, as an objective wants it.
    """

    origin: dict[str, Any] | None = None  # backbone and head as a configuration has them, where it was made by name
    reading: Reading | None = None  # how its tokens spell text, where it was made for data
    tokeniser: Tokeniser | None = None  # the checkpoint's, where it was made from one

    def __init__(self, backbone: Backbone, head: Head, space: Space):
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.space: Space = replace(space, completes=True) if getattr(backbone, "completes", False) else space
        if getattr(backbone, "any_order", False):
            self.space = replace(self.space, any_order=True)

    @property
    def free_logits(self) -> bool:
        return self.head.free_logits

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:
        check_order(self.space, context)
        hidden, state = self.backbone.start(rows, context)
        return self._after_step(hidden, 0), Placed(state, 0)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        hidden, after = self.backbone.advance(tokens, state.inner)
        logits = only_end_in_last_place(self.head(hidden), state.place + 1, self.space)
        return logits, Placed(after, state.place + tokens.shape[1])

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass."""
        check_order(self.space, context)
        if isinstance(self.backbone, Reads):
            return self.from_inputs(self.backbone.embed(tokens[:, :-1]), context)[:, : tokens.shape[1]]
        return by_advancing(self, tokens, context)

    def from_inputs(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places vocabulary"]:
        """Logits before each input and after the last, where vectors stand in place of tokens."""
        if not isinstance(self.backbone, Reads):
            raise UserError(f"{type(self.backbone).__name__} reads tokens only, no vectors in their place.")
        return only_end_in_last_place(self.head(self.backbone.read(inputs, context)), 0, self.space)

    def without_logits(self, places: int) -> bool:
        """Whether so many tokens are better scored by `given_log_probs` than from their logits."""
        return without_logits(self.head, places, self.space.vocabulary)

    def given_log_probs(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length"]:
        """log q(xₜ | x₍<t₎, C) of each of the tokens in one pass, by the head's own way where it has one."""
        check_order(self.space, context)
        if isinstance(self.backbone, Reads):
            hidden = self.backbone.read(self.backbone.embed(tokens[:, :-1]), context)
        else:
            hidden = by_advancing(self.backbone, tokens, context)
        log_probs = target_log_probs(self.head, hidden[:, : tokens.shape[1]], tokens)
        return sure_of_end_in_last_place(log_probs, tokens, 0, self.space)

    def outputs(self, tokens: Int[Tensor, "rows length"], context: Context | None = None) -> TokenOutputs:
        """The log-probability of each token given those before it, and what the last layer gave, in one pass."""
        backbone: Any = self.backbone
        if not (isinstance(backbone, ShowsOutputs) and isinstance(backbone, Reads)):
            raise UserError(f"{type(backbone).__name__} shows no outputs before dropout: choose lstm or awd_lstm.")
        raw, dropped = backbone.read_outputs(backbone.embed(tokens[:, :-1]), context)
        raw, dropped = raw[:, : tokens.shape[1]], dropped[:, : tokens.shape[1]]
        log_probs = target_log_probs(self.head, dropped, tokens)
        return TokenOutputs(sure_of_end_in_last_place(log_probs, tokens, 0, self.space), raw, dropped)

    def stepper(self, state: Placed) -> Stepper:
        """The quickest way to draw; without dropout only in evaluation mode where the backbone has no quicker one."""
        if isinstance(self.backbone, Quick):
            return PlacedSteps(self.backbone.stepper(state.inner), state.place, self._after_step)
        return Advances(self, state)

    @property
    def output_vectors(self) -> Float[Tensor, "vocabulary size"]:
        """The weights of the head's last layer, one row for each token."""
        layer = getattr(self.head, "linear", None)
        if layer is None:
            raise UserError(f"{type(self.head).__name__} has no layer of output vectors: learn in 0 rounds.")
        weights: Tensor = layer.weight.detach()[: self.space.vocabulary]
        return weights

    def showing(self) -> Showing:
        """The same model, whose `start`, `advance` and stepper give `Shown` in the place of logits."""
        return ShownThrough(self.backbone, self.space, self._shown)

    def _shown(self, hidden: Float[Tensor, "rows length width"], place: int) -> Shown:
        return Shown(only_end_in_last_place(self.head(hidden), place, self.space), hidden)

    def _after_step(self, hidden: Float[Tensor, "rows width"], place: int) -> Float[Tensor, "rows vocabulary"]:
        return only_end_in_last_place(self.head(hidden)[:, None], place, self.space)[:, 0]


class FromLogits(ByChainRule):
    """A causal network, tokens [rows, length] → logits [rows, length, vocabulary] of what follows each, as a model.

    It reads `beginning` before the first token, and a context as a prefix after it. It must not look ahead: what stands
    right of a token must not change its logits. Each step reads the whole prefix anew, as the network has no memory
    that we know of.
    """

    free_logits = True
    reading: Reading | None = None  # how its tokens spell text, where it was made for data

    def __init__(self, module: nn.Module, space: Space, *, beginning: int):
        super().__init__()
        self.module, self.space, self.beginning = module, space, beginning

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:  # fmt: skip
        state = self._begin(rows, context)
        last = self._logits(state.inner.tokens).gather(1, self._places(state.inner.lengths - 1, 1))
        return only_end_in_last_place(last, 0, self.space)[:, 0], state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        read = self._appended(state.inner, tokens)
        logits = self._logits(read.tokens).gather(1, self._places(state.inner.lengths, tokens.shape[1]))
        after = Placed(read, state.place + tokens.shape[1])
        return only_end_in_last_place(logits, state.place + 1, self.space), after

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass."""
        before = self._begin(len(tokens), context).inner
        read = self._appended(before, tokens[:, :-1])
        logits = self._logits(read.tokens).gather(1, self._places(before.lengths - 1, tokens.shape[1]))
        return only_end_in_last_place(logits, 0, self.space)

    def _begin(self, rows: int, context: Context | None) -> Placed:
        """All that each row has read, the beginning first."""
        if context is None:
            # Where the network's weights are, if it has any.
            device = next((parameter.device for parameter in self.module.parameters()), None)
            tokens = torch.full((rows, 1), self.beginning, device=device)
            return Placed(Sequences(tokens, torch.ones_like(tokens[:, 0])), 0)
        given = context.given
        # Padding may hold anything, a token outside the vocabulary included.
        tokens = F.pad(torch.where(given.mask(), given.tokens, self.beginning), (1, 0), value=self.beginning)
        return Placed(Sequences(tokens, given.lengths + 1).repeat(rows // context.rows), 0)

    def _appended(self, read: Sequences, tokens: Int[Tensor, "rows length"]) -> Sequences:
        """Each row's tokens at its own end."""
        room = F.pad(read.tokens, (0, tokens.shape[1]), value=self.beginning)
        places = read.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        return Sequences(room.scatter(1, places, tokens), read.lengths + tokens.shape[1])

    def _logits(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length vocabulary"]:
        wanted = (*tokens.shape, self.space.vocabulary)
        what = f"What the network makes of tokens {list(tokens.shape)}, a logit for each token of the vocabulary,"
        return in_single(of_shape(self.module(tokens), wanted, what))

    def _places(self, first: Int[Tensor, " rows"], length: int) -> Int[Tensor, "rows length vocabulary"]:
        places = first[:, None] + torch.arange(length, device=first.device)
        return places[:, :, None].expand(-1, -1, self.space.vocabulary)


def assemble(
    space: Space,
    backbone: str,
    options: Mapping[str, Any],
    head: str = "softmax",
    head_options: Mapping[str, Any] | None = None,
    *,
    shape: Mapping[str, int] | None = None,
    sources: bool = False,
) -> Autoregressive:
    """A backbone and a head by name. First weights are drawn from torch's own random state.

    `shape` is what a corpus tells a backbone besides its vocabulary (`Corpus.shape`); `sources`: whether its sequences
    translate something.
    """
    told = _told(backbone, options, shape or {}, sources)
    body = BACKBONES.make(backbone, options, vocabulary=space.vocabulary, **told)
    last = HEADS.make(head, head_options or {}, **_given_to_head(head, body, space))
    model = Autoregressive(body, last, space)
    model.origin = {"backbone": _origin(BACKBONES, backbone, options), "head": _origin(HEADS, head, head_options or {})}
    return model


def _given_to_head(kind: str, body: Backbone, space: Space) -> dict[str, Any]:
    """What this head wants to know of the backbone: a head that ties its weights is given the input vectors."""
    known = {"width": body.width, "vocabulary": space.vocabulary, "embedding": getattr(body, "embedding", None)}
    wanted = inspect.signature(HEADS.choose(kind)).parameters
    return {name: known[name] for name in HEADS.given if name in wanted}


def _told(kind: str, options: Mapping[str, Any], shape: Mapping[str, int], sources: bool) -> dict[str, int]:
    """What this backbone wants to know; one that wants what the data do not have is refused."""
    wanted = [
        name
        for name in inspect.signature(BACKBONES.choose(kind)).parameters
        if name in BACKBONES.given and name != "vocabulary" and name not in options
    ]
    if "image_height" in wanted and "image_height" not in shape:
        raise UserError(f"The backbone {kind} reads images: choose another, or data of kind images.")
    if "source_vocabulary" in wanted and not sources:
        raise UserError(f"The backbone {kind} reads a source: choose another, or data of kind parallel.")
    if "source_vocabulary" in shape and "source_vocabulary" not in wanted:
        raise UserError(f"The backbone {kind} reads sources as beginnings of targets: it needs data.shared true.")
    return {name: shape[name] for name in wanted if name in shape}


def autoregressive(backbone: str, data: Corpus, *, head: str = "softmax", **options: Any) -> Autoregressive:
    """A model of the data by any backbone of BACKBONES; options are the backbone's own.

    Where the kind of data has defaults of its own for this backbone or this head, they are used.
    """
    options = {**data.defaults.get(backbone, {}), **options}
    sources = data.source_tokeniser is not None
    model = assemble(
        data.space, backbone, options, head, data.defaults.get(head, {}), shape=data.shape, sources=sources
    )  # fmt: skip
    model.reading = data.reading
    return model


def _origin(table: Any, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """As a configuration has it: the kind, and all options, defaults included."""
    parameters = inspect.signature(table.choose(kind)).parameters.values()
    own = {one.name: one.default for one in parameters if one.name not in table.given}
    return {"kind": kind, **own, **options}


def _of(backbone: str) -> Callable[..., Autoregressive]:
    def make(data: Corpus, *, head: str = "softmax", **options: Any) -> Autoregressive:
        return autoregressive(backbone, data, head=head, **options)

    make.__name__ = make.__qualname__ = backbone
    make.__doc__ = f"A model of the data by {BACKBONES[backbone].__name__}, whose options these are: `hidden=64`, say."
    return make


lstm = _of("lstm")
awd_lstm = _of("awd_lstm")
transformer = _of("transformer")
transformer_xl = _of("transformer_xl")
encoder_decoder = _of("encoder_decoder")
local_xl = _of("local_xl")
xlnet = _of("xlnet")
convolution = _of("convolution")
pixelcnn = _of("pixelcnn")
gated_pixelcnn = _of("gated_pixelcnn")


def wrap(network: nn.Module, data: Corpus, *, beginning: int | None = None) -> FromLogits:
    """Any causal network, tokens [rows, length] → logits [rows, length, vocabulary], as a model of the data.

    It reads `beginning` before the first token: by default the end token or, where sequences have no end, token 0.
    """
    end = data.space.end
    model = FromLogits(network, data.space, beginning=(end or 0) if beginning is None else beginning)
    model.reading = data.reading
    return model


def from_pretrained(
    where: str | Path | tuple[Any, Any] | nn.Module, *, length: int = 40, ends: bool = False, device: str | None = None,
    dtype: Precision | None = None, trust_remote_code: bool = False,
) -> Pretrained:  # fmt: skip
    """A causal language model over continuations of `length` tokens; if it `ends`, of at most that many.

    `where` is a name on the hub, a folder, a .gguf file, a .bin file of llama2.c, or a pair (model, tokenizer) of
    transformers. A model in memory stays where it is and in its precision unless `device` is given.
    """
    device = None if device is None else device_named(device)
    if isinstance(where, tuple):
        network, tokenizer = where
        network = network if device is None else network.to(device)
        name = type(network).__name__
    elif isinstance(where, nn.Module):
        raise UserError(
            f"A {type(where).__name__} in memory needs its tokenizer beside it: give the pair (model, tokenizer), or "
            "ebar.wrap(model, data) for a network of your own."
        )
    else:
        network, tokenizer = read_network("AutoModelForCausalLM", where, device, dtype, trust_remote_code)
        name = str(where)
    tokeniser = PretrainedTokeniser.of(tokenizer)
    if ends and tokeniser.end is None:
        raise UserError(f"{name} has no token that ends a text: give continuations a fixed length.")
    logits = int(network.get_output_embeddings().weight.shape[0])
    space = Space(min(logits, tokeniser.size), length, tokeniser.end if ends else None)
    return Pretrained(
        network, space, beginning=tokeniser.beginning, begins=tokeniser.begins, tokeniser=tokeniser
    )  # fmt: skip


def save_pretrained(model: Pretrained, folder: Path) -> None:
    """As transformers saves them, LoRA adapters merged into the weights; the tokeniser beside it."""
    network: Any = merged(model.network)
    with quiet():
        network.save_pretrained(folder)
        if model.tokeniser is not None:
            (model.tokeniser.original or _rebuilt(model.tokeniser)).save_pretrained(folder)


def _rebuilt(tokeniser: PretrainedTokeniser) -> Any:
    """transformers' tokenizer from what a run has kept of it."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokeniser.model)
    named = {"bos_token": tokeniser.beginning, "eos_token": tokeniser.end}
    special = {name: backend.id_to_token(token) for name, token in named.items() if token is not None}
    return transformers().PreTrainedTokenizerFast(tokenizer_object=backend, **special)
