"""Models made for data: a backbone and a head of the tables, or a network of the user's own.

What the data knows (vocabulary, lengths, image size, how tokens spell text) is not given again.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ebar.backbones import BACKBONES
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.models.autoregressive import Autoregressive
from ebar.models.from_logits import FromLogits
from ebar.types import Space


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
    last = HEADS.make(head, head_options or {}, width=body.width, vocabulary=space.vocabulary)
    model = Autoregressive(body, last, space)
    model.origin = {"backbone": _origin(BACKBONES, backbone, options), "head": _origin(HEADS, head, head_options or {})}
    return model


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

    Where the kind of data has defaults of its own for this backbone, they are used.
    """
    options = {**data.defaults.get(backbone, {}), **options}
    sources = data.source_tokeniser is not None
    model = assemble(data.space, backbone, options, head, shape=data.shape, sources=sources)
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
transformer = _of("transformer")
encoder_decoder = _of("encoder_decoder")
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
