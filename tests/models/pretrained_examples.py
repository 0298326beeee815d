"""Tiny random networks of transformers, one of each way to remember: all keys, a window of them, a running state."""

from typing import Any

import pytest
import torch

from ebar.models.pretrained import Pretrained
from ebar.types import Context, Sequences, Space

transformers = pytest.importorskip("transformers")

FIXED = Space(vocabulary=3, length=4)
ENDING = Space(vocabulary=3, length=4, end=1)  # not the last token, as it seldom is
SPACES = {"fixed": FIXED, "ending": ENDING}
NETWORKS = ["gpt2", "llama", "window", "capped", "convolution"]
LLAMA = {
    "vocab_size": 5, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 16, "head_dim": 4,
}  # fmt: skip
NO_TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def network_of(kind: str, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(11)
    if kind == "capped" and dtype == torch.float64:
        dtype = torch.float32  # transformers' eager attention overflows in double precision where prefixes are padded
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=5, n_positions=16, n_embd=16, n_layer=2, n_head=4, initializer_range=0.5, **NO_TOKENS
        )
        network = transformers.GPT2LMHeadModel(config)
    elif kind == "llama":
        network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, initializer_range=0.5, **NO_TOKENS))
    elif kind == "window":
        config = transformers.MistralConfig(**LLAMA, sliding_window=3, initializer_range=0.5, **NO_TOKENS)
        network = transformers.MistralForCausalLM(config)
    elif kind == "capped":
        config = transformers.Gemma2Config(
            **LLAMA, query_pre_attn_scalar=4, attn_logit_softcapping=1.0, sliding_window=64,
            layer_types=["full_attention"] * 2, initializer_range=0.5, attn_implementation="eager", **NO_TOKENS,
        )  # fmt: skip
        network = transformers.Gemma2ForCausalLM(config)
    else:
        config = transformers.Lfm2Config(
            **{name: value for name, value in LLAMA.items() if name != "head_dim"},
            layer_types=["conv", "full_attention"], initializer_range=0.5, **NO_TOKENS,
        )  # fmt: skip
        network = transformers.Lfm2ForCausalLM(config)
    return network.to(dtype).eval()


def pretrained(
    kind: str, space: Space = FIXED, *, beginning: int | None = 4, dtype: torch.dtype = torch.float64
) -> Any:
    return Pretrained(network_of(kind, dtype), space, beginning=beginning)


def ragged() -> Context:
    """The second and the fourth are the same prefix, whatever pads them."""
    tokens = torch.tensor([[0, 99, 99, 99], [1, 0, 99, 99], [2, 1, 0, 1], [1, 0, 98, 97]])
    return Context(Sequences(tokens, torch.tensor([1, 2, 4, 2])))
