"""A language model so small that every text it can make is known: six tokens, at most four of them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.config.control import ControlConfig
from ebar.journeys.control.subject import Subject, subject_of
from ebar.models.loading import Loaded, load_causal

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
def loaded(folder: Path) -> Loaded:
    return load_causal(folder, length=LENGTH, end=True)


@pytest.fixture
def control(folder: Path) -> ControlConfig:
    return ControlConfig(
        model=str(folder), length=LENGTH, ends=True, draws=2000, checks=2000, surrogate_draws=500, rows=2000
    )


@pytest.fixture
def subject(control: ControlConfig, loaded: Loaded) -> Subject:
    return subject_of(control, loaded)
