"""The probability that a Hugging Face sequence classifier gives to a label."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.features.functions import TextScore
from ebar.hugging_face import check_folder, read_pretrained, transformers

BATCH = 64


def classifier(place: Path | str) -> TextScore:
    """FOLDER:LABEL, the probability of a label by a Hugging Face sequence classifier; FOLDER alone where it has one."""
    argument = str(place)
    where, label = _parts(argument)
    network, tokenizer = _loaded(where)
    names = {str(name): int(number) for number, name in network.config.id2label.items()}
    single = network.config.num_labels == 1
    if not single and label not in names:
        known = ", ".join(sorted(names))
        raise UserError(f"The classifier {where} needs one of its labels, as in {where}:{min(names)}: it has {known}.")
    chance = Probability(network, tokenizer, None if single else names[label])
    return TextScore(chance, name=f"classifier {argument}")


def reward_model(place: Path | str) -> "Probability | Output":
    """FOLDER, a sequence classifier with one output, which is the reward, as trl trains them; or FOLDER:LABEL."""
    where, _ = _parts(str(place))
    network, tokenizer = _loaded(where)
    if network.config.num_labels == 1:
        return Output(network, tokenizer)
    found: Any = classifier(place).function
    chances: Probability = found
    return chances


def _parts(argument: str) -> tuple[str, str]:
    where, _, label = argument.rpartition(":")
    return (argument, "") if not where or Path(argument).exists() else (where, label)


class Output(nn.Module):
    """texts → the single output of a network, as it is: the reward of a reward model."""

    def __init__(self, network: nn.Module, tokenizer: Any):
        super().__init__()
        self.network, self.tokenizer = network, tokenizer

    def forward(self, texts: list[str]) -> list[float]:
        return [value for logits in _logits(self.network, self.tokenizer, texts) for value in logits[:, 0].tolist()]


class Probability(nn.Module):
    """texts → the probability of one label; of a network with a single output, its logistic function."""

    def __init__(self, network: nn.Module, tokenizer: Any, label: int | None):
        super().__init__()
        self.network, self.tokenizer, self.label = network, tokenizer, label

    def forward(self, texts: list[str]) -> list[float]:
        found: list[float] = []
        for logits in _logits(self.network, self.tokenizer, texts):
            single = self.label is None
            chances = torch.sigmoid(logits[:, 0]) if single else torch.softmax(logits, -1)[:, self.label]
            found += chances.tolist()
        return found


@torch.no_grad()
def _logits(network: nn.Module, tokenizer: Any, texts: list[str]) -> Iterator[Float[Tensor, "rows outputs"]]:
    """What the network gives, some texts at a time, in float64."""
    device = next(network.parameters()).device
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        ids = tokenizer(part, padding=True, truncation=True, return_tensors="pt").to(device)
        yield network(**ids).logits.double()


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
