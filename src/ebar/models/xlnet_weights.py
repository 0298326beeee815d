"""XLNets of transformers as models of ebar, and back: the same numbers.

Weights are read from safetensors, never from a pickle, and no code of a checkpoint is run. transformers keeps the
matrices of attention as [width, heads, size]; a linear layer has [heads·size, width].
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebar.backbones.pretrained.reading import DTYPES, Precision, read_network
from ebar.backbones.xlnet import XlNet
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.specials import Specials, specials_of, vocabulary_with_specials
from ebar.data.tokenisers import Tokeniser, reading_of_space
from ebar.errors import UserError, choose
from ebar.hugging_face import check_folder, quiet, read_pretrained, tokenizers, transformers
from ebar.models.construction import Autoregressive, assemble
from ebar.types import Space

ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu_new": "gelu_tanh"}  # theirs → ours
NAMES = {
    "attention_norm.weight": "rel_attn.layer_norm.weight", "attention_norm.bias": "rel_attn.layer_norm.bias",
    "wide.weight": "ff.layer_1.weight", "wide.bias": "ff.layer_1.bias", "narrow.weight": "ff.layer_2.weight",
    "narrow.bias": "ff.layer_2.bias", "feedforward_norm.weight": "ff.layer_norm.weight",
    "feedforward_norm.bias": "ff.layer_norm.bias", "attention.segment": "rel_attn.seg_embed",
}  # fmt: skip
BIASES = ("rel_attn.r_w_bias", "rel_attn.r_r_bias", "rel_attn.r_s_bias")


def xlnet_from_hugging_face(
    where: str | Path | nn.Module, *, length: int = 512, chunk: int | list[int] | None = None,
    tokeniser: Tokeniser | None = None, device: str | None = None, dtype: Precision | None = None,
) -> Autoregressive:  # fmt: skip
    """A model with the weights of an XLNet, in evaluation mode; its `tokeniser` is the checkpoint's, where it has one.

    `where` is a folder, a name on the hub or a network of transformers in memory, with or without its head: without
    one the output vectors are the input vectors, and their bias is 0. With `chunk` it attends to neighbours only, with
    the same weights. What is about data, `reuse_len` and `bi_data`, is given with each text here.
    """
    network, found = (where, None) if isinstance(where, nn.Module) else _read(where, device, dtype)
    name = type(where).__name__ if isinstance(where, nn.Module) else str(where)
    if tokeniser is None and found is not None:
        tokeniser = PretrainedTokeniser.of(found)
    body: Any = getattr(network, "transformer", network)
    _check_kind(getattr(body, "config", None), name)
    vocabulary = int(body.config.vocab_size)
    if tokeniser is not None and vocabulary_with_specials(tokeniser) > vocabulary:
        raise UserError(
            f"The tokeniser has {vocabulary_with_specials(tokeniser):,} tokens, special ones included, and {name} knows"
            f" {vocabulary:,}: they do not belong together."
        )
    options = {**_options(body.config), "chunk": chunk}
    model = assemble(Space(vocabulary, length), "xlnet", options, "softmax", {"tied": True})
    weight = body.word_embedding.weight
    model = model.to(device=weight.device, dtype=weight.dtype).eval()
    model.tokeniser = tokeniser
    model.reading = None if tokeniser is None else reading_of_space(tokeniser, model.space)
    head = getattr(network, "lm_loss", None)
    _fill(model, body.state_dict(), None if head is None else head.bias)
    return model


def save_as_hugging_face(model: Autoregressive, folder: Path | str, tokeniser: Tokeniser | None = None) -> None:
    """config.json, model.safetensors and the tokeniser's files, for transformers' `XLNetLMHeadModel`.

    The tokeniser is the model's own unless given; its special tokens are written too, as `specials_of` has them.
    """
    backbone, folder, tokeniser = model.backbone, Path(folder), tokeniser or model.tokeniser
    if not isinstance(backbone, XlNet):
        raise UserError(f"Only an XlNet can be saved as transformers' XLNet, not a {type(backbone).__name__}.")
    if any(chunk is not None for chunk in backbone.chunks):
        raise UserError("transformers has no local attention: save a model without chunk, which has the same weights.")
    if tokeniser is not None and vocabulary_with_specials(tokeniser) != backbone.vocabulary:
        raise UserError(
            f"The tokeniser has {vocabulary_with_specials(tokeniser):,} tokens, special ones included, and the model"
            f" {backbone.vocabulary:,}: they do not belong together."
        )
    specials = None if tokeniser is None else specials_of(tokeniser)
    written = None if tokeniser is None or specials is None else _written(tokeniser, specials)
    with quiet():
        network = transformers().XLNetLMHeadModel(_config(backbone, specials))
        weights, bias = _weights(model)
        network.transformer.load_state_dict(weights)
        network.lm_loss.bias.data.copy_(bias)
        network.to(bias.dtype).save_pretrained(folder)
        if written is not None:
            written.save_pretrained(folder)


def _read(where: str | Path, device: str | None, dtype: Precision | None) -> tuple[Any, Any]:
    """The network, and transformers' tokenizer or None."""
    place, library = Path(where), transformers()
    if place.is_dir():
        check_folder(place)
        _check_kind(read_pretrained(library.AutoConfig, place, "a model", trust_remote_code=False), str(place))
        if not (place / "tokenizer.json").exists():
            options = {"use_safetensors": True, "trust_remote_code": False, "dtype": DTYPES[dtype or "float32"]}
            return read_pretrained(library.XLNetLMHeadModel, place, "an XLNet", **options).to(device).eval(), None
    return read_network("XLNetLMHeadModel", where, device, dtype, trust_remote_code=False)


def _check_kind(config: Any, name: str) -> None:
    if getattr(config, "model_type", None) != "xlnet":
        raise UserError(f"{name} is no XLNet: give a folder or a network of that kind.")
    if config.attn_type != "bi":
        raise UserError(f"{name} reads from left to right only: take an XLNet whose attn_type is bi.")


def _options(config: Any) -> dict[str, Any]:
    return {
        "layers": config.n_layer, "hidden": config.d_model, "heads": config.n_head, "feedforward": config.d_inner,
        "dropout": config.dropout, "attention_dropout": config.dropout, "memory": config.mem_len or 0,
        "clamp_length": config.clamp_len if config.clamp_len > 0 else None, "norm_epsilon": config.layer_norm_eps,
        "activation": choose(ACTIVATIONS, config.ff_activation, "activation of transformers' XLNet"),
    }  # fmt: skip


def _config(backbone: XlNet, specials: Specials | None) -> Any:
    layer: Any = backbone.layers[0]
    attention = layer.attention
    if attention.heads * attention.size != backbone.width:
        raise UserError("transformers' XLNet has heads of size hidden / heads: leave head_size out.")
    theirs = {ours: name for name, ours in ACTIVATIONS.items()}
    padding, separator = (None, None) if specials is None else (specials.padding, specials.separator)
    return transformers().XLNetConfig(
        vocab_size=backbone.vocabulary, d_model=backbone.width, n_layer=len(backbone.layers), n_head=attention.heads,
        d_inner=layer.wide.out_features, ff_activation=theirs[backbone.activation], dropout=backbone.dropout,
        mem_len=backbone.memory or None, clamp_len=backbone.clamp_length or -1,
        layer_norm_eps=layer.attention_norm.eps, pad_token_id=padding, sep_token_id=separator,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


@torch.no_grad()
def _fill(model: Autoregressive, weights: dict[str, Tensor], bias: Tensor | None) -> None:
    backbone: Any = model.backbone
    backbone.embedding.copy_(weights["word_embedding.weight"])
    backbone.mask.copy_(weights["mask_emb"].flatten())
    for number, layer in enumerate(backbone.layers):
        own = {name.removeprefix(f"layer.{number}."): value for name, value in weights.items()}
        q, k, v, r = (own[f"rel_attn.{name}"].flatten(1).t() for name in "qkvr")
        layer.load_state_dict(
            {ours: own[theirs] for ours, theirs in NAMES.items()}
            | {
                "attention.query.weight": q, "attention.memory.weight": torch.cat([k, v]),
                "attention.position.weight": r, "attention.out.weight": own["rel_attn.o"].flatten(1),
                "attention.biases": torch.stack([own[name] for name in BIASES]),
            }
        )  # fmt: skip
    if bias is not None:
        model.head.linear.bias.copy_(bias)  # type: ignore[attr-defined]


def _weights(model: Autoregressive) -> tuple[dict[str, Tensor], Tensor]:
    """Of the body under transformers' names, and the bias of the output."""
    backbone: Any = model.backbone
    linear: Any = getattr(model.head, "linear", None)
    if getattr(linear, "weight", None) is not backbone.embedding:
        raise UserError("transformers' XLNet predicts by its input vectors: save a model with a tied softmax head.")
    weights = {"word_embedding.weight": backbone.embedding, "mask_emb": backbone.mask.view(1, 1, -1)}
    for number, layer in enumerate(backbone.layers):
        own, attention = layer.state_dict(), layer.attention
        shape = (backbone.width, attention.heads, attention.size)
        k, v = attention.memory.weight.chunk(2)
        matrices = zip("qkvr", (attention.query.weight, k, v, attention.position.weight), strict=True)
        theirs = {f"rel_attn.{name}": matrix.t().reshape(shape) for name, matrix in matrices}
        theirs |= {"rel_attn.o": attention.out.weight.view(shape)} | dict(zip(BIASES, attention.biases, strict=True))
        theirs |= {name: own[ours] for ours, name in NAMES.items()}
        weights |= {f"layer.{number}.{name}": value for name, value in theirs.items()}
    return weights, linear.bias


def _written(tokeniser: Tokeniser, specials: Specials) -> Any:
    """transformers' tokenizer: texts end in <sep> <cls>, padding stands before them as its XLNet wants it."""
    if isinstance(tokeniser, PretrainedTokeniser) and tokeniser.original is not None:
        return tokeniser.original
    described = getattr(tokeniser, "model", None)
    if not isinstance(described, str):
        raise UserError(
            f"transformers cannot read a {type(tokeniser).__name__} tokeniser: save a model of byte-pair encoding or"
            " unigram pieces, or give no tokeniser."
        )
    library = tokenizers()
    backend = library.Tokenizer.from_str(described)
    names = {"sep_token": "<sep>", "cls_token": "<cls>", "mask_token": "<mask>", "pad_token": "<pad>"}
    if specials.separator == tokeniser.size:  # of ebar's own, to which they come as the next numbers
        backend.add_special_tokens(list(names.values()))
    else:
        names = {key: backend.id_to_token(number) for key, number in zip(names, specials, strict=True)}
    sep, cls = names["sep_token"], names["cls_token"]
    backend.post_processor = library.processors.TemplateProcessing(
        single=f"$A:0 {sep}:0 {cls}:2", pair=f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2",
        special_tokens=[(sep, specials.separator), (cls, specials.classification)],
    )  # fmt: skip
    told = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers().PreTrainedTokenizerFast(
        tokenizer_object=backend, padding_side="left", model_input_names=told, **names
    )
