"""Pretrained models by folder, hub name, .gguf file or .bin of llama2.c; saved so that transformers can read them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ebar.backbones.pretrained import llama2c
from ebar.backbones.pretrained.hugging_face import (
    PICKLES,
    check_folder,
    hub_answers,
    quiet,
    read,
    refusal,
    transformers,
)
from ebar.backbones.pretrained.lora import merged
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.errors import UserError, choose
from ebar.models.pretrained import Pretrained
from ebar.types import Space

Precision = Literal["float64", "float32", "bfloat16", "float16", "8bit"]
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "8bit": torch.float16,  # of what is not in 8 bits
}


class Loaded(NamedTuple):
    """A causal language model and its tokeniser."""

    model: Pretrained
    tokeniser: PretrainedTokeniser


class LoadedEncoder(NamedTuple):
    """A network that gives a vector for each token, and its tokeniser."""

    network: nn.Module
    tokeniser: PretrainedTokeniser


def load_causal(
    where: str | Path, *, length: int, end: bool = False, device: str | None = None, dtype: Precision | None = None,
    trust_remote_code: bool = False,
) -> Loaded:  # fmt: skip
    """q over continuations of `length` tokens; with `end`, of at most that many, the last of them the end of a text."""
    network, tokenizer = _read("AutoModelForCausalLM", where, device, dtype, trust_remote_code)
    tokeniser = PretrainedTokeniser.of(tokenizer)
    if end and tokeniser.end is None:
        raise UserError(f"{where} has no token that ends a text: give continuations a fixed length.")
    logits = int(network.get_output_embeddings().weight.shape[0])
    space = Space(min(logits, tokeniser.size), length, tokeniser.end if end else None)
    return Loaded(Pretrained(network, space, beginning=tokeniser.beginning, begins=tokeniser.begins), tokeniser)


def load_encoder(
    where: str | Path, *, device: str | None = None, dtype: Precision | None = None, trust_remote_code: bool = False
) -> LoadedEncoder:
    """The body of an encoder (BERT and its kin) or of a causal model, without its head."""
    network, tokenizer = _read("AutoModel", where, device, dtype, trust_remote_code)
    return LoadedEncoder(network, PretrainedTokeniser.of(tokenizer))


def save_causal(loaded: Loaded, folder: Path) -> None:
    """As transformers saves them, what LoRA has learnt added to the weights."""
    network: Any = merged(loaded.model.network)
    with quiet():
        network.save_pretrained(folder)
        (loaded.tokeniser.original or _rebuilt(loaded.tokeniser)).save_pretrained(folder)


def _rebuilt(tokeniser: PretrainedTokeniser) -> Any:
    """transformers' tokenizer from what a run has kept of it."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokeniser.model)
    named = {"bos_token": tokeniser.beginning, "eos_token": tokeniser.end}
    special = {name: backend.id_to_token(token) for name, token in named.items() if token is not None}
    return transformers().PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def _read(
    kind: str, where: str | Path, device: str | None, dtype: Precision | None, trust_remote_code: bool
) -> tuple[Any, Any]:
    """The network in evaluation mode, and transformers' tokenizer."""
    library = transformers()
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    place = Path(where)
    if place.is_file() and place.suffix == ".bin":
        network, tokenizer = _llama2c(place, kind)
        network = network.to(device=device, dtype=choose(DTYPES, dtype or "float32", "precision"))
        return network.eval(), tokenizer
    if place.is_file() and place.suffix == ".gguf":
        _check_gguf(place)
        options["gguf_file"] = place.name
        where = place.parent
    elif place.is_dir():
        check_folder(place)
    elif place.is_file():
        raise UserError(
            refusal(place) if place.suffix in PICKLES
            else f"{place} is no model: give its folder, a .gguf file or a .bin file of llama2.c."
        )  # fmt: skip
    else:
        options["local_files_only"] = not hub_answers()  # what was downloaded once is found without the hub
    tokenizer = read(library.AutoTokenizer, where, "a tokenizer", **options)
    weights: dict[str, Any] = {"dtype": choose(DTYPES, dtype or "float32", "precision")}
    if "gguf_file" not in options:
        weights["use_safetensors"] = True
    if dtype == "8bit":
        weights |= _eight_bits(device)
    network = read(getattr(library, kind), where, "a model", **options, **weights)
    if "gguf_file" in options:
        _forget_quantisation(network)
    if dtype != "8bit":
        network = network.to(device)
    return network.eval(), tokenizer


def _forget_quantisation(network: Any) -> None:
    """What was read from a .gguf file is plain numbers by now: transformers is to save it as such."""
    network.hf_quantizer = None
    network.is_quantized = False
    for holder, name in ((network.config, "quantization_config"), (network, "quantization_method")):
        if name in vars(holder):
            delattr(holder, name)


def _llama2c(path: Path, kind: str) -> tuple[Any, Any]:
    if path.read_bytes()[:2] in (b"PK", b"\x80\x02"):
        raise UserError(refusal(path))
    network = llama2c.read_model(path)
    tokenizer = llama2c.read_tokenizer(path, network.config.vocab_size)
    return (network.model if kind == "AutoModel" else network), tokenizer


def _check_gguf(path: Path) -> None:
    if find_spec("gguf") is None:
        raise UserError(f"{path} needs the package gguf: install it with pip install gguf.")


def _eight_bits(device: str | None) -> dict[str, Any]:
    if find_spec("bitsandbytes") is None or not torch.cuda.is_available():
        raise UserError("8-bit weights need a GPU and the package bitsandbytes: choose float32 or bfloat16 here.")
    return {
        "quantization_config": transformers().BitsAndBytesConfig(load_in_8bit=True),
        "device_map": device or "cuda",
    }
