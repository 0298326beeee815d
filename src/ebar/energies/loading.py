"""Pretrained encoders, for energies that read text."""

from pathlib import Path
from typing import NamedTuple

from torch import nn

from ebar.backbones.pretrained.reading import Precision, read_network
from ebar.data.pretrained_tokeniser import PretrainedTokeniser


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
