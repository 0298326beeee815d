import pytest
import torch

from ebar.backbones.weight_normalised import PLANS, ConvolutionalDecoder, ConvolutionalEncoder
from ebar.errors import UserError

SHAPES = [(1, 28, 28), (3, 32, 32), (3, 64, 64)]


@pytest.mark.parametrize("shape", SHAPES)
def test_images_become_vectors_and_noise_becomes_images(shape):
    encoder = ConvolutionalEncoder(shape, features=2)
    images = ConvolutionalDecoder(3, shape, features=2)(torch.randn(4, 3)).detach()
    assert images.shape == (4, *shape)
    assert 0 < float(images.min()) < float(images.max()) < 1
    assert encoder(images).shape == (4, encoder.width)


def test_the_sizes_are_those_of_the_thesis():
    """FC(256·7·7, 1) and FC(10, 512·7·7) for digits, FC(256·4·4, 1) and FC(10, 512·4·4) for the others (B.8.1)."""
    assert set(PLANS) == {shape[1] for shape in SHAPES}
    assert [ConvolutionalEncoder(shape).width for shape in SHAPES] == [12_544, 4096, 4096]
    found = [tuple(ConvolutionalDecoder(10, shape).linear.weight.shape) for shape in SHAPES]
    assert found == [(25_088, 10), (8192, 10), (8192, 10)]


def test_without_normalisation_an_image_does_not_depend_on_the_others():
    torch.manual_seed(0)
    images = torch.rand(3, 1, 28, 28)
    plain, normal = (ConvolutionalEncoder(SHAPES[0], features=2, normalised=normalised) for normalised in (False, True))
    assert torch.allclose(plain(images)[:1], plain(images[:1]), atol=1e-6)
    assert not torch.allclose(normal(images)[:1], normal(images[:1]), atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 30, 30), (1, 28, 32), (2,)])
def test_images_of_another_size_are_refused(shape):
    with pytest.raises(UserError, match="There are no convolutions for data of"):
        ConvolutionalEncoder(shape)
