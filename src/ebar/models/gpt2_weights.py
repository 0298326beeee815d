"""A Transformer of ebar's as a GPT-2 of transformers: the same logits, with no code but theirs.

What GPT-2 has no place for is put where it has one:

- The beginning of a text is one more token, the last. It is never predicted: its logit is −10⁹.
- Positions, sinusoids or learnt, are a table of them.
- The bias of the output, and that logit, need a vector with an entry that is always 1, which no layer norm leaves as it
  is. Each vector is made longer by one entry for each head, all of them 0, and what is added to it is centred: so its
  mean is 0 over the D entries as over all D', its variance is D/D' of what it was, and a layer norm with weights times
  √(D/D') and ε·D/D' gives the same numbers as before, and its own bias where the new entries are. The last one's is 1.
- Queries are multiplied by √(S'/S), as the product of longer heads is divided by the root of their size S'.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.backbones.transformer import Transformer
from ebar.backbones.transformer_layer import ACTIVATIONS, Learnt, sinusoids
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.hugging_face import quiet, transformers
from ebar.models.construction import Autoregressive

NEVER = -1e9  # the logit of the beginning: its exponential is 0 in every precision
PLACES = 1024  # positions of the table at least, where they are sinusoids
THEIRS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new"}


def why_not_gpt2(model: Any) -> str | None:
    """The reason why a model has no place in a GPT-2, if there is one."""
    backbone, head = getattr(model, "backbone", None), getattr(model, "head", None)
    if not isinstance(backbone, Transformer):
        return f"its network is {type(backbone or model).__name__}, not Transformer"
    if len(backbone.decoder.later_positions):
        return "its positions are learnt for each layer, and GPT-2 has them for the first alone"
    if not isinstance(head, Softmax):
        return f"its head is {type(head).__name__}, not one softmax"
    return None


@torch.no_grad()
def to_gpt2(model: Autoregressive) -> Any:
    """A `GPT2LMHeadModel` in the model's precision, in evaluation mode.

    It reads the beginning, token number `vocabulary`, and then a text; its logits after each token are the model's, but
    that a sequence may go on for ever: it knows no longest one.
    """
    reason = why_not_gpt2(model)
    if reason is not None:
        raise UserError(f"This model cannot be a GPT-2: {reason}.")
    decoder: Any = model.backbone.decoder  # type: ignore[attr-defined]
    wide = _Widened(decoder.width, decoder.layers[0].attention.heads)
    end, places = model.space.end, _places(decoder, model.space.length + 1)
    library = transformers()
    config = library.GPT2Config(
        vocab_size=decoder.vocabulary + 1, n_positions=len(places), n_embd=wide.after, n_layer=len(decoder.layers),
        n_head=wide.heads, n_inner=decoder.layers[0].wide.out_features, activation_function=_activation(decoder),
        layer_norm_epsilon=decoder.norm.eps * wide.share, resid_pdrop=decoder.dropout, embd_pdrop=decoder.dropout,
        attn_pdrop=0.0, tie_word_embeddings=False, bos_token_id=decoder.vocabulary, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip
    with quiet():
        made = library.GPT2LMHeadModel(config).to(decoder.inputs.dtype).eval()
    body = made.transformer
    body.wte.weight.copy_(wide.added(decoder.inputs.double() * decoder.scale))
    body.wpe.weight.copy_(wide.added(places))
    for ours, theirs in zip(decoder.layers, body.h, strict=True):
        wide.norm(ours.attention_norm, theirs.ln_1)
        wide.attention(ours.attention, theirs.attn)
        wide.norm(ours.feedforward_norm, theirs.ln_2)
        theirs.mlp.c_fc.weight.copy_(wide.read(ours.wide.weight.double()).T)
        theirs.mlp.c_fc.bias.copy_(ours.wide.bias)
        theirs.mlp.c_proj.weight.copy_(wide.added(ours.narrow.weight.double().T))
        theirs.mlp.c_proj.bias.copy_(wide.added(ours.narrow.bias.double()))
    wide.norm(decoder.norm, body.ln_f)
    body.ln_f.bias[-1] = 1.0
    linear: Any = model.head.linear  # type: ignore[attr-defined]
    made.lm_head.weight.zero_()
    made.lm_head.weight[:-1] = wide.read(linear.weight[: decoder.vocabulary].double())
    made.lm_head.weight[:-1, -1] = linear.bias
    made.lm_head.weight[-1, -1] = NEVER
    return made


def _activation(decoder: Any) -> str:
    own = decoder.layers[0].activation
    return THEIRS[next(name for name, function in ACTIVATIONS.items() if function is own)]


def _places(decoder: Any, least: int) -> Float[Tensor, "places width"]:
    if isinstance(decoder.positions, Learnt):
        return decoder.positions.table.double() * decoder.positions.scale
    return sinusoids(max(PLACES, least), decoder.width).double().to(decoder.inputs.device)


class _Widened:
    """Vectors of `before` entries made longer by one for each head, which stand at their end."""

    def __init__(self, before: int, heads: int):
        self.before, self.after, self.heads = before, before + heads, heads
        self.share = self.before / self.after

    def read(self, weights: Float[Tensor, "*some before"]) -> Float[Tensor, "*some after"]:
        """Of what reads such a vector: nothing of the new entries."""
        return torch.nn.functional.pad(weights, (0, self.heads))

    def added(self, vectors: Float[Tensor, "*some before"]) -> Float[Tensor, "*some after"]:
        """Of what is added to one: with mean 0, and nothing in the new entries."""
        return self.read(vectors - vectors.mean(-1, keepdim=True))

    def norm(self, ours: Any, theirs: Any) -> None:
        theirs.weight.copy_(self.read(ours.weight.double() * math.sqrt(self.share)))
        theirs.bias.copy_(self.read(ours.bias.double()))

    def attention(self, ours: Any, theirs: Any) -> None:
        """Each head has one more entry, 0 in its queries, keys and values."""
        size = ours.size
        parts = (3, self.heads, size)
        weight, bias = ours.into.weight.double().unflatten(0, parts), ours.into.bias.double().unflatten(0, parts)
        scale = torch.ones(3, 1, 1, dtype=torch.float64, device=weight.device)
        scale[0] = math.sqrt((size + 1) / size)
        weight, bias = weight * scale[..., None], bias * scale
        pad = torch.nn.functional.pad
        theirs.c_attn.weight.copy_(self.read(pad(weight, (0, 0, 0, 1)).flatten(0, 2)).T)
        theirs.c_attn.bias.copy_(pad(bias, (0, 1)).flatten())
        out = pad(ours.out.weight.double().unflatten(1, (self.heads, size)), (0, 1)).flatten(1)
        theirs.c_proj.weight.copy_(self.added(out.T))
        theirs.c_proj.bias.copy_(self.added(ours.out.bias.double()))
