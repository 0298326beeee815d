"""Pretrained causal language models: read with their tokeniser, and saved so that transformers can read them."""

from pathlib import Path
from typing import Any, NamedTuple

from ebar.backbones.pretrained.hugging_face import quiet, transformers
from ebar.backbones.pretrained.lora import merged
from ebar.backbones.pretrained.reading import Precision, read_network
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.errors import UserError
from ebar.models.pretrained import Pretrained
from ebar.types import Space


class Loaded(NamedTuple):
    """A causal language model and its tokeniser."""

    model: Pretrained
    tokeniser: PretrainedTokeniser


def load_causal(
    where: str | Path, *, length: int, end: bool = False, device: str | None = None, dtype: Precision | None = None,
    trust_remote_code: bool = False,
) -> Loaded:  # fmt: skip
    """q over continuations of `length` tokens; with `end`, of at most that many, the last of them the end of a text."""
    network, tokenizer = read_network("AutoModelForCausalLM", where, device, dtype, trust_remote_code)
    tokeniser = PretrainedTokeniser.of(tokenizer)
    if end and tokeniser.end is None:
        raise UserError(f"{where} has no token that ends a text: give continuations a fixed length.")
    logits = int(network.get_output_embeddings().weight.shape[0])
    space = Space(min(logits, tokeniser.size), length, tokeniser.end if end else None)
    return Loaded(Pretrained(network, space, beginning=tokeniser.beginning, begins=tokeniser.begins), tokeniser)


def save_causal(loaded: Loaded, folder: Path) -> None:
    """As transformers saves them, what LoRA has learnt added to the weights."""
    network: Any = merged(loaded.model.network)
    with quiet():
        network.save_pretrained(folder)
        (loaded.tokeniser.original or _rebuilt(loaded.tokeniser)).save_pretrained(folder)


def _rebuilt(tokeniser: PretrainedTokeniser) -> Any:
    """transformers' tokenizer from what a run has kept of it."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokeniser.model)
    named = {"bos_token": tokeniser.beginning, "eos_token": tokeniser.end}
    special = {name: backend.id_to_token(token) for name, token in named.items() if token is not None}
    return transformers().PreTrainedTokenizerFast(tokenizer_object=backend, **special)
