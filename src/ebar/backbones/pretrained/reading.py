"""A pretrained network and its tokenizer: a folder, a hub name, a .gguf file or a .bin file of llama2.c.

Low-rank adaptation (Hu et al. 2021), by peft: W + (α/r)·B·A, where only A and B learn.
"""

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ebar import hugging_face
from ebar.backbones.pretrained import llama2c
from ebar.errors import UserError, choose

Precision = Literal["float64", "float32", "bfloat16", "float16", "8bit"]
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "8bit": torch.float16,  # of what is not in 8 bits
}


def positions_in_table(network: nn.Module) -> int | None:
    """How many tokens its table of positions is for; where it has a row for padding, RoBERTa's, those after it."""
    for name, part in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            return part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1)
    return None


def read_network(
    kind: str, where: str | Path, device: str | None, dtype: Precision | None, trust_remote_code: bool
) -> tuple[Any, Any]:
    """The network in evaluation mode, and transformers' tokenizer."""
    library = hugging_face.transformers()
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
        hugging_face.check_folder(place)
        hugging_face.check_tokenizer(place)
    elif place.is_file():
        raise UserError(
            hugging_face.refusal(place) if place.suffix in hugging_face.PICKLES
            else f"{place} is no model: give its folder, a .gguf file or a .bin file of llama2.c."
        )  # fmt: skip
    else:
        # What was downloaded once is found without the hub.
        options["local_files_only"] = not hugging_face.hub_answers()
    tokenizer = hugging_face.read_pretrained(library.AutoTokenizer, where, "a tokenizer", **options)
    weights: dict[str, Any] = {"dtype": choose(DTYPES, dtype or "float32", "precision")}
    if "gguf_file" not in options:
        weights["use_safetensors"] = True
    if dtype == "8bit":
        weights |= _eight_bits(device)
    network = hugging_face.read_pretrained(getattr(library, kind), where, "a model", **options, **weights)
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
        raise UserError(hugging_face.refusal(path))
    network = llama2c.read_model(path)
    tokenizer = llama2c.read_llama2c_tokenizer(path, network.config.vocab_size)
    return (network.model if kind == "AutoModel" else network), tokenizer


def _check_gguf(path: Path) -> None:
    if find_spec("gguf") is None:
        raise UserError(f"{path} needs the package gguf: install it with pip install gguf.")


def _eight_bits(device: str | None) -> dict[str, Any]:
    if find_spec("bitsandbytes") is None or not torch.cuda.is_available():
        raise UserError("8-bit weights need a GPU and the package bitsandbytes: choose float32 or bfloat16 here.")
    return {
        "quantization_config": hugging_face.transformers().BitsAndBytesConfig(load_in_8bit=True),
        "device_map": device or "cuda",
    }


def with_lora(
    network: nn.Module, *, rank: int = 8, alpha: float | None = None, dropout: float = 0.0,
    kind: Literal["causal", "encoder"] = "causal",
) -> nn.Module:  # fmt: skip
    """The network with matrices of low rank beside all its linear layers, only those learning; B is 0 at first.

    α is 2·rank where none is given, so that the rank does not change the size of a step.
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, not {rank}")
    library = hugging_face.peft()
    configuration = library.LoraConfig(
        r=rank, lora_alpha=2 * rank if alpha is None else alpha, lora_dropout=dropout, target_modules="all-linear",
        task_type="CAUSAL_LM" if kind == "causal" else "FEATURE_EXTRACTION",
    )  # fmt: skip
    try:
        with hugging_face.quiet():
            made: nn.Module = library.get_peft_model(network, configuration)
    except ValueError as error:
        raise UserError(f"{type(network).__name__} cannot have low-rank matrices beside its own: {error}.") from None
    return made


def merged(network: nn.Module) -> nn.Module:
    """A network without adapters that computes the same; the given one stays as it is."""
    if not hasattr(network, "merge_and_unload"):
        return network
    with hugging_face.quiet():
        twin: Any = copy.deepcopy(network)
        made: nn.Module = twin.merge_and_unload()
    return made
