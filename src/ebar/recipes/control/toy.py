"""A random language model of seventy letters, for the smallest scale."""

import shutil
import string
from pathlib import Path

import torch

from ebar.hugging_face import quiet, transformers
from ebar.store.writing import TEMPORARY

LETTERS = "Ġ" + string.ascii_letters + string.digits + ".,!?'-"  # Ġ is a blank
END = "<end>"


def write_toy(folder: Path) -> Path:
    """A folder as transformers saves it, written once."""
    if folder.exists():
        return folder
    import tokenizers

    library = transformers()
    pieces = [*LETTERS, "ab", END]
    configuration = library.GPT2Config(
        vocab_size=len(pieces), n_positions=32, n_embd=16, n_layer=1, n_head=2, initializer_range=0.2,
        bos_token_id=len(pieces) - 1, eos_token_id=len(pieces) - 1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={piece: token for token, piece in enumerate(pieces)}, merges=[("a", "b")])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=END, eos_token=END)
    temporary = folder.with_name(TEMPORARY + folder.name)
    shutil.rmtree(temporary, ignore_errors=True)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        library.GPT2LMHeadModel(configuration).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    temporary.rename(folder)
    return folder
