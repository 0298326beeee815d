"""Tokenisers, corpora, and languages of known entropy."""

from ebar.data.tokenisers import Alphabet, Bytes

TOKENISERS = {"alphabet": Alphabet, "bytes": Bytes}
