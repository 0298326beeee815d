"""The probability that a Hugging Face sequence classifier gives to a label."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ebar.errors import UserError
from ebar.features.functions import TextScore
from ebar.hugging_face import check_folder, read_pretrained, transformers

BATCH = 64


def classifier(place: Path | str) -> TextScore:
    """FOLDER:LABEL, the probability of a label by a Hugging Face sequence classifier; FOLDER alone where it has one."""
    argument = str(place)
    where, _, label = argument.rpartition(":")
    if not where or Path(argument).exists():
        where, label = argument, ""
    network, tokenizer = _loaded(where)
    names = {str(name): int(number) for number, name in network.config.id2label.items()}
    single = network.config.num_labels == 1
    if not single and label not in names:
        known = ", ".join(sorted(names))
        raise UserError(f"The classifier {where} needs one of its labels, as in {where}:{min(names)}: it has {known}.")
    chance = Probability(network, tokenizer, None if single else names[label])
    return TextScore(chance, name=f"classifier {argument}")


class Probability(nn.Module):
    """texts → the probability of one label; of a network with a single output, its logistic function."""

    def __init__(self, network: nn.Module, tokenizer: Any, label: int | None):
        super().__init__()
        self.network, self.tokenizer, self.label = network, tokenizer, label

    @torch.no_grad()
    def forward(self, texts: list[str]) -> list[float]:
        found: list[float] = []
        device = next(self.network.parameters()).device
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            ids = self.tokenizer(part, padding=True, truncation=True, return_tensors="pt").to(device)
            logits = self.network(**ids).logits.double()
            single = self.label is None
            chances = torch.sigmoid(logits[:, 0]) if single else torch.softmax(logits, -1)[:, self.label]
            found += chances.tolist()
        return found


def _loaded(place: str) -> tuple[Any, Any]:
    """Weights in safetensors only, and no code that comes with them."""
    library = transformers()
    if Path(place).is_dir():
        check_folder(Path(place))
    tokenizer = read_pretrained(library.AutoTokenizer, place, "a tokenizer")
    network = read_pretrained(
        library.AutoModelForSequenceClassification, place, "a sequence classifier",
        use_safetensors=True, dtype=torch.float32,
    )  # fmt: skip
    return network.eval(), tokenizer
