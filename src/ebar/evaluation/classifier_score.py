"""How sure and how varied a classifier finds images: exp E KL(p(y|x)‖p(y)).

Salimans et al. 2016 (arXiv:1606.03498) take the Inception network of ImageNet for the classifier (the Inception score,
Table B.1 of Dai 2019, thesis). Here it is whatever classifier is at hand, such as one trained on the labelled data that
a generator learnt from: its scores lie between 1 and the number of classes, and scores by different classifiers do not
compare.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.jackknife import half_width
from ebar.types import Estimate


def classifier_score(log_probs: Float[Tensor, "images classes"], *, level: float = 0.95) -> Estimate:
    """exp(H(p̄) − mean H(p(y|x))), p̄ being the mean of p(y|x) over the images.

    p̄ is of the images themselves, so the score of few of them is too low: n images have n at most. The interval is the
    jackknife's over images, made on the scale of logarithms. Salimans et al. give the mean and standard deviation over
    ten parts of 5,000 images each instead.
    """
    log_probs = log_probs.double().cpu()
    images, classes = log_probs.shape
    if images < 2:
        raise UserError(f"A classifier's score needs two images or more, not {images}.")
    if bool(log_probs.isnan().any()) or float((log_probs.exp().sum(1) - 1).abs().max()) > 1e-3:
        raise UserError("The score needs log-probabilities of classes: give logits.log_softmax(1).")
    probs = log_probs.exp()
    own = torch.special.entr(probs).sum(1)  # −Σ p·log p, where 0·log 0 is 0
    mean = probs.mean(0)
    value = float(torch.special.entr(mean).sum() - own.mean())
    without = (images * mean - probs) / (images - 1)
    left_out = torch.special.entr(without.clamp(min=0)).sum(1) - (own.sum() - own) / (images - 1)
    width = float(half_width(left_out - value, level))
    ends = (math.exp(max(value - width, 0.0)), min(math.exp(value + width), float(classes)))
    return Estimate(math.exp(value), min(ends[0], math.exp(value)), max(ends[1], math.exp(value)), images, None, level)
