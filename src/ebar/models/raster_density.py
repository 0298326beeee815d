"""How likely a raster model finds images of real intensities, with a gradient in them."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.backbones.raster import Raster
from ebar.errors import UserError
from ebar.heads.head import ScoresIntensities
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import PLACES
from ebar.modes import evaluation_mode


@dataclass(frozen=True, slots=True)
class RasterDensity:
    """A model of images by levels, asked about the intensities between them.

    log p(x) = Σₜ log of the mass in a bin around xₜ, given the real intensities before it. At the levels k/(levels − 1)
    it is the model's own log-probability; between them it interpolates, and is normalised only over the levels. A
    density over the unit cube would be higher by a constant, log(levels − 1) for each place.

    A few images are read at a time, and with them their gradient, so that memory is bounded; the model's weights get
    none. For a gradient of the gradient ask the head and the backbone. As the density of a penalty on likely samples:
    Dai et al. 2017b (arXiv:1705.09783).
    """

    model: Autoregressive
    places: int = PLACES  # read at a time, at most, but for one image

    def log_density(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, " batch"]:
        """Of images with intensities from 0 to 1; without dropout, whatever the model's mode."""
        backbone, head = self.model.backbone, self.model.head
        if not (isinstance(backbone, Raster) and isinstance(head, ScoresIntensities)):
            raise UserError(
                "A density of real intensities needs a backbone of images (pixelcnn, gated_pixelcnn) with the head "
                f"logistic_mixture, not {type(backbone).__name__} with {type(head).__name__}."
            )
        wanted = (backbone.channels, backbone.image_height, backbone.image_width)
        if images.shape[1:] != wanted:
            sizes = (" × ".join(map(str, shape)) for shape in (tuple(images.shape[1:]), wanted))
            raise UserError("The images are {}, those of the model {} (channels, height, width).".format(*sizes))
        if not bool(((images >= 0) & (images <= 1)).all()):
            raise UserError("Intensities of images go from 0 to 1, and some of these do not: rescale them.")
        with evaluation_mode(self.model):
            if torch.is_grad_enabled() and images.requires_grad:
                return _WithGradient.apply(images, self)  # type: ignore[no-any-return, no-untyped-call]
            with torch.no_grad():
                return torch.cat([_log_density(backbone, head, some) for some in torch.split(images, self.at_once)])

    @property
    def at_once(self) -> int:
        """Images that are read together."""
        return max(1, self.places // self.model.space.length)


class _WithGradient(torch.autograd.Function):
    """The gradient is found with the value, part by part, so that no graph of all images is held."""

    @staticmethod
    def forward(context: Any, images: Tensor, density: RasterDensity) -> Tensor:
        backbone: Any = density.model.backbone
        head: Any = density.model.head
        values: list[Tensor] = []
        gradients: list[Tensor] = []
        for some in torch.split(images, density.at_once):
            with torch.enable_grad():
                own = some.detach().requires_grad_()
                value = _log_density(backbone, head, own)
                gradients += torch.autograd.grad(value.sum(), own)
            values.append(value.detach())
        context.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, weights: Tensor) -> tuple[Tensor, None]:
        (gradients,) = context.saved_tensors
        return weights.to(gradients)[:, None, None, None] * gradients, None


def _log_density(
    backbone: Raster, head: ScoresIntensities, images: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, " batch"]:
    own = images.to(next(backbone.parameters()))
    inputs = backbone.embed_intensities(own)
    hidden = backbone.read(inputs[:, :-1])
    return head.log_mass(hidden, own.permute(0, 2, 3, 1).flatten(1)).sum(1)
