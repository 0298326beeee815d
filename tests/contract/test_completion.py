"""A space that completes: a context is the beginning of the sequence, and what is drawn and scored is the rest."""

from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.backbones.pixelcnn import GatedPixelCnn, PixelCnn
from ebar.backbones.transformer import Transformer
from ebar.data.images import Images
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.divergences import divergence
from ebar.estimators.last_step import last_step
from ebar.estimators.per_step import per_step
from ebar.evaluation.cross_entropy import bits_per_dimension
from ebar.evaluation.next_words import next_words
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.heads.softmax import Softmax
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive, FromLogits
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.samplers import SAMPLERS
from ebar.samplers.beam import decode_contexts
from ebar.samplers.draw import draw
from ebar.samplers.look_ahead import guided
from ebar.types import Clock, Context, Sequences, Space
from tests.estimators.exact_per_step import exact_per_step
from tests.models.test_from_logits import Network

LENGTH, GIVEN = 6, 2
REST = LENGTH - GIVEN
IMAGE: dict[str, Any] = {"image_height": 2, "image_width": 3, "channels": 1, "features": 4, "layers": 1}
KINDS = ["pixelcnn", "gated_pixelcnn", "transformer", "lstm", "from_logits", "truncated"]


def model_of(kind: str) -> Any:
    torch.manual_seed(2)
    plain, completing = Space(2, LENGTH), Space(2, LENGTH, completes=True)
    made: dict[str, Any] = {
        "pixelcnn": lambda: autoregressive(PixelCnn(2, **IMAGE), plain),
        "gated_pixelcnn": lambda: autoregressive(GatedPixelCnn(2, **IMAGE), plain),
        "transformer": lambda: autoregressive(Transformer(2, layers=1, hidden=8, heads=2, dropout=0.0), completing),
        "lstm": lambda: autoregressive(Lstm(2, layers=1, hidden=8, dropout=0.0), completing),
        "from_logits": lambda: FromLogits(Network(), Space(3, LENGTH, completes=True), beginning=3),
        "truncated": lambda: autoregressive(PixelCnn(2, **IMAGE), plain).truncated(temperature=1.5),
    }
    return made[kind]().double().requires_grad_(False)


def autoregressive(backbone: Any, space: Space) -> Autoregressive:
    return Autoregressive(backbone, Softmax(backbone.width, 2), space)


def beginnings(*rows: list[int]) -> Context:
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for at, row in enumerate(rows):
        tokens[at, : len(row)] = torch.tensor(row)
    return Context(Sequences(tokens, lengths))


TWO = beginnings([0, 1], [1, 1])


def rests(vocabulary: int) -> Sequences:
    """Every rest, for both beginnings."""
    every = all_sequences(Space(vocabulary, REST))
    return Sequences(every.tokens.repeat(2, 1), every.lengths.repeat(2))


def wholes(rest: Sequences) -> Sequences:
    given = TWO.given.tokens.repeat_interleave(len(rest.lengths) // 2, 0)
    return Sequences(torch.cat([given, rest.tokens], 1), rest.lengths + GIVEN)


def conditional(model: Any) -> Any:
    """log p(rest | beginning), from the probabilities of whole sequences."""
    rest = rests(model.space.vocabulary)
    joint = model.log_prob(wholes(rest)).view(2, -1)
    return joint - torch.logsumexp(joint, 1, keepdim=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_scored_and_drawn_is_the_rest_given_the_beginning(kind, generator):
    model = model_of(kind)
    vocabulary = model.space.vocabulary
    torch.testing.assert_close(model.log_prob(rests(vocabulary), TWO).view(2, -1), conditional(model))
    x, log_q = model.sample_with_log_prob(5, TWO, generator=generator)
    assert x.tokens.shape == (10, REST)
    assert x.lengths.tolist() == [REST] * 10
    torch.testing.assert_close(model.log_prob(x, TWO), log_q)
    assert bool((model.log_prob(wholes(x), TWO) == -torch.inf).all())  # a whole one is no rest


@pytest.mark.parametrize("kind", KINDS)
def test_beginnings_that_leave_nothing_or_differ_in_length_are_a_sentence(kind, generator):
    model = model_of(kind)
    x = Sequences(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long))
    for given, words in (
        (beginnings([0] * LENGTH), "6 tokens leaves nothing to come of a sequence of 6"),
        (beginnings([0] * (LENGTH + 3)), "9 tokens leaves nothing"),
        (beginnings([0, 1], [0]), "must all have as many tokens"),
    ):
        with pytest.raises(UserError, match=words):
            model.sample(1, given, generator=generator)
        with pytest.raises(UserError, match=words):
            model.log_prob(x.repeat(given.rows), given)


def test_an_image_with_all_but_one_pixel_given_has_one_to_come(generator):
    model = model_of("pixelcnn")
    given = beginnings([0, 1, 1, 0, 1])
    assert model.sample(3, given, generator=generator).tokens.shape == (3, 1)
    everything = Sequences(torch.tensor([[0], [1]]), torch.ones(2, dtype=torch.long))
    assert float(model.log_prob(everything, given).exp().sum()) == pytest.approx(1.0)
    empty = Context(Sequences(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.long)))
    assert model.sample(2, empty, generator=generator).tokens.shape == (2, LENGTH)


def test_images_complete_and_texts_after_a_prefix_keep_their_length(generator):
    images = Images(torch.zeros(1, 1, 2, 3, dtype=torch.uint8), levels=2)
    assert images.space.completes
    lstm = autoregressive(Lstm(2, layers=1, hidden=4, dropout=0.0), Space(2, LENGTH))
    assert not lstm.space.completes
    assert lstm.sample(1, TWO, generator=generator).tokens.shape == (2, LENGTH)
    assert lstm.sample(1, beginnings([0] * 9), generator=generator).tokens.shape == (1, LENGTH)
    with pytest.raises(ValueError, match="a tabular model is a condition"):
        Tabular.random(Space(2, 3, completes=True), generator=generator)
    with pytest.raises(ValueError, match="fixed length"):
        Space(3, 4, end=2, completes=True)


def tilted(model: Any) -> Tilted:
    features = Features([Motif(motif="11", alphabet="01", end=None)])
    return Tilted(model, Linear(features, torch.tensor([1.0]).double())).requires_grad_(False)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("kind", ["pixelcnn", "transformer"])
def test_every_sampler_draws_rests(name, kind, generator):
    model = model_of(kind)
    target: Any = model if name == "ancestral" else tilted(model)
    sampler: Any = SAMPLERS[name]
    drawn = draw(sampler(), target, 8, context=TWO, generator=generator)
    assert drawn.x.lengths.tolist() == [REST] * 16
    if name in ("importance", "look_ahead"):  # w = P/g, whatever g is
        plain = sampler() if name == "importance" else sampler(defence=0.0)
        proposal = model if name == "importance" else plain.proposal(target, TWO, generator=generator)
        drawn = draw(plain, target, 8, proposal=proposal, context=TWO, generator=generator)
        wanted = target.log_score(drawn.x, TWO) - proposal.log_prob(drawn.x, TWO)
        torch.testing.assert_close(drawn.log_weights.flatten(), wanted)


def test_enumeration_estimates_and_the_residual_estimators_are_of_rests(generator):
    model = model_of("pixelcnn")
    p, log_q, rest = tilted(model), conditional(model), rests(2)
    energies = p.energy(rest).view(2, -1)
    log_z = torch.logsumexp(log_q - energies, 1)
    torch.testing.assert_close(exact.log_z(p, TWO), log_z)
    kl = ((log_q - energies - log_z[:, None]).exp() * (-energies - log_z[:, None])).sum(1)
    torch.testing.assert_close(exact.divergence("kl", p, model, TWO), kl)
    found = divergence("kl", p, model, context=TWO)
    assert [estimate.value for estimate in found] == pytest.approx(kl.tolist())
    x = model.sample(1, TWO, generator=generator)
    twin = exact_per_step(model, p.energy, x, TWO)
    torch.testing.assert_close(twin.log_means[:, 0], log_z)
    steps = per_step(model, p.energy, x, TWO, n=3, generator=generator)
    torch.testing.assert_close(steps.log_q.sum(1), model.log_prob(x, TWO))
    last = last_step(model, p.energy, x, TWO).log_joint
    torch.testing.assert_close(last, twin.next_log_probs[:, -1].gather(1, x.tokens[:, -1:]).squeeze(1))
    words = next_words(model, p.energy, TWO.select(torch.tensor([0])), n=3, generator=generator)
    assert sum(word.base for word in words.words) == pytest.approx(1.0)
    assert bits_per_dimension(model, x, context=TWO).value == pytest.approx(
        -float(model.log_prob(x, TWO).mean()) / REST / torch.log(torch.tensor(2.0)).item()
    )


def test_search_finds_the_likeliest_rest_and_training_on_rests_costs_their_log_probability(generator):
    model = model_of("gated_pixelcnn")
    best = decode_contexts(model, TWO, width=2**REST)
    torch.testing.assert_close(best.log_probs[:, 0], conditional(model).amax(1))
    x = model.sample(3, TWO, generator=generator)
    loss = next(iter(MaximumLikelihood(model=model).losses((x, TWO), Clock(0, 0), generator=generator)))
    assert float(loss.value) == pytest.approx(-float(model.log_prob(x, TWO).mean()) / REST)


def test_a_proposal_that_looks_ahead_is_for_as_many_tokens_as_are_to_come(generator):
    model = model_of("pixelcnn")
    proposal = guided(tilted(model), draws=50, context=TWO, generator=generator)
    assert proposal.sample(2, TWO, generator=generator).tokens.shape == (4, REST)
    with pytest.raises(UserError, match="looks ahead over 4 tokens, and after this context 6 are to come"):
        proposal.sample(2, generator=Generator().manual_seed(0))
