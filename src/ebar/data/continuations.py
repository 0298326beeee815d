"""Text as prefixes and what follows them: the chunks of a residual model. Document 002, §3.

Every continuation has the same number of tokens: a stream has no ends. (Stories that end within a continuation would
need chunks cut story by story; `Space.end` and `Sequences.lengths` allow for them, this cutting does not make them.)
"""

from itertools import islice

import torch
from jaxtyping import Int
from torch import Tensor

from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.data.text import Texts, read_tokens, texts_of, windows
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.types import Context, Sequences

TOGETHER = 4096  # lines that a pretrained model's tokeniser encodes as one text


def read_stream(texts: Texts, tokeniser: Tokeniser) -> Int[Tensor, " tokens"]:
    """A pretrained model has read whole texts: lines encoded one by one would be tokens that it seldom saw."""
    if not isinstance(tokeniser, PretrainedTokeniser):
        return read_tokens(texts, tokeniser)
    lines, tokens = texts_of(texts), list[int]()
    while together := list(islice(lines, TOGETHER)):
        tokens += tokeniser.encode("".join(together))
    return torch.tensor(tokens, dtype=torch.long)


def continuations(
    stream: Int[Tensor, " tokens"], *, prefix: int = 120, continuation: int = 40
) -> tuple[Sequences, Context]:
    """Consecutive chunks of `prefix` + `continuation` tokens, none overlapping another; a shorter rest is left out.

    Disjoint, because a token that is a positive of one chunk and a condition of the next would count twice.
    """
    if prefix < 1 or continuation < 1:
        raise UserError(f"A chunk has a prefix and a continuation of a token or more, not {prefix} and {continuation}.")
    length = prefix + continuation
    if len(stream) < length:
        raise UserError(
            f"The text has {len(stream):,} tokens, too few for one chunk of {prefix:,} + {continuation:,}: "
            "give more text, or shorter prefixes and continuations."
        )
    chunks = windows(stream, length)
    lengths = chunks.lengths
    given = Sequences(chunks.tokens[:, :prefix].contiguous(), lengths - continuation)
    return Sequences(chunks.tokens[:, prefix:].contiguous(), lengths - prefix), Context(given)
