import pytest
import torch

from ebar.backbones.dcgan import PLANS, ConvolutionalDecoder, ConvolutionalEncoder
from ebar.errors import UserError

COLOURS = {28: 1, 32: 3, 64: 3}


@pytest.mark.parametrize("size", PLANS)
def test_images_become_vectors_and_noise_becomes_images(size):
    encoder = ConvolutionalEncoder(size=size, channels=COLOURS[size], features=2)
    decoder = ConvolutionalDecoder(latent=3, size=size, channels=COLOURS[size], features=2)
    images = decoder(torch.randn(4, 3)).detach()
    assert images.shape == (4, COLOURS[size], size, size)
    assert 0 < float(images.min()) < float(images.max()) < 1
    assert encoder(images).shape == (4, encoder.width)


def test_the_sizes_are_those_of_the_thesis():
    """FC(256·7·7, 1) and FC(10, 512·7·7) for digits, FC(256·4·4, 1) and FC(10, 512·4·4) for the others (B.8.1)."""
    assert {size: ConvolutionalEncoder(size=size).width for size in PLANS} == {28: 12_544, 32: 4096, 64: 4096}
    found = {size: ConvolutionalDecoder(latent=10, size=size).linear.weight.shape for size in PLANS}
    assert found == {28: (25_088, 10), 32: (8192, 10), 64: (8192, 10)}


def test_without_normalisation_an_image_does_not_depend_on_the_others():
    torch.manual_seed(0)
    images = torch.rand(3, 1, 28, 28)
    plain, normal = (ConvolutionalEncoder(size=28, features=2, normalise=normalise) for normalise in (False, True))
    assert torch.allclose(plain(images)[:1], plain(images[:1]), atol=1e-6)
    assert not torch.allclose(normal(images)[:1], normal(images[:1]), atol=1e-3)


def test_images_of_another_size_are_refused():
    with pytest.raises(UserError, match="30×30 pixels"):
        ConvolutionalEncoder(size=30)
    with pytest.raises(UserError, match="images of 1×28×28 .* these are 1×32×32"):
        ConvolutionalEncoder(size=28, features=1)(torch.rand(2, 1, 32, 32))
