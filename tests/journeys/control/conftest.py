"""A language model so small that every text it can make is known: six tokens, at most four of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.automata.lift import Reading
from ebar.build.control import read_constraints
from ebar.data.tokenisers import reading_of_space
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.journey import control
from ebar.models.construction import from_pretrained
from ebar.models.pretrained import Pretrained

PIECES = ["a", "b", "ab", "Ġ", "c", "<end>"]  # Ġ is a blank
LENGTH = 4


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2 and its tokenizer, as transformers saves them."""
    transformers = pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
    tokenizers = pytest.importorskip("tokenizers")
    place = tmp_path_factory.mktemp("tiny")
    configuration = transformers.GPT2Config(
        vocab_size=len(PIECES), n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=5, eos_token_id=5,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.4,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        transformers.GPT2LMHeadModel(configuration).save_pretrained(place)
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<end>", eos_token="<end>"
    )
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture(scope="session")
def model(folder: Path) -> Pretrained:
    return from_pretrained(folder, length=LENGTH, ends=True)


@pytest.fixture
def reading(model: Pretrained) -> Reading:
    """How features read its tokens."""
    return reading_of_space(model.tokeniser, model.space)


@pytest.fixture(scope="session")
def controlled_by(model: Pretrained) -> Callable[..., Controlled]:
    """The model, controlled by terms as the command line has them."""

    def make(*terms: str, **options: Any) -> Controlled:
        told = {"draws": 2000, "checks": 2000, "surrogate_draws": 500, "rows": 2000, "seed": 0, **options}
        return control(model, read_constraints(terms), **told)

    return make
