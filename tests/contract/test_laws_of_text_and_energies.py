"""The laws of `ebar.testing` over the tables of features and tokenisers, and over every energy and model there is.

An entry of a table, or a class of an energy or model, that has no example here is an error.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Generator, nn

import ebar.energies
import ebar.models
from ebar.automata.deterministic import Dfa
from ebar.automata.lift import Reading
from ebar.backbones.lstm import Lstm
from ebar.data import TOKENISERS
from ebar.data.built_tokeniser import PretrainedTokeniser, read_tokeniser
from ebar.data.tokenisers import Alphabet
from ebar.energies.conditional import ConditionalLinear, MeanPool
from ebar.energies.discriminators import DISCRIMINATORS
from ebar.energies.kinds import ENERGIES as KINDS
from ebar.energies.linear import Linear, OwnLogits
from ebar.energies.neural import unit
from ebar.energies.reencoded import LoadedEncoder
from ebar.energies.suffix import Suffix
from ebar.features import FEATURES, Features, Length, Motif, bind
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.tabular import Tabular
from ebar.models.truncated import Prompted
from ebar.testing import check_energy, check_feature, check_stepwise, check_tokeniser
from ebar.testing.tokenisers import TEXTS
from ebar.types import Context, Sequences, Space

SPACE = Space(vocabulary=4, length=5, end=3)
READINGS = {
    "characters": Reading(alphabet="ab ", end=3, longest=5),
    "longer tokens": Reading(spellings=[b"a", b"ab", b" ", None], end=3, longest=5),
    "after a prompt": Reading(spellings=[b"a", b"ab", b" ", None], end=3, longest=5, before="a b"),
}
FEATURE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "motif": {"motif": "aba"},
    "expression": {"expression": "(ab){2}|b"},
    "word": {"expression": "ab|a"},
    "whole": {"expression": "(a|b)*"},
    "starts_with": {"prefix": "ab"},
    "ends_with": {"suffix": "ab"},
    "ordered": {"keyphrases": "a...ab"},
    "word_count": {"words": "1-2"},
    "template": {"template": "a{} {b?}"},
    "ngram_count": {"ngram": "aa"},
    "length": {},
    "predicate": {"function": lambda text: text.count("a") > 1},
    "score": {"function": lambda texts: [1 / (1 + len(text)) for text in texts]},
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("absent", [False, True], ids=["present", "absent"])
@pytest.mark.parametrize("name", sorted(set(FEATURES) - {"accepted", "agrees", "classifier"}))
def test_features(name: str, absent: bool, reading: str) -> None:
    options = dict(FEATURE_ARGUMENTS[name])
    if absent:
        if "absent" not in inspect.signature(FEATURES[name]).parameters:
            pytest.skip("has degrees, and no opposite")
        options["absent"] = True
    check_feature(bind(FEATURES.make(name, options), READINGS[reading]), SPACE)


def test_a_feature_of_an_automaton() -> None:
    even = Dfa(torch.tensor([[1, 0, 0], [0, 1, 1]]), torch.tensor([True, False]))  # an even number of tokens 0
    check_feature(FEATURES.make("accepted", {"automaton": even, "name": "even"}, end=3), SPACE)


def test_a_feature_of_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and a tokenizer of transformers, each as little as the feature asks of it."""
    module = importlib.import_module("ebar.features.functions")
    monkeypatch.setattr(module, "_loaded", lambda place: (_Classifier(), _symbols))
    check_feature(bind(FEATURES.make("classifier", {"place": "somewhere:glad"}), READINGS["characters"]), SPACE)


class _Classifier(nn.Module):
    """Two classes, by how often the text has an a."""

    class config:  # noqa: N801 — as transformers has it
        num_labels, max_position_embeddings = 2, 64
        id2label = {0: "sad", 1: "glad"}  # noqa: RUF012
        label2id = {"sad": 0, "glad": 1}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
        count = (input_ids == 1).float().sum(1, keepdim=True)
        return type("Output", (), {"logits": 0.1 * count * self.scale * torch.tensor([-1.0, 1.0])})()


def _symbols(texts: list[str], **_: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    width = max(map(len, texts), default=0) + 1
    rows = [[1 if symbol == "a" else 2 for symbol in text.ljust(width)] for text in texts]
    return transformers.BatchEncoding({"input_ids": torch.tensor(rows)})


@pytest.mark.parametrize("name", sorted(set(TOKENISERS) - {"pretrained"}))
def test_tokenisers(name: str) -> None:
    texts = TEXTS if name != "words" else ("", "one", "one two three", "two\ntwo\n")
    made = TOKENISERS[name].train([*TEXTS, *texts])
    check_tokeniser(made, texts)
    check_tokeniser(read_tokeniser(made.to_json()), texts)


def test_a_pretrained_tokeniser() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=False))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    check_tokeniser(PretrainedTokeniser(backend.to_str(), beginning=None, end=None))


LETTERS = Alphabet("ac ")
CONTEXT = Context(Sequences(torch.tensor([[0, 99, 99], [1, 0, 2]]), torch.tensor([1, 3])))


def lstm() -> Autoregressive:
    torch.manual_seed(0)
    backbone = Lstm(4, layers=1, hidden=6, dropout=0.0)
    return Autoregressive(backbone, Softmax(6, 4), SPACE).double()


def moved(energy: nn.Module) -> nn.Module:
    """Away from its first weights, at which many energies are 0."""
    generator = Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return energy


def features() -> Features:
    return Features([bind(Motif("ab"), READINGS["characters"]), bind(Length(), READINGS["characters"])])


def by_name(kind: str, **options: Any) -> nn.Module:
    """An entry of the table beside a small model of ours."""
    torch.manual_seed(1)
    provided = {"base": lstm(), "vocabulary": 4, "tokeniser": LETTERS, "device": "cpu", "location": None, "fresh": None}
    wanted = inspect.signature(KINDS[kind]).parameters
    made = KINDS.make(kind, options, **{name: value for name, value in provided.items() if name in wanted})
    return moved(made).double()


SMALL: dict[str, dict[str, Any]] = {
    "bit": {"layers": 1, "hidden": 8, "heads": 2},
    "xlnet": {"layers": 1, "hidden": 8, "heads": 2},
    "pretrained": {"encoder": "somewhere"},
}
ENERGIES: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: Linear(features(), torch.tensor([1.5, -0.1]).double()),
    "ConditionalLinear": lambda: ConditionalLinear(features(), moved(MeanPool(4, 2)).double()),
    "OwnLogits": lambda: OwnLogits(lstm()),
    "Neural": lambda: moved(unit(lstm().backbone)).double(),  # type: ignore[arg-type]
    "Bit, over all": lambda: by_name("bit", **SMALL["bit"], pool="all"),
    "Bit, bounded": lambda: by_name("bit", **SMALL["bit"], bound=3.0),
    **{kind: partial(by_name, kind, **SMALL.get(kind, {})) for kind in KINDS},
}


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pretrained energy is loaded from: a small encoder of transformers with its tokeniser."""
    pytest.importorskip("transformers")
    from transformers import PreTrainedTokenizerFast

    from tests.energies.test_reencoded import bert, wordpiece

    original = PreTrainedTokenizerFast(tokenizer_object=wordpiece(), pad_token="[PAD]")
    loaded = LoadedEncoder(bert(), PretrainedTokeniser.of(original))
    monkeypatch.setattr("ebar.energies.kinds.load_encoder", lambda *_, **__: loaded)


@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
@pytest.mark.parametrize("name", ENERGIES)
def test_energies(name: str, conditional: bool, request: pytest.FixtureRequest) -> None:
    if name == "pretrained":
        request.getfixturevalue("encoder")
    if name == "ConditionalLinear" and not conditional:
        pytest.skip("its coefficients are made from a context")
    check_energy(ENERGIES[name](), SPACE, CONTEXT if conditional else None)


@pytest.mark.parametrize("conditional", [False, True], ids=["unconditional", "conditional"])
def test_the_energy_of_a_suffix(conditional: bool) -> None:
    """Of texts without an end, to which the model adds the suffix."""
    whole = Space(vocabulary=3, length=5)
    model = Tabular.random(whole, conditions=2 if conditional else 1, generator=Generator().manual_seed(1))
    check_energy(Suffix(model, [2, 0]), Space(vocabulary=3, length=3), CONTEXT if conditional else None)


def classes(package: Any, wanted: Callable[[type], bool]) -> set[str]:
    """Those that the modules of a package define."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        for one in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if inspect.isclass(one) and one.__module__.startswith(package.__name__) and wanted(one):
                found.add(one.__name__)
    return found


def test_every_energy_has_an_example() -> None:
    """An energy is a module of E(x, C); what reads the sequence for one takes a third argument."""

    def is_energy(one: type) -> bool:
        return issubclass(one, nn.Module) and list(inspect.signature(one.forward).parameters) == [
            "self",
            "x",
            "context",
        ]

    # Draws nothing and learns nothing: a last layer whose norm is bounded, a part of Neural.
    known = {name.partition(",")[0] for name in ENERGIES} | {kind.__name__ for kind in KINDS.values()}
    # Discriminators read points and images, not sequences: tests/models/test_generators.py has them.
    known |= {kind.__name__ for kind in DISCRIMINATORS.values()} | {Suffix.__name__}
    assert classes(ebar.energies, is_energy) - known == set()


def test_a_prompted_model() -> None:
    table = Tabular.random(SPACE, conditions=2, generator=Generator().manual_seed(1))
    prompt = Context(Sequences(torch.tensor([[1]]), torch.tensor([1])))
    check_stepwise(Prompted(table, prompt))


def test_a_pretrained_model() -> None:
    from tests.models.pretrained_examples import pretrained, ragged

    check_stepwise(pretrained("llama"))
    check_stepwise(pretrained("llama", Space(vocabulary=3, length=4, end=1)), ragged())


def test_every_model_that_steps_has_an_example() -> None:
    from tests.contract.test_laws import other_models

    known = {"Autoregressive", "Prompted", "Pretrained", *(type(model).__name__ for model in other_models().values())}

    def steps(one: type) -> bool:
        return issubclass(one, nn.Module) and hasattr(one, "start") and hasattr(one, "advance")

    assert classes(ebar.models, steps) - known == set()
