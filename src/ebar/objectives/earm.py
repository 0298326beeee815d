"""E-ARM: an autoregressive model trained as its own energy model. Wang et al. 2022 (arXiv:2206.12840)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar import together
from ebar.backbones.backbone import Reads
from ebar.errors import UserError, choose
from ebar.models.construction import Autoregressive
from ebar.models.drawing import draw_fakes
from ebar.models.stepwise import teacher_forced
from ebar.objectives.contrastive import (
    Contrast,
    ScoredTokens,
    TokenScores,
    contrast,
    of_all_parts,
    past,
    token_scores,
)
from ebar.objectives.langevin import Place, check_place, langevin, last_log_partition, vectors_of
from ebar.objectives.scheduled_sampling import Batch, FromPredictions, inside, parted, token_cross_entropy
from ebar.types import Clock, Context, Loss, Sequences

COLLAPSED = 0.1  # median effective share of the fakes below which their weights are called collapsed
FEWEST = 10  # fakes at a step that are needed to call weights collapsed


class EarmMemory(nn.Module):
    """When the contrastive term came in, as a buffer: give it to a player without optimiser, for checkpoints."""

    began: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("began", torch.tensor(-1))
        self.warned = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Earm(FromPredictions):
    """Cross-entropy + λ·(mean over steps k of Lₖ), Lₖ being that of `contrastive`; before its start, cross-entropy.

    Fakes are drawn without dropout, as many as there are sequences, and serve both expectations and the weights. These
    are normalised over the fakes of the whole batch, whatever its parts: each is scored twice, the first time without
    gradients.
    """

    weight: float = 0.05
    """λ of the contrastive term."""
    start_epoch: int = 0
    """Passes over the data before it comes in."""
    start_step: int = 0
    """Steps before it comes in."""
    ramp: int = 0
    """Steps over which λ then grows to its full size."""
    recent: int | None = 2
    """How many factors of log q(x₍<k₎) have a gradient; none: all."""
    draws: int = 1
    """Fakes for each sequence of the batch."""
    normalise: Literal["batch", "context"] = "batch"
    """Whether a weight is relative to all fakes of the batch or to those of its context, of which there must be two.
    A window that goes on from true tokens has those for a context, so that each sequence has its own."""
    temper: float = 1.0
    """Power of the weights: 1 as they are, 0 all alike."""
    clip: float | None = None
    """Largest weight, the mean being 1."""
    steps: Literal["tokens", "mean", "sum"] = "tokens"
    """Whether a step counts by its number of real tokens, all steps alike, or their sum; at fixed length the first
    two are one."""
    data_term: bool = True
    """Whether −log q(x₍<k₎) of the data is in; the cross-entropy has it already, with another weight."""
    variance_reduced: bool = True
    """Whether w − 1 takes the place of w before log q(x₍<k₎) of the fakes."""
    drawn_last: bool = False
    """Whether xₖ is drawn too, in place of its expectation."""
    window: int | None = 50
    """Most tokens of a sequence that the contrastive term looks at, where sequences are of fixed length."""
    contexts: Literal["beginning", "real"] = "beginning"
    """Where that window lies: at the beginning, or anywhere, the fakes going on from the true tokens before it."""
    length_ratio: float | None = 1.5
    """Fakes have at most this times the tokens of their source, for sequences that end."""
    length_offset: int = 5
    """And so many more."""
    negatives: Literal["autoregressive", "langevin"] = "autoregressive"
    """Fakes drawn token by token, or Langevin dynamics on vectors in their place, at the last step only."""
    langevin_at: Place = "input"
    """Which vectors the dynamics moves: those of the tokens, or what the first layer makes of them, as in the paper's
    Table 11."""
    langevin_steps: int = 20
    """Of the dynamics, from the real vectors on."""
    langevin_step_size: float = 0.01
    """η: a vector moves by η/2 times the gradient."""
    langevin_noise: float = 1.0
    """Times √η."""
    cross_entropy: bool = True
    """Whether the cross-entropy is in, once the contrastive term is; the document found that it has to be."""
    base: Literal["maximum_likelihood", "scheduled_sampling"] = "maximum_likelihood"
    """Where the cross-entropy comes from: whether the tokens read are the true ones or some are predictions."""
    memory: EarmMemory = field(init=False)

    def __post_init__(self) -> None:
        FromPredictions.__post_init__(self)  # a class with slots has no super() here
        if not self.model.free_logits:
            raise UserError(
                "E-ARM lives on the freedom of a softmax's shift, and this head has none: it gives log-probabilities "
                "(as mixtures and adaptive softmaxes do), so that every LSE is 0, every weight 1 and the energy "
                "vanishes; choose softmax."
            )
        for value, table, what in (
            (self.normalise, ("batch", "context"), "normalisation"),
            (self.steps, ("tokens", "mean", "sum"), "mean over steps"),
            (self.contexts, ("beginning", "real"), "kind of contexts"),
            (self.negatives, ("autoregressive", "langevin"), "kind of negatives"),
            (self.langevin_at, ("input", "first_layer"), "place of Langevin dynamics"),
            (self.base, ("maximum_likelihood", "scheduled_sampling"), "base of E-ARM"),
        ):
            choose(dict.fromkeys(table), value, what)
        if self.draws < 1 or (self.normalise == "context" and self.draws < 2):
            raise ValueError("draws must be at least 1, and at least 2 where weights are relative to a context's fakes")
        for name in ("weight", "start_epoch", "start_step", "ramp", "recent", "langevin_steps", "langevin_noise",
                     "length_offset"):  # fmt: skip
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise ValueError(f"{name} must be at least 0, not {value}")
        for name in ("length_ratio", "langevin_step_size"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        if not self.temper >= 0 or (self.clip is not None and not self.clip >= 1):
            raise ValueError("temper must be at least 0 and clip at least 1, which is the mean weight")
        if self.window is not None and self.window < 1:
            raise ValueError(f"a window has at least one token, not {self.window}")
        if self.negatives == "langevin":
            check_place(self.model, self.langevin_at)
        object.__setattr__(self, "memory", EarmMemory())

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        strength = self._strength(clock)
        if strength == 0:
            way = self.from_predictions if self.base == "scheduled_sampling" else self.from_truth
            yield from way(batch, clock, generator)
        else:
            yield self._loss(batch, clock, strength, generator)

    def _loss(self, batch: Batch, clock: Clock, strength: float, generator: Generator) -> Loss:
        """No generator, so that of several parts none holds its logits until the step is done."""
        x, context = parted(batch)
        space = self.model.space.after(context)
        safe = inside(x, space)
        begin, end = self._window(safe, generator)
        negatives = self._langevin if self.negatives == "langevin" else self._autoregressive
        tokens = int(x.lengths.sum())
        real, logits, term, figures = negatives(safe, context, begin, end, tokens, generator)
        nll, loss = token_cross_entropy(real, x, space, self.label_smoothing, context)
        chance = self.chance_of_truth(clock.step)
        if self.base == "scheduled_sampling" and chance < 1:
            mixed = self.second_pass(safe, context, logits, chance, generator)
            scores = token_scores(mixed, safe.tokens, mean=self.label_smoothing > 0)
            _, loss = token_cross_entropy(scores, x, space, self.label_smoothing, context)
        metrics = {"nll_per_token": float(nll.detach() / tokens), "contrastive": float(term.detach())}
        metrics |= {"contrastive_weight": strength} | figures
        if self.base == "scheduled_sampling":
            metrics["chance_of_truth"] = chance
        value = strength * term + (loss / tokens if self.cross_entropy else 0.0)
        return Loss(value, self.player, metrics, weight=float(tokens))

    def _autoregressive(
        self, x: Sequences, context: Context | None, begin: int, end: int, tokens: int, generator: Generator
    ) -> tuple[TokenScores, Tensor, Tensor, dict[str, float]]:
        fakes = together.kept(lambda: self._fakes(x, context, begin, end, generator))
        real, fake, logits = self._scores(x, fakes, context, begin, end)
        seen = TokenScores(*(each[:, begin:end] for each in real))
        (all_real, all_fake), total = of_all_parts(
            ScoredTokens(seen, x.mask()[:, begin:end]), ScoredTokens(fake, fakes.mask()), weight=tokens
        )
        found = contrast(
            all_real,
            all_fake,
            groups=self._groups(len(x.lengths), context, begin),
            recent=self.recent,
            data_term=self.data_term,
            variance_reduced=self.variance_reduced,
            drawn_last=self.drawn_last,
            temper=self.temper,
            clip=self.clip,
        )
        return real, logits, together.alike(self._over_steps(found), tokens, total), self._figures(found)

    def _langevin(
        self, x: Sequences, context: Context | None, begin: int, end: int, tokens: int, generator: Generator
    ) -> tuple[TokenScores, Tensor, Tensor, dict[str, float]]:
        """Equation 6 at the last step: −logit − log q̃ of the data against LSE of what the dynamics finds."""
        lengths = x.lengths.clamp(max=end)
        at = self.langevin_at
        vectors = vectors_of(self.model, x.tokens[:, : end - 1], context, at=at)
        move = partial(
            langevin, self.model, vectors, lengths, context, first=begin, steps=self.langevin_steps, at=at,
            step_size=self.langevin_step_size, noise=self.langevin_noise, generator=generator,
        )  # fmt: skip
        negative = last_log_partition(self.model, together.kept(move), lengths, context, at=at)
        logits = teacher_forced(self.model, x.tokens, context)
        real = token_scores(logits, x.tokens, mean=self.label_smoothing > 0)
        last = (lengths - 1)[:, None]
        positive = real.logit.gather(1, last)
        if self.data_term:
            inside_window = torch.where(x.mask()[:, :end], real.log_prob[:, :end], 0.0)[:, begin:]
            positive = positive + past(inside_window, self.recent).gather(1, last - begin)
        partition = real.log_partition.detach().gather(1, last)
        weight = torch.tensor([tokens])
        negative, positive, partition, weights = together.joined(negative, positive, partition, weight)
        gap = negative.detach().mean() - partition.mean()
        term = together.alike(negative.mean() - positive.mean(), tokens, int(weights.sum()))
        return real, logits, term, {"log_partition_gap": float(gap)}

    def _strength(self, clock: Clock) -> float:
        """λ as it is now."""
        if clock.epoch < self.start_epoch or clock.step < self.start_step:
            return 0.0
        began = self.memory.began
        if int(began) < 0:
            began.fill_(clock.step)
        return self.weight * min(1.0, (clock.step - int(began) + 1) / max(self.ramp, 1))

    def _window(self, x: Sequences, generator: Generator) -> tuple[int, int]:
        """The places that the contrastive term looks at."""
        width = x.tokens.shape[1]
        if self.model.space.end is not None or self.window is None or self.window >= width:
            return 0, width
        if self.contexts == "beginning":
            return 0, self.window
        places = width - self.window + 1
        begin = together.once(lambda: int(torch.randint(places, (), device=generator.device, generator=generator)))
        return begin, begin + self.window

    def _fakes(
        self, x: Sequences, context: Context | None, begin: int, end: int, generator: Generator
    ) -> Sequences:  # fmt: skip
        caps = self._caps(x, context, end - begin).repeat_interleave(self.draws)
        if (given := self._prefixes(x, context, begin)) is not None:
            return draw_fakes(self.model, caps, given, generator=generator)
        prefix = x.tokens[:, :begin].repeat_interleave(self.draws, 0)
        return draw_fakes(self.model, caps, context, prefix=prefix, generator=generator)

    def _prefixes(self, x: Sequences, context: Context | None, begin: int) -> Context | None:
        """The tokens before the window as a context, for models that take them for what they are.

        What need not be computed of a prefix is not: a head's logits, an image's rows that no pixel of the window sees.
        """
        model = self.model
        if begin and context is None and isinstance(model, Autoregressive) and isinstance(model.backbone, Reads):
            return Context(Sequences(x.tokens[:, :begin], torch.full_like(x.lengths, begin)))
        return None

    def _caps(self, x: Sequences, context: Context | None, width: int) -> Int[Tensor, " rows"]:
        """No longer than the longest real sequence: later steps would have nothing to be contrasted with."""
        caps = torch.full_like(x.lengths, width)
        if context is not None and self.length_ratio is not None and self.model.space.end is not None:
            source = context.given.lengths.repeat_interleave(len(caps) // context.rows)
            caps = torch.minimum(caps, (source * self.length_ratio).ceil().to(caps) + self.length_offset)
        return caps.clamp(min=1)

    def _scores(
        self, x: Sequences, fakes: Sequences, context: Context | None, begin: int, end: int
    ) -> tuple[TokenScores, TokenScores, Float[Tensor, "rows length vocabulary"]]:
        """Of the real tokens and of the fake ones, and the logits of the real ones.

        With a source it is in one pass, in which the source is read once for both. Otherwise in two, which is faster:
        memory for tensors twice the size comes fresh from the system each time.
        """
        rows, width = x.tokens.shape
        smooth = self.label_smoothing > 0
        if end - begin < width or context is None:
            if (given := self._prefixes(x, context, begin)) is not None:
                logits = teacher_forced(self.model, fakes.tokens, given)
            else:
                prefix = x.tokens[:, :begin].repeat_interleave(self.draws, 0)
                logits = teacher_forced(self.model, torch.cat([prefix, fakes.tokens], 1), context)[:, begin:]
            fake = token_scores(logits, fakes.tokens)
            logits = teacher_forced(self.model, x.tokens, context)
            return token_scores(logits, x.tokens, mean=smooth), fake, logits
        padded = torch.nn.functional.pad(fakes.tokens, (0, width - fakes.tokens.shape[1]))
        together = torch.cat([x.tokens[:, None], padded.view(rows, self.draws, width)], 1)
        logits = teacher_forced(self.model, together.flatten(0, 1), context).view(*together.shape, -1)
        scores = token_scores(logits, together, mean=smooth)
        real = TokenScores(*(each[:, 0] for each in scores))
        fake = TokenScores(*(each[:, 1:].flatten(0, 1)[:, : fakes.tokens.shape[1]] for each in scores))
        return real, fake, logits[:, 0]

    def _groups(self, rows: int, context: Context | None, begin: int) -> int:
        """How many normalisers Zₖ there are: p_θ after other true tokens, or from another source, is another one."""
        if self.normalise == "batch":
            return 1
        if begin:
            return together.in_all(rows)
        return 1 if context is None else together.in_all(context.rows)

    def _over_steps(self, found: Contrast) -> Float[Tensor, ""]:
        """Equation 5 sums over the steps of each sequence as the cross-entropy does: by tokens both are means."""
        if self.steps == "tokens":
            counted = torch.where(found.exists, found.data, 0.0)
            return (found.terms * counted).sum() / counted.sum()
        return found.terms.sum() / (len(found.terms) if self.steps == "sum" else found.exists.sum())

    def _figures(self, found: Contrast) -> dict[str, float]:
        """How reliable the weights are; warns once if they have collapsed."""
        there = found.exists & (found.alive > 0)
        if not bool(there.any()):
            return {}
        effective, alive = found.effective[there], found.alive[there]
        share = effective / alive
        crowded = share[alive >= FEWEST]
        if len(crowded) and float(crowded.median()) < COLLAPSED and not self.memory.warned:
            self.memory.warned = True
            warnings.warn(
                f"the weights of E-ARM have collapsed: at a step {float(alive.mean()):.0f} fakes count for "
                f"{float(effective.mean()):.1f}; temper or clip them, or let the weight grow over a ramp",
                RuntimeWarning,
                stacklevel=3,
            )
        return {
            "effective_share": float(share.mean()),
            "smallest_effective_share": float(share.min()),
            "log_partition_gap": float(found.gap[there].mean()),
            "energy_gain": float(found.gain[there].mean()),
        }
