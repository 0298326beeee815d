"""Pretrained causal language models: read with their tokeniser, and saved so that transformers can read them."""

from pathlib import Path
from typing import Any

from ebar.backbones.pretrained.reading import Precision, merged, read_network
from ebar.data.pretrained_tokeniser import PretrainedTokeniser
from ebar.errors import UserError
from ebar.hugging_face import quiet, transformers
from ebar.models.pretrained import Pretrained
from ebar.types import Space


def from_pretrained(
    where: str | Path | tuple[Any, Any], *, length: int = 40, ends: bool = False, device: str | None = None,
    dtype: Precision | None = None, trust_remote_code: bool = False,
) -> Pretrained:  # fmt: skip
    """A causal language model over continuations of `length` tokens; if it `ends`, of at most that many.

    `where` is a name on the hub, a folder, a .gguf file, a .bin file of llama2.c, or a pair (model, tokenizer) of
    transformers. A model in memory stays where it is and in its precision unless `device` is given.
    """
    if isinstance(where, tuple):
        network, tokenizer = where
        network = network if device is None else network.to(device)
        name = type(network).__name__
    else:
        network, tokenizer = read_network("AutoModelForCausalLM", where, device, dtype, trust_remote_code)
        name = str(where)
    tokeniser = PretrainedTokeniser.of(tokenizer)
    if ends and tokeniser.end is None:
        raise UserError(f"{name} has no token that ends a text: give continuations a fixed length.")
    logits = int(network.get_output_embeddings().weight.shape[0])
    space = Space(min(logits, tokeniser.size), length, tokeniser.end if ends else None)
    return Pretrained(
        network, space, beginning=tokeniser.beginning, begins=tokeniser.begins, tokeniser=tokeniser
    )  # fmt: skip


def save_pretrained(model: Pretrained, folder: Path) -> None:
    """As transformers saves them, LoRA adapters merged into the weights; the tokeniser beside it."""
    network: Any = merged(model.network)
    with quiet():
        network.save_pretrained(folder)
        if model.tokeniser is not None:
            (model.tokeniser.original or _rebuilt(model.tokeniser)).save_pretrained(folder)


def _rebuilt(tokeniser: PretrainedTokeniser) -> Any:
    """transformers' tokenizer from what a run has kept of it."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokeniser.model)
    named = {"bos_token": tokeniser.beginning, "eos_token": tokeniser.end}
    special = {name: backend.id_to_token(token) for name, token in named.items() if token is not None}
    return transformers().PreTrainedTokenizerFast(tokenizer_object=backend, **special)
