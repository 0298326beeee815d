"""XLNet as the energy of a residual model: its content stream, pretrained or new; and transformers' own over text."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

import ebar
from ebar.backbones.xlnet import XlNetBidirectional
from ebar.cli import main
from ebar.data.tokenisers import Alphabet
from ebar.energies.kinds import ENERGIES, XlNetEnergy
from ebar.energies.neural import Neural
from ebar.energies.reencoded import Reencoded, load_encoder
from ebar.errors import UserError
from ebar.journeys.residual.settings import Fitting
from ebar.models.construction import assemble
from ebar.recipes.grid import toy_text
from ebar.types import Context, Sequences, Space
from tests.cli.test_residual import BASE, SMALL

LETTERS = Alphabet("abcd")
SIZES: dict[str, Any] = {"layers": 1, "hidden": 8, "heads": 2}


def xlnet(letters: Alphabet = LETTERS, **settings: Any) -> Any:
    """A model with the tokens of some letters and the four that spell nothing."""
    torch.manual_seed(0)
    model = assemble(Space(letters.size + 4, 6), "xlnet", {**SIZES, **settings}, "softmax", {"tied": True}).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    model.tokeniser = letters
    return model.eval()


def lively(energy: Any) -> Any:
    with torch.no_grad():
        energy.head.weight.copy_(torch.randn(energy.head.weight.shape, generator=Generator().manual_seed(0)))
    return energy.double().eval()


GIVEN = Context(Sequences(torch.tensor([[0, 99, 99], [1, 2, 3]]), torch.tensor([1, 3])))
X = Sequences(torch.tensor([[1, 2, 99], [0, 1, 3]]), torch.tensor([2, 3]))


def test_it_is_the_mean_of_the_content_vectors_of_the_continuation():
    model = xlnet()
    energy = lively(ebar.xlnet_energy(model))
    with torch.no_grad():
        for row, (whole, first) in enumerate(([[0, 1, 2], 1], [[1, 2, 3, 0, 1, 3], 3])):
            content = model.backbone(torch.tensor([whole])).content[0]
            wanted = (energy.head(content[first:].mean(0)), energy.head(content.mean(0)))
            torch.testing.assert_close(energy(X, GIVEN)[row : row + 1], wanted[0])
            over_all = lively(ebar.xlnet_energy(model, pool="all"))
            torch.testing.assert_close(over_all(X, GIVEN)[row : row + 1], wanted[1])
    assert energy.encoder.backbone.network is not model.backbone  # a copy, which learns
    with pytest.raises(UserError, match="no XLNet"):
        ebar.xlnet_energy(assemble(Space(4, 6), "lstm", {}))


def started(model: Any, **settings: Any) -> Any:
    return XlNetEnergy(vocabulary=LETTERS.size, tokeniser=LETTERS, opened=lambda _: model, start="runs/x", **settings)


def test_it_starts_from_a_pretrained_network_with_the_tokens_of_the_base():
    model = xlnet()
    energy = started(model)
    torch.testing.assert_close(lively(energy)(X, GIVEN), lively(ebar.xlnet_energy(model))(X, GIVEN))
    assert energy.begins_with.epochs == 0
    assert energy.encoder.backbone.mask_token == LETTERS.size + 2
    assert started(xlnet(), chunk=2).encoder.backbone.network.chunks == [2]
    with pytest.raises(UserError, match="another tokeniser than the base"):
        started(xlnet(Alphabet("abcde")))
    with pytest.raises(UserError, match="holds a Lstm"):
        started(assemble(Space(4, 6), "lstm", {}))


def test_new_weights_learn_to_fill_gaps_first():
    energy = ENERGIES.make("xlnet", {**SIZES, "warm_up": 2}, vocabulary=5)
    network = energy.encoder.backbone
    assert isinstance(network, XlNetBidirectional)
    assert (network.vocabulary, network.mask_token, len(network.inputs)) == (5, 7, 9)
    assert (energy.begins_with.epochs, energy.begins_with.model.encoder) == (2, network)


def test_a_residual_model_of_it_is_trained_in_python():
    data = ebar.language(motif="101", length=6, size=48, test_size=24)
    base = ebar.xlnet(data, **SIZES)
    energy = ebar.xlnet_energy(base)
    made = ebar.residual(base, energy, data, fitting=Fitting(epochs=1, batch_size=16, learning_rate=1e-2), seed=0)
    assert bool(made.energy.head.weight.any())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, an XLNet that was pretrained on it, and a base with its tokeniser."""
    folder = tmp_path_factory.mktemp("xlnet")
    (folder / "text.txt").write_text(toy_text(80, 0))
    text, own = str(folder / "text.txt"), ["--runs", str(folder), "--json", "--training.epochs", "1"]
    sizes = [word for name, value in SIZES.items() for word in (f"--backbone.{name}", str(value))]
    pretraining = [
        "--data.length",
        "24",
        "--data.reuse",
        "8",
        "--data.tokeniser",
        "bytes",
        "--training.batch_size",
        "4",
    ]
    assert main(["pretrain", "--name", "xlnet", "--data.train", text, *own, *sizes, *pretraining]) == 0
    spelling = ["--data.tokeniser_file", str(folder / "xlnet" / "tokeniser.json")]
    assert main(["train", "--name", "base", "--data.train", text, *own, *BASE, *spelling]) == 0
    return folder


def residual(runs: Path, name: str, *words: str) -> int:
    base = ["--runs", str(runs), "--base", str(runs / "base"), "--name", name, "--json"]
    return main(["residual", "train", *base, "--energy.kind", "xlnet", *SMALL, *words])


def test_the_command_starts_from_a_pretrained_run(runs):
    assert residual(runs, "started", "--energy.start", str(runs / "xlnet")) == 0
    loaded = ebar.load(runs / "started")
    assert loaded.energy.encoder.backbone.network.width == SIZES["hidden"]
    assert not (runs / "started" / "warm-up").exists()
    pretrained, learnt = ebar.load(runs / "xlnet").model.backbone, loaded.energy.encoder.backbone.network
    with torch.no_grad():
        pairs = list(zip(pretrained.parameters(), learnt.parameters(), strict=True))
        assert any(not torch.equal(*pair) for pair in pairs)
        assert all(float((one - other).abs().max()) < 0.1 for one, other in pairs)  # a few steps away


def test_the_command_starts_from_scratch(runs):
    small = [word for name, value in SIZES.items() for word in (f"--energy.{name}", str(value))]
    assert residual(runs, "new", *small, "--energy.warm_up", "1") == 0
    assert (runs / "new" / "warm-up").exists()


def test_the_command_refuses_another_tokeniser(runs, capsys):
    text = str(runs / "text.txt")
    words = ["train", "--runs", str(runs), "--name", "words", "--data.train", text, *BASE, "--data.tokeniser", "words"]
    assert main(words) == 0
    capsys.readouterr()
    own = ["--runs", str(runs), "--base", str(runs / "words"), "--name", "other", "--energy.kind", "xlnet"]
    assert main(["residual", "train", *own, *SMALL, "--energy.start", str(runs / "xlnet")]) == 2
    assert "another tokeniser than the base" in capsys.readouterr().err


def test_an_xlnet_of_transformers_reads_text_of_any_length(tmp_path):
    """Its configuration says −1 positions, and means no limit."""
    pytest.importorskip("transformers")
    from transformers import PreTrainedTokenizerFast, XLNetConfig, XLNetModel

    from tests.energies.test_reencoded import LETTERS as SPELLING
    from tests.energies.test_reencoded import PIECES, spelt, wordpiece

    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=len(PIECES), d_model=8, n_layer=1, n_head=2, d_inner=16, initializer_range=0.5)
    assert config.max_position_embeddings == -1
    XLNetModel(config).save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=wordpiece(), pad_token="[PAD]").save_pretrained(tmp_path)
    loaded = load_encoder(tmp_path)
    encoder = Reencoded(loaded.network, loaded.tokeniser, SPELLING)
    assert encoder.positions is None
    energy = lively(Neural(encoder)).float()
    long, short = "a cat a dogs " * 40, "a dog"
    with torch.no_grad():
        both = energy(spelt(long, short))
        for row, text in enumerate((long, short)):
            torch.testing.assert_close(energy(spelt(text)), both[row : row + 1], rtol=0, atol=1e-5)
