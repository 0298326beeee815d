"""A Hugging Face sequence classifier as a function of texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ebar.backbones.pretrained.hugging_face import check_folder, read, transformers
from ebar.errors import UserError

BATCH = 64


def classifier(argument: str, *, device: torch.device) -> Callable[[list[str]], list[float]]:
    """texts → the probability of a label, from FOLDER:LABEL, or FOLDER alone where there is only one."""
    place, _, label = argument.rpartition(":")
    if not place or Path(argument).exists():
        place, label = argument, ""
    network, tokenizer = _loaded(place, device)
    names = {str(name): int(number) for number, name in network.config.id2label.items()}
    single = network.config.num_labels == 1
    if not single and label not in names:
        known = ", ".join(sorted(names))
        raise UserError(f"The classifier {place} needs one of its labels, as in {place}:{min(names)}: it has {known}.")

    @torch.no_grad()
    def probabilities(texts: list[str]) -> list[float]:
        found: list[float] = []
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            read = tokenizer(part, padding=True, truncation=True, return_tensors="pt").to(device)
            logits = network(**read).logits.double()
            chances = torch.sigmoid(logits[:, 0]) if single else torch.softmax(logits, -1)[:, names[label]]
            found += chances.tolist()
        return found

    return probabilities


def _loaded(place: str, device: torch.device) -> tuple[Any, Any]:
    """Weights in safetensors only, and no code that comes with them."""
    library = transformers()
    if Path(place).is_dir():
        check_folder(Path(place))
    tokenizer = read(library.AutoTokenizer, place, "a tokenizer")
    network = read(
        library.AutoModelForSequenceClassification, place, "a sequence classifier",
        use_safetensors=True, dtype=torch.float32,
    )  # fmt: skip
    return network.to(device).eval(), tokenizer
