"""A residual model of two networks made by transformers: a causal one for the base, an encoder for the energy."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

from ebar.build.residual import load_base, load_chunks, load_residual, train_residual  # noqa: E402
from ebar.config.reader import Chosen  # noqa: E402
from ebar.config.residual import ResidualConfig  # noqa: E402
from ebar.data.chunks import ChunksData  # noqa: E402
from ebar.energies.reencoded import keep_layers  # noqa: E402
from ebar.errors import UserError  # noqa: E402
from ebar.hugging_face import quiet  # noqa: E402
from ebar.journeys.residual.journey import Residual as Trained  # noqa: E402
from ebar.journeys.residual.settings import Fitting  # noqa: E402
from ebar.modes import evaluation_mode  # noqa: E402
from ebar.store.differences import as_yaml  # noqa: E402
from ebar.training.run import Checkpoints, open_run  # noqa: E402

POSITIONS = 40
ENERGY: dict[str, Any] = {
    "lora": None, "frozen_layers": 0, "cut_prefix": False, "pool": "continuation",
}  # fmt: skip


def saved(folder: Path, network: Any, tokenizer: Tokenizer, **special: str) -> Path:
    with quiet():
        network.save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return folder


def byte_level(text: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train([str(text)], trainer)
    return tokenizer


def causal(vocabulary: int) -> Any:
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=POSITIONS, n_embd=8, n_layer=2, n_head=2, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def words(positions: int = 64) -> tuple[Any, Tokenizer]:
    from ebar.recipes.grid import toy_text

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(toy_text(100, 0).split()))]
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=len(pieces), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=positions,
    )  # fmt: skip
    return transformers.BertModel(config, add_pooling_layer=False), tokenizer


@pytest.fixture(scope="module")
def models_of(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = byte_level(text)
    saved(folder / "causal", causal(tokenizer.get_vocab_size()), tokenizer)
    saved(folder / "encoder", *words())
    return folder


def asked(models_of: Path, text: Path, **energy: Any) -> ResidualConfig:
    return ResidualConfig(
        base=str(models_of / "causal"),
        data=ChunksData(train=text, prefix=12, continuation=5, chunks=12, validation_chunks=4, test_chunks=4),
        energy=Chosen(kind="pretrained", options={"encoder": str(models_of / "encoder"), **ENERGY, **energy}),
        training=Fitting(epochs=1, batch_size=6, learning_rate=1e-2),
    )


def run(residual: ResidualConfig, folder: Path) -> Trained:
    with open_run(folder, config=as_yaml(asdict(residual)), seed=residual.seed):
        return train_residual(residual, folder)


def energies(journey: Trained) -> list[float]:
    x, context = journey.chunks.test
    with torch.no_grad():
        return list(journey.energy(x, context).tolist())


def test_an_encoder_is_trained_and_read_back(models_of, text, tmp_path, generator):
    made = run(asked(models_of, text, frozen_layers=1), tmp_path / "run")
    assert any(value != 0 for value in energies(made))
    read = load_residual(tmp_path / "run")
    assert energies(read) == energies(made)
    before, _ = words()
    after = made.energy.encoder.network
    assert torch.equal(
        after.encoder.layer[0].attention.self.query.weight, before.encoder.layer[0].attention.self.query.weight
    )
    assert not torch.equal(
        after.encoder.layer[1].attention.self.query.weight, before.encoder.layer[1].attention.self.query.weight
    )
    kept = Checkpoints(tmp_path / "run" / "energy" / "checkpoints").best()
    assert kept is not None
    assert not any(".layer.0." in name or "embeddings" in name for name in kept.weights["energy"])
    assert any(".layer.1." in name for name in kept.weights["energy"])
    drawn = read.generate("the cat sees", candidates=8, generator=generator)
    assert drawn.candidates.x.lengths.tolist() == [5] * 8


def test_the_lowest_layers_alone_make_a_smaller_encoder() -> None:
    (whole, _), (network, _) = words(), words()
    with torch.no_grad(), evaluation_mode(whole, network):
        every = whole(input_ids=torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states
        keep_layers(network, 1)
        found = network(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state
    assert torch.equal(found, every[1])
    assert len(network.encoder.layer) == network.config.num_hidden_layers == 1


def test_with_low_rank_matrices_nothing_else_is_kept(models_of, text, tmp_path):
    made = run(asked(models_of, text, lora=2), tmp_path / "run")
    kept = Checkpoints(tmp_path / "run" / "energy" / "checkpoints").best()
    assert kept is not None
    names = set(kept.weights["energy"])
    assert all("lora" in name or name.startswith("head") for name in names)
    assert {"head.weight", "head.bias"} < names
    assert energies(load_residual(tmp_path / "run")) == energies(made)


def test_a_causal_base_can_be_its_own_energy(models_of, text, tmp_path):
    unit = Chosen(kind="unit", options={"start": "base", "lora": None, "pool": "continuation"})
    residual = replace(asked(models_of, text), energy=unit)
    made = run(residual, tmp_path / "run")
    assert energies(load_residual(tmp_path / "run")) == energies(made)
    with pytest.raises(UserError, match=r"leave out energy\.start"):
        run(replace(residual, energy=Chosen(kind="unit", options={"start": "fresh"})), tmp_path / "fresh")


def test_text_is_encoded_as_a_whole_not_line_by_line(models_of, text, tmp_path):
    residual = replace(asked(models_of, text), data=ChunksData(train=text, prefix=12, continuation=5))
    found = load_base(residual)
    chunks = load_chunks(residual, found, tmp_path)
    assert chunks.train.context is not None
    assert found.base.tokeniser is not None
    first = chunks.train.context.given.prefix(0) + chunks.train.x.prefix(0)
    assert found.base.tokeniser.encode(text.read_text())[:17] == first


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"data": {"prefix": 30, "continuation": 20}}, "A prefix of 30 tokens .* reads at most 40: make the prefix"),
        ({"energy": {"frozen_layers": 3}}, "The encoder has 2 layers, so 3 of them cannot be frozen"),
        ({"energy": {"layers": 3}}, "The encoder has 2 layers, so 3 of them cannot be kept"),
        ({"data": {"train": None}}, "A pretrained base brings no text with it"),
    ],
)
def test_what_does_not_fit_is_told(models_of, text, tmp_path, change, match):
    residual = asked(models_of, text, **change.get("energy", {}))
    residual = replace(residual, data=replace(residual.data, **change.get("data", {})))
    with pytest.raises(UserError, match=match):
        run(residual, tmp_path / "run")
    assert not (tmp_path / "run" / "negatives").exists()


def test_an_encoder_with_too_few_positions_is_told_before_anything_is_drawn(models_of, text, tmp_path):
    saved(tmp_path / "short", *words(positions=6))
    with pytest.raises(UserError, match="the encoder has 6 positions: make the prefix shorter"):
        run(asked(models_of, text, encoder=str(tmp_path / "short")), tmp_path / "run")
    assert not (tmp_path / "run" / "negatives").exists()


def test_a_tokenizer_that_changes_the_text_is_told(models_of, text, tmp_path):
    tokenizer = byte_level(text)
    tokenizer.normalizer = normalizers.Lowercase()
    saved(tmp_path / "lower", causal(tokenizer.get_vocab_size()), tokenizer)
    upper = tmp_path / "upper.txt"
    upper.write_text(text.read_text().replace("the", "The"))
    residual = replace(asked(models_of, upper), base=str(tmp_path / "lower"))
    with pytest.raises(UserError, match="does not give text back as it was: 'T"):
        run(residual, tmp_path / "run")
