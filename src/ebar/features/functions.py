"""Features that a Python function computes: of one text at a time, or of a batch of texts.

The probability that a Hugging Face sequence classifier gives to a label.

Features of points: any function of a tensor, with a name and a range.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ebar.automata.lift import Reading, without_end
from ebar.errors import UserError
from ebar.features.regular import UnboundError
from ebar.hugging_face import check_folder, read_pretrained, transformers
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences

UNBOUND = -1  # in place of an end: no token has this number


@dataclass(frozen=True, slots=True)
class Predicate:
    """FILE.py:FUNCTION, a function of the text: true or false, or a number from 0 to 1.

    In Python it is given as it is. Once bound it reads text, before which stands what the reading has `before`. Made
    with an `end` and no decoder it reads the list of tokens, the end left out. It is called once per row and must
    depend on nothing else; `low` and `high` bound it. With `conditional` it takes a second argument, the context's
    tokens, or what they decode to. With `truth`, or where it is to be `absent`, only whether it holds counts.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    name: str = ""
    absent: bool = False
    truth: bool = False
    end: int | None = UNBOUND
    decode: Callable[[list[int]], Any] | None = None
    before: str = ""
    conditional: bool = False
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{'no ' if self.absent else ''}{_named(self.function)}")

    def bind(self, reading: Reading) -> "Predicate":
        if self.end != UNBOUND:
            return self
        return replace(self, end=reading.end, decode=reading.text, before=reading.before)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.end == UNBOUND:
            raise UnboundError(self.name)
        if self.conditional and context is None:
            raise UserError(f"Feature {self.name!r} looks at the context, and there is none.")
        with torch.no_grad(), evaluation_mode(self.function):
            values = [self._value(x, context, row) for row in range(len(x.lengths))]
        return torch.tensor(values, dtype=torch.float64, device=x.tokens.device)

    def _value(self, x: Sequences, context: Context | None, row: int) -> float:
        tokens = x.prefix(row)
        try:
            seen = self._seen(tokens)
            arguments = [self.before + seen if self.before else seen]
            if self.conditional and context is not None:
                arguments.append(self._seen(context.given.prefix(row)))
            found = self._called(*arguments)
            value = float(bool(found) is not self.absent if self.truth or self.absent else found)
        except UserError as error:
            raise UserError(f"Feature {self.name!r} on the sequence {tokens}: {error}") from error
        except Exception as error:
            raise UserError(f"Feature {self.name!r} raised {_reason(error)} on the sequence {tokens}.") from error
        if not self.low <= value <= self.high:
            raise UserError(
                f"Feature {self.name!r} is {value} on the sequence {tokens}, outside its bounds "
                f"{self.low} and {self.high}: {_advice(value)}."
            )
        return value

    def _called(self, *arguments: Any) -> Any:
        found = self.function(*arguments)
        return of_shape(found, (), "its value") if isinstance(found, Tensor) and found.numel() != 1 else found

    def _seen(self, tokens: list[int]) -> Any:
        inside = without_end(tokens, self.end)
        return inside if self.decode is None else self.decode(inside)


@dataclass(frozen=True, slots=True, eq=False)
class TextScore:
    """FILE.py:FUNCTION, a function of a list of texts: a number from 0 to 1 for each.

    In Python it is given as it is. An end token is no part of a text; `low` and `high` bound the numbers. No
    automaton follows it, so looking ahead leaves it to the weights.
    """

    function: Callable[[list[str]], Sequence[float]]
    _: KW_ONLY
    name: str = ""
    decode: Callable[[list[int]], str] | None = None
    end: int | None = None
    before: str = ""
    """Text that the tokens continue, and which is scored with them."""
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"score {_named(self.function)}")

    def bind(self, reading: Reading) -> "TextScore":
        if self.decode is not None:
            return self
        return replace(self, decode=reading.text, end=reading.end, before=reading.before)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.decode is None:
            raise UnboundError(self.name)
        if isinstance(self.function, nn.Module):
            self.function.to(x.tokens.device)
        texts = [self.before + self.decode(without_end(row, self.end)) for row in x.rows()]
        with torch.no_grad(), evaluation_mode(self.function):
            found = self._called(texts)
        try:
            values = torch.as_tensor(found, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"Feature {self.name!r} must give a number for each text: {error}.") from error
        of_shape(values, (len(texts),), f"Feature {self.name!r} of {len(texts)} texts")
        outside = (~((values >= self.low) & (values <= self.high))).nonzero()  # NaN is
        if len(outside):
            row = int(outside[0])
            raise UserError(
                f"Feature {self.name!r} is {float(values[row])} on {texts[row]!r}, outside its bounds {self.low:g} and "
                f"{self.high:g}: {_advice(float(values[row]))}."
            )
        return values.to(x.tokens.device)

    def _called(self, texts: list[str]) -> Any:
        try:
            return self.function(texts)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"Feature {self.name!r} raised {_reason(error)} on {len(texts)} texts.") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _advice(value: float) -> str:
    return "let the function give a number" if math.isnan(value) else "give it the bounds it keeps to"


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


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


@dataclass(frozen=True, slots=True)
class PointFeature:
    """φ(x) of points or images: `PointFeature("radius", lambda x: x.norm(dim=1), low=0)`; a predicate gives 0 and 1.

    Give low and high where they are known: the interval of a mean stays inside, and a side never drawn is reported.
    """

    name: str
    function: Callable[[Float[Tensor, "batch ..."]], Float[Tensor, " batch"] | Bool[Tensor, " batch"]]
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        found = self.function(x)
        return found.to(x.dtype) if isinstance(found, Tensor) else found
