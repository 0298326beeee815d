"""A raster model asked about real intensities."""

import re
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.data.images import Images
from ebar.errors import UserError
from ebar.models.construction import Autoregressive, assemble
from ebar.models.raster_density import RasterDensity
from ebar.types import Space

HEIGHT, WIDTH = 3, 4


def made(kind: str = "gated_pixelcnn", *, channels: int = 1, levels: int = 256, head: str = "logistic_mixture") -> Any:
    torch.manual_seed(1)
    space = Space(levels, HEIGHT * WIDTH * channels, completes=True)
    shape = {"image_height": HEIGHT, "image_width": WIDTH, "channels": channels}
    model = assemble(space, kind, {"features": 6, "layers": 2}, head, shape=shape)
    with torch.no_grad():  # away from their first values, so that the past matters
        for parameter in model.parameters():
            parameter.mul_(2).add_(0.1 * torch.randn(parameter.shape))
    return model.double()


def levels_of(model: Autoregressive, count: int) -> tuple[Images, Tensor]:
    """Images, both ends among their levels, and the same as intensities."""
    backbone: Any = model.backbone
    size = (count, HEIGHT, WIDTH, backbone.channels)
    pixels = torch.randint(0, model.space.vocabulary, size, generator=Generator().manual_seed(3)).to(torch.uint8)
    pixels[0, 0], pixels[0, 1] = 0, model.space.vocabulary - 1
    return Images(pixels, model.space.vocabulary), pixels.permute(0, 3, 1, 2).double() / (model.space.vocabulary - 1)


def intensities(count: int, channels: int = 1) -> Tensor:
    return torch.rand(count, channels, HEIGHT, WIDTH, generator=Generator().manual_seed(4), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["pixelcnn", "gated_pixelcnn"])
@pytest.mark.parametrize(("channels", "levels"), [(1, 256), (3, 256), (1, 2)])
def test_at_the_levels_it_is_the_log_probability(kind: str, channels: int, levels: int) -> None:
    model = made(kind, channels=channels, levels=levels)
    images, real = levels_of(model, 4)
    wanted = model.log_prob(images.sequences())
    torch.testing.assert_close(RasterDensity(model).log_density(real), wanted, rtol=1e-9, atol=1e-9)


def test_at_the_levels_it_is_the_log_probability_in_single_precision_too() -> None:
    model = made().float()
    images, real = levels_of(model, 4)
    torch.testing.assert_close(
        RasterDensity(model).log_density(real.float()), model.log_prob(images.sequences()), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("kind", ["pixelcnn", "gated_pixelcnn"])
@pytest.mark.parametrize("channels", [1, 3])
def test_its_gradient_agrees_with_finite_differences(kind: str, channels: int) -> None:
    density = RasterDensity(made(kind, channels=channels))
    given = intensities(2, channels).requires_grad_()
    assert torch.autograd.gradcheck(density.log_density, (given,), eps=1e-7, atol=1e-4, rtol=1e-4)


def test_the_gradient_comes_by_the_target_and_by_what_the_backbone_reads() -> None:
    model = made()
    given = intensities(1).requires_grad_()
    (whole,) = torch.autograd.grad(RasterDensity(model).log_density(given).sum(), given)
    backbone, head = model.backbone, model.head
    hidden = backbone.read(backbone.embed_intensities(given.detach())[:, :-1])
    (by_target,) = torch.autograd.grad(head.log_mass(hidden, given.flatten(1)).sum(), given)
    last = (0, 0, -1, -1)  # nobody reads it
    torch.testing.assert_close(whole[last], by_target[last])
    assert ((whole - by_target).abs() > 1e-3).flatten()[:-1].all()


def test_few_images_are_read_at_a_time_and_weights_get_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made().train()
    given = intensities(7).requires_grad_()
    weights = torch.arange(7).double()
    whole = RasterDensity(model).log_density(given)
    (wanted,) = torch.autograd.grad((whole * weights).sum(), given)
    read, seen = model.backbone.read, []

    def counted(inputs: Tensor) -> Tensor:
        seen.append(len(inputs))
        return read(inputs)  # type: ignore[no-any-return]

    monkeypatch.setattr(model.backbone, "read", counted)
    density = RasterDensity(model, places=2 * HEIGHT * WIDTH + 1)
    found = density.log_density(given)
    (found * weights).sum().backward()
    assert seen == [2, 2, 2, 1]
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(given.grad, wanted)
    torch.testing.assert_close(density.log_density(given.detach()), whole.detach())
    assert seen == [2, 2, 2, 1] * 2
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda images: images.transpose(2, 3), "The images are 1 × 4 × 3, those of the model 1 × 3 × 4"),
        (lambda images: 2 * images - 1, "from 0 to 1"),
        (lambda images: images * torch.nan, "from 0 to 1"),
    ],
)
def test_other_images_are_refused(change: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        RasterDensity(made()).log_density(change(intensities(2)))


def test_other_models_are_refused() -> None:
    with pytest.raises(UserError, match="logistic_mixture, not GatedPixelCnn with Softmax"):
        RasterDensity(made(head="softmax")).log_density(intensities(2))
