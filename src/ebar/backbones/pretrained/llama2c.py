"""Models of llama2.c: a .bin file of 32-bit numbers, and its tokenizer in a tok….bin beside it.

The layout is that of the first version of github.com/karpathy/llama2.c: seven integers, then matrices layer by layer.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebar.errors import UserError
from ebar.hugging_face import quiet, transformers

HEADER = struct.Struct("<7i")
PIECE = struct.Struct("<fi")
BEGINNING, END, UNKNOWN = "<s>", "</s>", "<unk>"
BEGUN = {"SpecialToken": {"id": BEGINNING, "type_id": 0}}
SPACE = "\u2581"  # how sentencepiece writes a blank


def read_model(path: Path) -> Any:
    """A `LlamaForCausalLM` with the file's weights."""
    raw = path.read_bytes()
    if len(raw) < HEADER.size:
        raise UserError(f"{path} is no model of llama2.c: it is shorter than the header of one.")
    width, hidden, layers, heads, shared_heads, vocabulary, positions = HEADER.unpack_from(raw)
    tied, vocabulary = vocabulary > 0, abs(vocabulary)
    if min(width, hidden, layers, heads, shared_heads, vocabulary, positions) < 1 or width % heads:
        raise UserError(f"{path} is no model of llama2.c: its header makes no sense.")
    size = width // heads
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (vocabulary, width),
        "attention_norm": (layers, width),
        "query": (layers, width, width),
        "key": (layers, size * shared_heads, width),
        "value": (layers, size * shared_heads, width),
        "out": (layers, width, width),
        "feedforward_norm": (layers, width),
        "gate": (layers, hidden, width),
        "down": (layers, width, hidden),
        "up": (layers, hidden, width),
        "norm": (width,),
        "angles": (positions, size),  # cosines and sines, which transformers works out itself
    }
    if not tied:
        shapes["head"] = (vocabulary, width)
    wanted = HEADER.size + 4 * sum(math.prod(shape) for shape in shapes.values())
    if len(raw) != wanted:
        raise UserError(f"{path} is no model of llama2.c: it has {len(raw)} bytes, and its header asks for {wanted}.")
    numbers = np.frombuffer(raw, dtype="<f4", offset=HEADER.size)
    weights: dict[str, Tensor] = {}
    begin = 0
    for name, shape in shapes.items():
        count = math.prod(shape)
        weights[name] = torch.from_numpy(numbers[begin : begin + count].reshape(shape).astype(np.float32))
        begin += count
    library = transformers()
    config = library.LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=shared_heads, max_position_embeddings=positions,
        rms_norm_eps=1e-5, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with quiet():
        network = library.LlamaForCausalLM(config)
    network.load_state_dict(_named(weights, layers, heads, shared_heads))
    return network.eval()


def _named(weights: dict[str, Tensor], layers: int, heads: int, shared_heads: int) -> dict[str, Tensor]:
    """The weights by transformers' names."""
    named = {"model.embed_tokens.weight": weights["embedding"], "model.norm.weight": weights["norm"]}
    named["lm_head.weight"] = weights.get("head", weights["embedding"])
    for layer in range(layers):
        start = f"model.layers.{layer}."
        named[start + "input_layernorm.weight"] = weights["attention_norm"][layer]
        named[start + "post_attention_layernorm.weight"] = weights["feedforward_norm"][layer]
        named[start + "self_attn.q_proj.weight"] = _in_halves(weights["query"][layer], heads)
        named[start + "self_attn.k_proj.weight"] = _in_halves(weights["key"][layer], shared_heads)
        named[start + "self_attn.v_proj.weight"] = weights["value"][layer]
        named[start + "self_attn.o_proj.weight"] = weights["out"][layer]
        for name in ("gate", "down", "up"):
            named[start + f"mlp.{name}_proj.weight"] = weights[name][layer]
    return named


def _in_halves(matrix: Tensor, heads: int) -> Tensor:
    """llama2.c turns neighbouring numbers by an angle, transformers the two halves of a head."""
    rows, columns = matrix.shape
    return matrix.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def read_pieces(path: Path, vocabulary: int) -> list[tuple[bytes, float]]:
    """What each token spells and how early it is merged, as the file has them."""
    raw, begin = path.read_bytes(), 4  # the length of the longest piece comes first
    pieces: list[tuple[bytes, float]] = []
    try:
        for _ in range(vocabulary):
            score, length = PIECE.unpack_from(raw, begin)
            begin += PIECE.size
            if not 0 <= length <= len(raw) - begin:
                raise struct.error("a piece longer than the file")
            pieces.append((raw[begin : begin + length], score))
            begin += length
    except struct.error as error:
        raise UserError(
            f"{path} is no tokenizer of llama2.c for {vocabulary} tokens ({error}): give the one that "
            "belongs to the model."
        ) from None
    return pieces


def read_llama2c_tokenizer(model: Path, vocabulary: int) -> Any:
    """transformers' tokenizer with the same merges: bytes for what has no piece, a blank before the first word."""
    names = [model.parent / f"tok{vocabulary}.bin", model.parent / "tokenizer.bin"]
    found = [name for name in names if name.exists()]
    if not found:
        raise UserError(f"{model} needs its tokenizer beside it: there is no {names[0].name} and no {names[1].name}.")
    pieces = read_pieces(found[0], vocabulary)
    spelt = [UNKNOWN, BEGINNING, END]
    spelt += [piece.decode("utf-8", errors="replace").replace(" ", SPACE) for piece, _ in pieces[3:]]
    number = {piece: token for token, piece in enumerate(spelt)}
    if len(number) < len(spelt):
        raise UserError(f"{found[0]} spells several tokens alike: it cannot be used to read text.")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    described = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": spelt[token], **special} for token in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {  # the beginning before every text
            "type": "TemplateProcessing", "single": [BEGUN, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [BEGUN, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {BEGINNING: {"id": BEGINNING, "ids": [1], "tokens": [BEGINNING]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE", "dropout": None, "unk_token": UNKNOWN, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": number, "merges": _merges(spelt, number, [score for _, score in pieces]),
        },
    }  # fmt: skip
    from tokenizers import Tokenizer

    with quiet():
        return transformers().PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(described)),
            bos_token=BEGINNING, eos_token=END, unk_token=UNKNOWN,
        )  # fmt: skip


def _merges(spelt: list[str], number: dict[str, int], scores: list[float]) -> list[list[str]]:
    """Every pair of pieces that makes a piece, the best piece first: llama2.c merges the pair with the best score."""
    pairs = [
        (-scores[token], token, piece[:cut], piece[cut:])
        for token, piece in enumerate(spelt)
        if token > 2
        for cut in range(1, len(piece))
        if piece[:cut] in number and piece[cut:] in number and not piece.startswith("<0x")
    ]
    return [[left, right] for _, _, left, right in sorted(pairs, key=lambda pair: pair[:2])]
