"""Pretrained encoders, for energies that read text."""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from ebar.backbones.pretrained.reading import Precision, read_network
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.errors import UserError


class LoadedEncoder(NamedTuple):
    """A network that gives a vector for each token, and its tokeniser."""

    network: nn.Module
    tokeniser: PretrainedTokeniser


def load_encoder(
    where: str | Path, *, device: str | None = None, dtype: Precision | None = None, trust_remote_code: bool = False
) -> LoadedEncoder:
    """The body of an encoder (BERT and its kin) or of a causal model, without its head."""
    network, tokenizer = read_network("AutoModel", where, device, dtype, trust_remote_code)
    return LoadedEncoder(network, PretrainedTokeniser.of(tokenizer))


def freeze(network: nn.Module, layers: int) -> None:
    """The embeddings and the lowest layers learn no more: cheaper, and less to learn by heart."""
    stacks = [part for part in network.modules() if isinstance(part, nn.ModuleList)]
    if not stacks or layers > len(stacks[0]):
        count = len(stacks[0]) if stacks else 0
        raise UserError(f"The encoder has {count} layers, so {layers} of them cannot be frozen.")
    network.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    for part in (*([network.embeddings] if hasattr(network, "embeddings") else []), *stacks[0][:layers]):
        part.requires_grad_(False)
