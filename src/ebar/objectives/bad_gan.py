"""Semi-supervised classification with a generator of bad samples. Dai et al. 2017b (arXiv:1705.09783); Dai 2019
(thesis), 6.3 and appendix C; after Salimans et al. 2016 (arXiv:1606.03498).

The classifier has K logits, and that of the class K + 1, "generated", is 0. With L(x) = log Σₖ exp logitₖ(x),

    P(y ≤ K | x) = σ(L(x)),     P(K + 1 | x) = σ(−L(x)),     P(y | x, y ≤ K) = softmax over the K logits.

The generator is not meant to match the data: samples just off their manifold push class boundaries into the gaps.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.bounds import Amount, Count, NonNegative, Share, check
from ebar.errors import UserError
from ebar.models.classifiers import GaussianInference
from ebar.types import Clock, Loss

CLASSIFIER, GENERATOR = "classifier", "generator"  # the players
Matching = Literal["squared", "absolute"]
Density = Callable[[Float[Tensor, "batch ..."]], Float[Tensor, " batch"]]


class SemiSupervised(NamedTuple):
    """One batch of the game; all that is random in it is drawn beforehand."""

    labelled: Float[Tensor, "labelled ..."]
    labels: Int[Tensor, " labelled"]
    unlabelled: Float[Tensor, "unlabelled ..."]
    noise: Float[Tensor, "two rows latent"]  # first for the classifier's move, then for the generator's
    chance: Float[Tensor, ""]  # uniform: below a probability, what has that probability is done in this step


def true_loss(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """−log P(y ≤ K | x) = softplus(−L) = −L + softplus(L)."""
    return F.softplus(-logits.logsumexp(-1))


def fake_loss(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """−log P(K + 1 | x) = softplus(L)."""
    return F.softplus(logits.logsumexp(-1))


def class_entropy(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """Entropy of the softmax over the K logits.

    Eq. C.5 has P(k | x) of the K + 1 classes; the public code has this one, which does not ask for P(K + 1 | x) = 1.
    """
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)


def feature_matching(
    generated: Float[Tensor, "rows width"], real: Float[Tensor, "others width"], form: Matching = "squared"
) -> Float[Tensor, ""]:
    """Distance of the mean features, as a mean over the features of squares (MNIST) or of absolute values.

    The document has the squared Euclidean norm, which is `width` times the first.
    """
    gap = generated.mean(0) - real.mean(0)
    return gap.square().mean() if form == "squared" else gap.abs().mean()


def pull_away(features: Float[Tensor, "rows width"]) -> Float[Tensor, ""]:
    """1/(N(N−1)) Σᵢ Σ_{j≠i} cos²(fᵢ, fⱼ): 0 where all features are orthogonal, 1 where they are parallel.

    Zhao et al. 2017 (arXiv:1609.03126).
    """
    rows = len(features)
    if rows < 2:
        raise UserError("The pull-away term compares samples of one batch: give batches of at least 2.")
    unit = F.normalize(features, dim=-1)
    cosines = unit @ unit.T
    return (cosines.square().sum() - cosines.diagonal().square().sum()) / (rows * (rows - 1))


def low_density(
    log_density: Float[Tensor, " rows"], threshold: float
) -> Float[Tensor, ""]:  # fmt: skip
    """Mean of log p(x) − log ε over the rows with p(x) > ε, and 0 where there are none: Eq. C.3.

    The document has log p(x)·1[p(x) > ε], whose gradient is the same; of the hinge the value is continuous too.
    """
    above = F.relu(log_density - threshold)
    violators = (log_density > threshold).sum().clamp(min=1)
    return above.sum() / violators


@dataclass(frozen=True, slots=True, kw_only=True)
class BadGanTerms:
    """What the players minimise besides the losses of K + 1 classes; feature matching is always on."""

    supervised: bool = False
    """The labelled examples alone, without a generator."""
    matching: Matching = "squared"
    """Distance of mean features: squared, or absolute as for SVHN and CIFAR-10."""
    pull_away: NonNegative = 0.0
    """Weight of the pull-away term (PT), which makes features of generated samples orthogonal."""
    variational: NonNegative = 0.0
    """Weight of the variational bound on the generator's negative entropy (VI)."""
    conditional_entropy: NonNegative = 0.0
    """Weight of the entropy of the classes of unlabelled examples (Ent)."""
    low_density: NonNegative = 0.0
    """Weight of the density of generated samples above a threshold (LD)."""
    low_density_centile: float = 10.0
    """The threshold, as a centile of the densities of training examples: from 0 to 100."""
    low_density_share: Share = 0.1
    """Probability that a step has that term."""
    low_density_start: Share = 0.0075
    """Share of training before it comes in."""
    low_density_rows: Count = 30
    """How many of a batch's generated samples it looks at."""
    diverged: Amount = 1e4
    """Largest mean of an energy, at which training is stopped."""
    collapsed: NonNegative = 1e-6
    """Smallest variance of generated samples, in that of the data, at which training is stopped."""

    def __post_init__(self) -> None:
        check(self)
        if not 0 <= self.low_density_centile <= 100:
            raise UserError(f"low_density_centile must be between 0 and 100, not {self.low_density_centile}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadGan:
    """The game of classifier and generator: first the one moves, then the other, with noise of its own.

    A generator without parameters, such as the complement of a manifold, stays as it is.

    Classifier: CE(labelled) + ½·mean softplus(−L(unlabelled)) + ½·mean softplus(L(generated)), and its entropy term.
    The document has no halves; the public code has. Generator, and the encoder that moves with it: feature matching
    between generated and unlabelled examples, and its entropy and density terms.
    """

    classifier: Any
    generator: Any = None
    encoder: GaussianInference | None = None
    density: Density | None = None  # log p of an x, with a gradient in x
    threshold: float = math.inf  # log ε
    terms: BadGanTerms = field(default_factory=BadGanTerms)
    steps: int | None = None  # in all

    def __post_init__(self) -> None:
        if self.terms.variational and self.encoder is None:
            raise UserError("The variational term needs an encoder of samples: give one.")
        if self.terms.low_density and self.density is None:
            raise UserError("The low-density term needs a density of images: give one.")

    def for_steps(self, steps: int) -> "BadGan":
        return replace(self, steps=steps) if self.steps is None else self

    def losses(self, batch: SemiSupervised, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        if self.terms.supervised:
            logits = self.classifier.logits(batch.labelled)
            yield Loss(F.cross_entropy(logits, batch.labels), CLASSIFIER, {"accuracy": _accuracy(logits, batch.labels)})
            return
        yield self.classifier_loss(batch)
        if any(parameter.requires_grad for parameter in self.generator.parameters()):
            yield self.generator_loss(batch, clock)

    def classifier_loss(self, batch: SemiSupervised) -> Loss:
        """In one pass over all three kinds of examples: noise layers treat each row by itself."""
        with torch.no_grad():
            generated = self.generator(batch.noise[0])
        sizes = [len(batch.labelled), len(batch.unlabelled), len(generated)]
        logits = self.classifier.logits(torch.cat([batch.labelled, batch.unlabelled, generated]))
        labelled, unlabelled, fake = logits.split(sizes)
        supervised = F.cross_entropy(labelled, batch.labels)
        value = supervised + (true_loss(unlabelled).mean() + fake_loss(fake).mean()) / 2
        metrics = {
            "supervised": float(supervised.detach()),
            "accuracy": _accuracy(labelled, batch.labels),
            "energy_data": -float(unlabelled.detach().logsumexp(-1).mean()),
            "energy_generated": -float(fake.detach().logsumexp(-1).mean()),
            "true_share": _share(unlabelled.detach().amax(-1) > 0),
            "fake_share": _share(fake.detach().amax(-1) < 0),
            "variance_ratio": _variance(generated) / max(_variance(batch.unlabelled), 1e-30),
        }
        if self.terms.conditional_entropy:
            entropy = class_entropy(unlabelled).mean()
            value = value + self.terms.conditional_entropy * entropy
            metrics["conditional_entropy"] = float(entropy.detach())
        return Loss(value, CLASSIFIER, metrics)

    def generator_loss(self, batch: SemiSupervised, clock: Clock) -> Loss:
        """Features of data are a constant here: the generator moves its own towards them.

        The public code has a second batch of data for this and fresh samples for the density; here it is the batch that
        the classifier has just moved on, and its first samples: the same in expectation.
        """
        terms, noise = self.terms, batch.noise[1]
        generated = self.generator(noise)
        with torch.no_grad():
            real = self.classifier.features(batch.unlabelled)
        fake = self.classifier.features(generated)
        value = feature_matching(fake, real, terms.matching)
        metrics = {"matching": float(value.detach())}
        if terms.pull_away:
            apart = pull_away(fake)
            value = value + terms.pull_away * apart
            metrics["pull_away"] = float(apart.detach())
        if self.encoder is not None and terms.variational:
            bound = -self.encoder.log_prob(noise, generated).mean()
            value = value + terms.variational * bound
            metrics["variational"] = float(bound.detach())
        if self.density is not None and terms.low_density and self._looks_at_density(batch, clock):
            log_density = self.density(generated[: terms.low_density_rows])
            above = low_density(log_density, self.threshold)
            value = value + terms.low_density * above
            metrics["low_density"] = float(above.detach())
            metrics["above_share"] = _share(log_density.detach() > self.threshold)
        return Loss(value, GENERATOR, metrics)

    def _looks_at_density(self, batch: SemiSupervised, clock: Clock) -> bool:
        if self.steps is None:
            raise ValueError("the objective does not know how many steps there are: call for_steps")
        begun = clock.step >= self.terms.low_density_start * self.steps
        return begun and float(batch.chance) < self.terms.low_density_share

    def after_step(self, metrics: Mapping[str, float]) -> str | None:
        """Energies that explode, and generated samples that are all one."""
        for name in ("data", "generated"):
            energy = metrics.get(f"{CLASSIFIER}.energy_{name}", 0.0)
            if abs(energy) > self.terms.diverged:
                return (
                    f"the mean energy of {'the data' if name == 'data' else 'generated samples'} has grown to "
                    f"{energy:.3g}: lower the learning rates"
                )
        ratio = metrics.get(f"{CLASSIFIER}.variance_ratio", math.inf)
        if ratio < self.terms.collapsed:
            return (
                f"generated samples have collapsed, with {ratio:.3g} of the data's variance: lower the generator's "
                "learning rate, or add an entropy term"
            )
        return None


def _accuracy(logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]) -> float:
    return _share(logits.detach().argmax(-1) == labels)


def _share(which: Tensor) -> float:
    return float(which.double().mean())


def _variance(x: Float[Tensor, "batch ..."]) -> float:
    """Summed over places; half the mean squared distance of two rows."""
    flat = x.detach().flatten(1).double()  # its square less that of the mean: a difference of near numbers
    return max(0.0, float(flat.square().sum() / len(flat) - flat.mean(0).square().sum()))
