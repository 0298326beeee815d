"""Tokenisers, corpora, and languages of known entropy."""

from ebar.data.bpe import Bpe
from ebar.data.tokenisers import Alphabet, Bytes, Words

TOKENISERS = {"characters": Alphabet, "bytes": Bytes, "words": Words, "bpe": Bpe}
