"""A GAM of pairs: r(x|C), P_λ(x|C) = r(x|C)·exp⟨λ, φ(x, C)⟩ and π(x|C), every source C normalised by itself.

Equation 2 of Parshakova et al. 2019 in its own case, an encoder–decoder r, with one λ for all sources. What depends on
the source can be in the features: `Agreement`, say.
"""

import json
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.data.corpus import Corpus, Part
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.estimators.moments import means_by_name
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.evaluation.means import plain_mean
from ebar.evaluation.moments import frequencies, mean_length
from ebar.features.feature import Features
from ebar.maths.log_space import log_mean_exp, normalised
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.store.stages import Stage
from ebar.store.writing import to_json
from ebar.training.distillation import Distilled
from ebar.training.moment_matching.conditional import draw_in_contexts, match_in_contexts
from ebar.training.moment_matching.matching import Fitted, Matching
from ebar.training.moment_matching.newton import Newton
from ebar.training.run import packed
from ebar.types import Context, Distribution, Estimate, Sampler, Sequences, Stepwise

FEWEST = 32  # draws of r for each test source at least, for its log Z
AT_ONCE = 64  # sources drawn for together
MOST = 20_000  # draws of r(·|C) refused in a row before giving up: they take as long as all of a motif's

Pairs = tuple[Sequences, Context]


def pairs_of(data: Corpus, part: str) -> Pairs:
    """Sequences of a part and their sources."""
    context = data.sources(part)
    if context is None:
        raise UserError("These data have no sources: a conditional GAM needs data of kind parallel.")
    return data.sequences(part), context


def fit_pairs(base: Stepwise, features: Features, data: Corpus, matching: Matching, stage: Stage) -> Fitted:
    """λ on the training pairs, or as it was found before."""
    if stage.has("lambda.json"):
        return Fitted.from_dict(json.loads(stage.read("lambda.json")))
    if not isinstance(matching, Newton) or matching.hard or matching.proposal in ("look_ahead", "exact"):
        raise UserError("In contexts λ is found by newton on draws of r: leave out hard, and proposals but base.")
    generator = Generator(device=device_of(base)).manual_seed(folded(stage.seed, "lambda"))
    fitted = match_in_contexts(base, features, *pairs_of(data, "train"), method=matching, generator=generator)
    stage.write("lambda.json", to_json(fitted.to_dict(), indent=1))
    return fitted


class PairDraws(NamedTuple):
    """Draws of P_λ with the sources they were drawn for, and what they took."""

    x: Sequences
    context: Context
    accepted: int
    proposed: int


def distil_pairs(
    target: Tilted, features: Features, data: Corpus, part: str, size: int, sampler: Sampler, stage: Stage
) -> tuple[Pairs, Distilled]:
    """`size` draws of p_λ(·|C) with C from the sources of a part, as many for each; kept as tokens, and as text.

    By rejection from r(·|C), which is exact: features have a range, so P_λ/r a bound.
    """
    if not isinstance(sampler, Rejection | QuasiRejection):
        raise UserError("Pairs are drawn by acceptance: choose rejection or quasi_rejection.")
    name = "distilled" if part == "train" else f"distilled-{part}"
    if not stage.has(f"{name}.json"):
        generator = Generator(device=device_of(target.base)).manual_seed(folded(stage.seed, name))
        exact = Rejection(max_proposals=min(sampler.max_proposals, MOST), batch_size=sampler.batch_size)
        drawn = draw_pairs(target, pairs_of(data, part)[1], size, exact, generator=generator)
        tensors = {"tokens": drawn.x.tokens, "lengths": drawn.x.lengths, "given": drawn.context.given.tokens,
                   "given_lengths": drawn.context.given.lengths}  # fmt: skip
        stage.write(f"{name}.safetensors", packed(tensors))
        sides = ([" ".join(text.split()) for text in side] for side in (source_text(data, drawn.context),
                                                                        data.text(drawn.x)))  # fmt: skip
        stage.write(f"{name}.tsv", "".join(f"{source}\t{text}\n" for source, text in zip(*sides, strict=True)).encode())
        stage.write(f"{name}.json", to_json({"accepted": drawn.accepted, "proposed": drawn.proposed}))
    found = stage.tensors(f"{name}.safetensors", "tokens", "lengths", "given", "given_lengths")
    counts = json.loads(stage.read(f"{name}.json"))
    x = Sequences(found["tokens"], found["lengths"])
    context = Context(Sequences(found["given"], found["given_lengths"]))
    rate = counts["accepted"] / counts["proposed"]
    return (x, context), Distilled(
        path=stage.folder / f"{name}.tsv",
        n=len(x.lengths),
        complete=True,
        acceptance_rate=Estimate.exact(rate),  # over sources whose rates differ: a sum over a sum, and known
        proposed=counts["proposed"],
        effective_sample_size=float(len(x.lengths)),
        total_variation=Estimate.exact(0.0),
        log_z=None,
        moments=frequencies(x, features, context=context),
        mean_length=mean_length(x).mapped(lambda length: length - 1),  # without end
        warnings=(),
        seconds=stage.seconds,
    )


def draw_pairs(target: Tilted, context: Context, size: int, sampler: Rejection, *, generator: Generator) -> PairDraws:
    """As many draws for each source as `size` asks for, the first ones having one more where it does not come out."""
    each, more = divmod(size, context.rows)
    found, chosen, accepted, proposed = [], [], 0, 0
    counts = [each + (row < more) for row in range(context.rows)]
    for wanted in sorted({count for count in counts if count}, reverse=True):
        rows = torch.tensor([row for row, count in enumerate(counts) if count == wanted])
        for some in torch.split(rows, AT_ONCE):
            own, missing = context.select(some), wanted
            for part in sampler.attempts(target, wanted, context=own, generator=generator):
                drawn = len(part.x.lengths) // len(some)
                take = min(drawn, missing)  # rejection draws at least two for each
                found.append(part.x.select((torch.arange(len(some))[:, None] * drawn + torch.arange(take)).flatten()))
                chosen.append(some.repeat_interleave(take))
                missing -= take
                accepted, proposed = accepted + int(part.accepted.sum()), proposed + int(part.proposed.sum())
    return PairDraws(Sequences.join(found), context.select(torch.cat(chosen)), accepted, proposed)


def joined(one: Part, other: Part) -> Part:
    """The rows of both, with their sources where they have some."""
    x = Sequences.join([only_x(one), only_x(other)])
    sources = [part[1] for part in (one, other) if isinstance(part, tuple) and not isinstance(part, Sequences)]
    return (x, Context(Sequences.join([context.given for context in sources]))) if sources else x


def only_x(part: Part) -> Sequences:
    """Sequences in memory without their sources."""
    if isinstance(part, Sequences):
        return part
    if isinstance(part, tuple):
        return part[0]
    raise UserError("A GAM needs its data in memory: leave out data.cache.")


def source_text(data: Corpus, context: Context) -> list[str]:
    """Sources as they read, the end left out."""
    tokeniser = data.source_tokeniser
    assert tokeniser is not None
    return [tokeniser.decode([token for token in row if token != tokeniser.size]) for row in context.given.rows()]


class PairCosts(NamedTuple):
    """P_λ on test pairs: what they cost, its features there, its distance from another model."""

    per_token: Estimate
    costs: Float[Tensor, " pairs"]  # nats per token of each pair
    lift: float  # how much of the mean cost is caution about log Z
    moments: dict[str, Estimate]
    length: Estimate
    divergence: Estimate  # KL(p_λ(·|C) ‖ π(·|C)), the mean over sources


@torch.no_grad()
def cost_of_pairs(
    target: Tilted, student: Distribution, features: Features, pairs: Pairs, *, draws: int, generator: Generator
) -> PairCosts:
    """From `draws` of r in all, at least `FEWEST` for each source; intervals are over pairs.

    log Z of a source is that of its own draws and the reference together: too large on average were the reference drawn
    from p_λ, as it is too small without (Grosse et al. 2015), so that P_λ is not flattered by what its draws have
    missed. The lower end of the cost has the difference taken off.
    """
    x, context = pairs
    each = max(FEWEST, draws // context.rows)
    drawn = draw_in_contexts(target.base, features, context, each, generator=generator)
    rows = torch.split(torch.arange(context.rows), max(1, 4096 // each))
    places = torch.arange(context.rows * each).view(-1, each)
    log_weights, log_student = [], []
    for some in rows:
        own, part = context.select(some), drawn.x.select(places[some].flatten())
        log_weights.append(-measured_energy(target.energy, part, own).double().view(-1, each))
        log_student.append(score(student, part, own).double().view(-1, each))
    weights, other = torch.cat(log_weights), torch.cat(log_student)
    own_weights = -measured_energy(target.energy, x, context).double()
    log_z = log_mean_exp(weights)
    safe = log_mean_exp(torch.cat([weights, own_weights[:, None]], 1))
    lengths = x.lengths.double()
    costs = (negative_log_scores(target, x, context) + safe) / lengths
    cost, lift = plain_mean(costs, name="cost"), max(0.0, float(((safe - log_z) / lengths).mean()))
    shares = normalised(weights)
    of_p = drawn.log_probs + weights - log_z[:, None]
    means = torch.einsum("rd,rdf->rf", shares, drawn.values.to(shares))
    return PairCosts(
        cost._replace(low=cost.low - lift),
        costs,
        lift,
        means_by_name(means, features),
        plain_mean((shares * drawn.x.lengths.double().view(-1, each)).sum(1), name="length", low=0.0),
        plain_mean((shares * (of_p - other)).sum(1), name="KL"),
    )


@torch.no_grad()
def model_on_pairs(model: Stepwise, pairs: Pairs, *, generator: Generator) -> tuple[Float[Tensor, " pairs"], Sequences]:
    """What references cost, in nats per token of each pair, and one draw for each source."""
    found = []
    for rows in torch.split(torch.arange(pairs[1].rows), 1024):
        found.append(propose(model, 1, pairs[1].select(rows), generator)[0])
    return negative_log_scores(model, *pairs) / pairs[0].lengths.double(), Sequences.join(found)
