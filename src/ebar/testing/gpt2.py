"""Weights of a Hugging Face GPT-2 in a Transformer of ebar: the same arithmetic, hence the same hidden vectors."""

from typing import Any

import torch

from ebar.backbones.transformer import Transformer


@torch.no_grad()
def from_gpt2(gpt2: Any) -> Transformer:
    """The backbone of a `GPT2Model`, the vector of its beginning-of-text token standing for the beginning.

    The head's weights are those of its `lm_head`, without bias.
    """
    config = gpt2.config
    if config.activation_function not in ("gelu_new", "gelu_pytorch_tanh"):
        raise ValueError(f"GPT-2's activation is gelu_new, not {config.activation_function}")
    if config.layer_norm_epsilon != 1e-5 or not config.scale_attn_weights or config.scale_attn_by_inverse_layer_idx:
        raise ValueError("this GPT-2 is not scaled as the original is")
    made = Transformer(
        config.vocab_size, layers=config.n_layer, hidden=config.n_embd, heads=config.n_head, feedforward=config.n_inner,
        dropout=config.resid_pdrop, positions="learnt", maximal_length=config.n_positions, activation="gelu_tanh",
    )  # fmt: skip
    decoder: Any = made.decoder
    tokens = gpt2.wte.weight
    decoder.inputs.copy_(torch.cat([tokens, tokens[config.bos_token_id][None]]) / decoder.scale)
    decoder.positions.table.copy_(gpt2.wpe.weight / decoder.scale)
    for layer, theirs in zip(decoder.layers, gpt2.h, strict=True):
        pairs = (
            (layer.attention.into, theirs.attn.c_attn),
            (layer.attention.out, theirs.attn.c_proj),
            (layer.wide, theirs.mlp.c_fc),
            (layer.narrow, theirs.mlp.c_proj),
        )
        for linear, transposed in pairs:
            linear.weight.copy_(transposed.weight.T)
            linear.bias.copy_(transposed.bias)
        layer.attention_norm.load_state_dict(theirs.ln_1.state_dict())
        layer.feedforward_norm.load_state_dict(theirs.ln_2.state_dict())
    decoder.norm.load_state_dict(gpt2.ln_f.state_dict())
    return made
