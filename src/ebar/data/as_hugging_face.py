"""A tokeniser of ebar's as a tokenizer of transformers: the beginning and the end of a text are tokens of their own."""

import json
from typing import Any

from ebar.automata.lift import byte_characters
from ebar.data.built_tokeniser import PretrainedTokeniser
from ebar.data.pieces import Pieces, tokenizer_from_json
from ebar.data.tokenisers import REPLACEMENT, UNKNOWN, Alphabet, Bytes, Tokeniser, Words
from ebar.hugging_face import tokenizers, transformers
from ebar.types import Space

BEGINNING, END = "<|beginning|>", "<|end|>"


def hugging_face_tokenizer(tokeniser: Tokeniser, space: Space, *, longest: int | None = None) -> Any | None:
    """A `PreTrainedTokenizerFast` that puts the beginning, token number `space.vocabulary`, before every text.

    Text becomes the tokens that the tokeniser gives it. None where that cannot be: for a tokeniser of one's own, or one
    whose numbers leave no room for these two. `longest` is what the model can read, the beginning included. Words come
    back with blanks around line breaks, which ebar takes away.
    """
    backend = _backend(tokeniser)
    if backend is None:
        return None
    names = [BEGINNING] if space.end is None else [END, BEGINNING]
    numbers = [space.vocabulary] if space.end is None else [space.end, space.vocabulary]
    library = tokenizers()
    for name in names:
        backend.add_special_tokens([library.AddedToken(name, special=True, normalized=False)])
    if [backend.token_to_id(name) for name in names] != numbers:
        return None
    backend.post_processor = library.processors.TemplateProcessing(
        single=f"{BEGINNING} $A", pair=f"{BEGINNING} $A $B", special_tokens=[(BEGINNING, space.vocabulary)]
    )
    named = {"bos_token": BEGINNING, **({} if space.end is None else {"eos_token": END, "pad_token": END})}
    return transformers().PreTrainedTokenizerFast(
        tokenizer_object=backend, **named, clean_up_tokenization_spaces=False, model_max_length=longest
    )


def _backend(tokeniser: Tokeniser) -> Any | None:
    """An object of the package `tokenizers` that makes the same tokens of a text, and nothing besides."""
    library = tokenizers()
    if isinstance(tokeniser, Pieces | PretrainedTokeniser):
        described = json.loads(tokeniser.model)
        return tokenizer_from_json(json.dumps({**described, "post_processor": None}, ensure_ascii=False))
    if isinstance(tokeniser, Bytes):
        alphabet = byte_characters()
        made = library.Tokenizer(library.models.BPE(vocab={one: at for at, one in enumerate(alphabet)}, merges=[]))
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.decoder = library.decoders.ByteLevel()
        return made
    split = library.pre_tokenizers.Split
    if isinstance(tokeniser, Alphabet):
        symbols = [*tokeniser.symbols, *([REPLACEMENT] if tokeniser.unknown else [])]
        made = library.Tokenizer(_one_by_one(library, symbols, REPLACEMENT if tokeniser.unknown else None))
        made.pre_tokenizer = split(library.Regex(r"[\s\S]"), "isolated")
        made.decoder = library.decoders.Fuse()
        return made
    if isinstance(tokeniser, Words):
        made = library.Tokenizer(_one_by_one(library, [UNKNOWN, *tokeniser.words], UNKNOWN))
        blanks = split(library.Regex(r"[^\S\n]+"), "removed")
        made.pre_tokenizer = library.pre_tokenizers.Sequence([split("\n", "isolated"), blanks])
        return made
    return None


def _one_by_one(library: Any, pieces: list[str], unknown: str | None) -> Any:
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return library.models.WordLevel(vocab=vocabulary, **({} if unknown is None else {"unk_token": unknown}))
