"""The networks for SVHN and CIFAR-10: their layers, and a step of training on made-up files of each format."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ebar.backbones.weight_normalised import WeightNormalised, transposed_convolution
from ebar.data.labelled_images import LabelledImagesData
from ebar.errors import UserError
from ebar.journeys.classify.journey import ClassifyTraining, classify
from ebar.models.classifiers import ConvolutionalClassifier, initialise
from ebar.models.generators import UpsamplingGenerator
from ebar.objectives.bad_gan import BadGanTerms


def test_the_classifier_of_svhn_has_nine_convolutions_and_a_layer_of_ten_units() -> None:
    """Weights counted on paper: 3·64·9, twice 64·64·9, 64·128·9, three times 128·128·9, twice 128·128, 128·10."""
    made = ConvolutionalClassifier(shape=(3, 32, 32), classes=10)
    layers = [layer for layer in made.modules() if isinstance(layer, WeightNormalised)]
    assert len(layers) == 10
    counted = 1728 + 2 * 36_864 + 73_728 + 3 * 147_456 + 2 * 16_384 + 1280
    assert sum(layer.direction.numel() for layer in layers) == counted
    assert [layer.length.requires_grad for layer in layers] == [False] * 9 + [True]  # in the output layer only
    assert [type(layer) for layer in made.layers if isinstance(layer, nn.Dropout | nn.Dropout2d)] == [nn.Dropout2d] * 3
    plain = ConvolutionalClassifier(shape=(3, 32, 32), classes=10, spatial=False)
    assert [type(layer) for layer in plain.layers if isinstance(layer, nn.Dropout | nn.Dropout2d)] == [
        nn.Dropout2d, nn.Dropout, nn.Dropout,
    ]  # fmt: skip


def test_what_the_last_layer_reads_is_the_mean_over_six_by_six_places_of_an_image_from_minus_1_to_1() -> None:
    made = ConvolutionalClassifier(shape=(3, 32, 32), classes=4, filters=(4, 6)).eval()
    x = torch.rand(5, 3, 32, 32)
    before = made.layers(2 * x - 1)
    assert before.shape == (5, 6, 6, 6)  # 32, 16, 8, and 6 without padding
    torch.testing.assert_close(made.features(x), before.flatten(2).mean(2))
    torch.testing.assert_close(made(x), -made.logits(x).logsumexp(1))


def test_logits_begin_with_a_deviation_of_a_tenth() -> None:
    made = ConvolutionalClassifier(
        shape=(1, 12, 12), classes=3, filters=(4, 6), input_noise=0.0, input_dropout=0.0, dropout=0.0
    )
    x = torch.rand(200, 1, 12, 12)
    initialise(made, x)
    torch.testing.assert_close(made.logits(x).std(0, correction=0), torch.full((3,), 0.1), rtol=1e-4, atol=0)
    torch.testing.assert_close(made.logits(x).mean(0), torch.zeros(3), rtol=0, atol=1e-5)


def test_a_transposed_convolution_has_weights_of_length_1_and_doubles_the_size() -> None:
    layer = transposed_convolution(3, 2)
    x = torch.rand(4, 3, 5, 6)
    weight = layer.direction / layer.direction.flatten(1).norm(dim=1)[:, None, None, None]
    plain = nn.ConvTranspose2d(3, 2, 5, stride=2, padding=2, output_padding=1, bias=False)
    plain.weight.data = weight.transpose(0, 1).detach()
    torch.testing.assert_close(layer(x), plain(x))
    assert layer(x).shape == (4, 2, 10, 12)


def test_images_of_32_pixels_begin_as_4_and_those_of_28_as_7() -> None:
    made = UpsamplingGenerator(shape=(3, 32, 32))
    assert made.layers[0].weight.shape == (4 * 4 * 512, 100)
    assert [layer.weight.shape[:2] for layer in made.layers if isinstance(layer, nn.ConvTranspose2d)] == [
        (512, 256), (256, 128),
    ]  # fmt: skip
    small = UpsamplingGenerator(shape=(1, 28, 28), channels=4, latent=3)
    assert small.layers[0].weight.shape == (7 * 7 * 4, 3)
    image = small(torch.rand(2, 3))
    assert image.shape == (2, 1, 28, 28)
    assert bool(((image > 0) & (image < 1)).all())


def test_the_generator_starts_with_a_deviation_of_a_tenth_once() -> None:
    """From −1 to 1, before the tanh; a second call changes nothing."""
    torch.manual_seed(0)
    made = UpsamplingGenerator(shape=(2, 8, 8), channels=4, latent=3)
    images = torch.rand(500, 2, 8, 8)
    made.start_from(images)
    last = made.layers[-2]
    assert isinstance(last, WeightNormalised)
    length = last.length.detach().clone()
    drawn = (2 * made(torch.rand(2000, 3)) - 1).atanh()
    torch.testing.assert_close(drawn.std((0, 2, 3)), torch.full((2,), 0.1), rtol=0.1, atol=0)
    made.start_from(images)
    assert torch.equal(last.length, length)


def test_images_of_another_size_are_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="multiples of 4 pixels"):
        UpsamplingGenerator(shape=(3, 30, 30))
    with pytest.raises(UserError, match="9×9 pixels or more"):
        ConvolutionalClassifier(shape=(3, 8, 8), classes=2)
    with pytest.raises(UserError, match=r"\[rows, 3, 32, 32\]"):
        ConvolutionalClassifier(shape=(3, 32, 32), classes=2, filters=(2, 2)).logits(torch.rand(2, 3, 28, 28))


# A step on each kind of file ---------------------------------------------------------------------------------------


def cifar(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> Path:
    path = folder / f"{name}.bin"
    path.write_bytes(np.concatenate([labels[:, None], images.reshape(len(images), -1)], 1).astype(np.uint8).tobytes())
    return path


def svhn(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> Path:
    from scipy.io import savemat

    path = folder / f"{name}_32x32.mat"
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None]})
    return path


def fashion(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> Path:
    """Fashion-MNIST's files have MNIST's names and format."""
    grey = images[:, 0, 2:30, 2:30]
    path = folder / f"{name}-images-idx3-ubyte.gz"
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", *grey.shape)
    path.write_bytes(gzip.compress(header + grey.tobytes()))
    beside = folder / f"{name}-labels-idx1-ubyte.gz"
    beside.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", len(labels)) + labels.tobytes()))
    return path


@pytest.mark.parametrize(("write", "shape"), [(cifar, (3, 32, 32)), (svhn, (3, 32, 32)), (fashion, (1, 28, 28))])
def test_a_step_on_made_up_files_moves_both_networks(tmp_path: Path, write, shape: tuple[int, ...]) -> None:
    """Three classes of images, dark, grey and bright, as CIFAR-10, SVHN and Fashion-MNIST keep theirs."""
    drawn = np.random.default_rng(0)
    labels = np.arange(36, dtype=np.uint8) % 3
    images = (80 * labels[:, None, None, None] + drawn.integers(0, 60, (36, 3, 32, 32))).astype(np.uint8)
    paths = [write(tmp_path, name, images[part], labels[part]) for name, part in
             (("train", slice(0, 30)), ("t10k", slice(30, 36)))]  # fmt: skip
    data = LabelledImagesData(train=paths[0], test=paths[1], validation_size=6, keep_labelled=True).read(labels=6)
    assert data.shape == shape
    assert torch.equal(data.test_labels, torch.arange(6) % 3)
    assert data.labelled.flatten(1).double().mean(1).div(80).floor().long().tolist() == data.labels.tolist()
    torch.manual_seed(0)
    classifier = ConvolutionalClassifier(shape=data.shape, classes=data.classes, filters=(4, 6))
    generator = UpsamplingGenerator(shape=data.shape, channels=8, latent=5)
    before = [[weight.detach().clone() for weight in network.parameters()] for network in (classifier, generator)]
    found = classify(
        data, classifier=classifier, generator=generator,
        terms=BadGanTerms(matching="absolute", pull_away=0.8, conditional_entropy=0.1),
        training=ClassifyTraining(epochs=1, batch_size=24, samples=8), seed=0,
    )  # fmt: skip
    assert found.result is not None
    assert (found.result.status, found.result.position.step) == ("finished", 1)
    for network, old in zip(found.last, before, strict=True):
        assert any(not torch.equal(weight, was) for weight, was in zip(network.parameters(), old, strict=True))
    assert F.softmax(found.predict(data.test).double(), 0).isfinite().all()
