"""Tokens that spell nothing: what separates texts, what stands for a whole input, for a hidden token, for padding.

    one text    A … SEP CLS            segments 0 … 0 0 2
    a pair      A … SEP B … SEP CLS    segments 0 … 0 0 1 … 1 1 2

CLS stands last, as in XLNet (Yang et al. 2019).
"""

from typing import NamedTuple

from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.tokenisers import Tokeniser

NAMES = (
    ("<sep>", "<cls>", "<mask>", "<pad>"),
    ("[SEP]", "[CLS]", "[MASK]", "[PAD]"),
)  # as pretrained models spell them


class Specials(NamedTuple):
    """Their numbers in a model's vocabulary."""

    separator: int
    classification: int
    mask: int
    padding: int


def specials_of(tokeniser: Tokeniser) -> Specials:
    """A pretrained tokenizer's own, where it has all four; otherwise the four numbers after the tokeniser's last."""
    return _own(tokeniser) or Specials(*range(tokeniser.size, tokeniser.size + len(Specials._fields)))


def vocabulary_with_specials(tokeniser: Tokeniser) -> int:
    """How many tokens a model of this tokeniser's text has, the special ones counted."""
    return max(tokeniser.size, 1 + max(specials_of(tokeniser)))


def _own(tokeniser: Tokeniser) -> Specials | None:
    if not isinstance(tokeniser, PretrainedTokeniser):
        return None
    for names in NAMES:
        found = [tokeniser.number(name) for name in names]
        if None not in found:
            return Specials(*[number for number in found if number is not None])
    return None
