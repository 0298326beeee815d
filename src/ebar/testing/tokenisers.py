"""Laws of tokenisers."""

from collections.abc import Sequence

from ebar.data.tokenisers import EncodesMany, Tokeniser
from ebar.testing.laws import require

TEXTS = ("", "a", "one two three", "  spaces  and\ttabs ", "line\nbreaks\n", "naïve café — 東京 🙂")


def check_tokeniser(tokeniser: Tokeniser, texts: Sequence[str] = TEXTS) -> None:
    """Tokens are numbers below `size`, they spell the text that they were made from, and many texts are as each alone.

    Give texts of the tokeniser's own alphabet or vocabulary where it knows no others.
    """
    encoded = [tokeniser.encode(text) for text in texts]
    for text, tokens in zip(texts, encoded, strict=True):
        require(all(0 <= token < tokeniser.size for token in tokens), f"tokens lie below `size`: {text!r}")
        spelt = tokeniser.decode(tokens)
        require(spelt == text, f"tokens spell the text they were made from: {text!r} became {spelt!r}")
        require(tokeniser.encode(spelt) == tokens, f"encoding again gives the same tokens: {text!r}")
    if isinstance(tokeniser, EncodesMany):
        require(tokeniser.encode_many(list(texts)) == encoded, "many texts at once are encoded as each alone")
