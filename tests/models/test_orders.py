"""Contexts with an order: what they mean, what is refused, and the laws of models that know them."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones import BACKBONES
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.linear import Linear, OwnLogits
from ebar.energies.neural import bit, unit
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.features.feature import Features
from ebar.features.functions import Predicate
from ebar.maths.orders import arranged, left_to_right
from ebar.models.construction import Autoregressive, assemble
from ebar.models.ngram import NGram, Tabular
from ebar.models.tilted import Tilted, measured_energy
from ebar.samplers.beam import beam_search, greedy
from ebar.testing import check_backbone, check_distribution, check_stepwise
from ebar.training.batches import taken
from ebar.types import Context, Sequences, Space
from tests.models.any_order import AnyOrderTable, gaps, rows_of_gaps

TWO: Any = rows_of_gaps([([1, None, 2, None, None], [2, 0, 1]), ([None, 0, None], [1, 0])])


def tokens(*rows: list[int]) -> Sequences:
    widest = max(map(len, rows))
    padded = torch.tensor([row + [9] * (widest - len(row)) for row in rows], dtype=torch.long)
    return Sequences(padded.view(len(rows), widest), torch.tensor([len(row) for row in rows]))


# By hand.
def test_the_text_is_what_is_given_and_what_comes_in_their_places():
    text = arranged(tokens([7, 5, 6], [3, 4]), TWO)
    assert text.rows() == [[1, 5, 2, 6, 7], [4, 0, 3]]
    repeated = arranged(tokens([7, 5, 6], [5, 6, 7], [3, 4], [4, 3]), TWO)
    assert repeated.rows() == [[1, 5, 2, 6, 7], [1, 6, 2, 7, 5], [4, 0, 3], [3, 0, 4]]


def test_of_a_beginning_the_text_reaches_to_the_first_open_place():
    context = gaps([1, None, 2, None, 3])
    assert [arranged(tokens(x), context).rows()[0] for x in ([], [5], [5, 6])] == [[1], [1, 5, 2], [1, 5, 2, 6, 3]]
    backwards = gaps([1, None, 2, None, 3], [1, 0])
    assert [arranged(tokens(x), backwards).rows()[0] for x in ([], [6], [6, 5])] == [[1], [1], [1, 5, 2, 6, 3]]


def test_without_an_order_x_is_the_text():
    x = tokens([1, 2])
    assert arranged(x) is x
    assert arranged(x, Context(tokens([3]))) is x


def test_how_many_come_and_whether_from_left_to_right():
    assert TWO.coming.tolist() == [3, 2]
    assert left_to_right(TWO).tolist() == [False, False]
    assert left_to_right(gaps([None, 1, None])).tolist() == [True]
    assert left_to_right(Context(tokens([3]))).tolist() == [True]
    assert Space(4, 9, any_order=True).after(TWO).length == 3


@pytest.mark.parametrize(
    ("order", "space", "words"),
    [
        ([[0, 1, 1]], Space(4, 9, any_order=True), "place 1 twice"),
        ([[0, -1, 2]], Space(4, 9, any_order=True), "and then −1"),
        ([[0, -1]], Space(4, 9, any_order=True), "1 places for 1 given tokens"),
        ([[0, 1], [0, 1]], Space(4, 9, any_order=True), "2 rows and the context 1"),
        ([[0, 1, 2, 3]], Space(4, 2, any_order=True), "3 tokens to come"),
        ([[0, 1]], Space(4, 9, 3, any_order=True), "without an end"),
        ([[0, 1]], Space(4, 9), "left to right only"),
    ],
)
def test_an_order_that_cannot_be_is_refused_in_one_sentence(order, space, words):
    with pytest.raises(UserError, match=words) as caught:
        space.after(Context(tokens([5]), torch.tensor(order)))
    assert str(caught.value).count(". ") == 0


def test_a_place_without_a_token_leaves_no_text():
    with pytest.raises(UserError, match="no token for place 1"):
        arranged(tokens([4]), Context(tokens([5]), torch.tensor([[0, 2]])))
    with pytest.raises(UserError, match="2 tokens, and the order has 1"):
        arranged(tokens([4, 4]), Context(tokens([5]), torch.tensor([[0, 1]])))


# Models.
def xlnet(**options) -> Autoregressive:
    torch.manual_seed(3)
    options = {"layers": 2, "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0} | options
    model = assemble(Space(3, 5), "xlnet", options, "softmax", {"tied": True}).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    return model.eval()


MODELS: dict[str, Any] = {"table": lambda: AnyOrderTable(3, 5), "full": xlnet, "local": lambda: xlnet(chunk=1)}
TEXTS = ([None, None, None], [1, None, None, None], [None, 2, None, 0, None], [0, None, 1, 2, None, None, 1])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_the_joint_adds_up_to_one_in_every_order(name, text):
    """All orders of three tokens to come, as rows of one context; the stepwise laws in each."""
    model = MODELS[name]()
    every = [list(order) for order in itertools.permutations(range(3))]
    check_stepwise(model, rows_of_gaps([(list(text), order) for order in every]))


@pytest.mark.parametrize("name", MODELS)
def test_rows_may_have_unequal_numbers_to_come(name):
    context = rows_of_gaps(
        [([1, None, 2, None, None], [2, 0, 1]), ([None, 0, None], [1, 0]), ([2, 1, 1, 0, 1, None], None)]
    )
    model = MODELS[name]()
    check_stepwise(model, context)
    x = model.sample(20, context, generator=Generator().manual_seed(1))
    assert x.lengths.view(3, 20).unique(dim=1).flatten().tolist() == [3, 2, 1]


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_the_text_is_what_a_context_without_one_means(name):
    """Bit for bit: places 0, 1, 2 … in turn."""
    model, x = MODELS[name](), tokens([1, 0, 2, 1, 1], [2, 2, 0, 0, 1])
    given = tokens([1, 2], [0, 1])
    in_turn = Context(given, torch.arange(7).repeat(2, 1))
    assert torch.equal(model.log_prob(x, Context(given)), model.log_prob(x, in_turn))
    alike = model.sample(9, in_turn, generator=Generator().manual_seed(2))
    assert torch.equal(alike.tokens, model.sample(9, Context(given), generator=Generator().manual_seed(2)).tokens)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_of_the_wrong_length_has_no_probability(name):
    model = MODELS[name]()
    found = model.log_prob(tokens([1, 0, 2], [1, 0, 2]), TWO)
    assert found.isfinite().tolist() == [True, False]
    assert model.log_prob(tokens([1, 0], [1, 0]), TWO).isfinite().tolist() == [False, True]


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_what_comes_later_in_the_order_changes_nothing_before_it(chunk):
    """A token may stand left of another and come after it; hidden vectors know only what has come."""
    context = rows_of_gaps(
        [([1, None, 2, None, None, None], list(order)) for order in itertools.permutations(range(4))]
    )
    check_backbone(xlnet(chunk=chunk).backbone, vocabulary=3, length=4, rows=24, context=context)


def test_a_truncated_model_keeps_its_orders():
    check_stepwise(AnyOrderTable(3, 5).truncated(temperature=0.7, top_k=2), TWO)


@pytest.mark.parametrize("kind", sorted(set(BACKBONES) - {"xlnet"}))
def test_a_backbone_that_reads_from_left_to_right_refuses_an_order(kind):
    image = {"image_height": 2, "image_width": 2, "image_channels": 1}
    shape = {"encoder_decoder": {"source_vocabulary": 3}, "pixelcnn": image, "gated_pixelcnn": image}.get(kind, {})
    model = assemble(Space(3, 4), kind, {}, shape=shape, sources=True)
    context = gaps([1, None, 2, None])
    for act in (
        lambda: model.log_prob(tokens([1, 1]), context),
        lambda: model.sample(2, context, generator=Generator()),
        lambda: model.start(1, context),
        lambda: model.teacher_forced(torch.ones(1, 2, dtype=torch.long), context),
        lambda: beam_search(model, context, width=2),
    ):
        with pytest.raises(UserError, match="left to right only"):
            act()


def test_models_that_are_no_networks_refuse_an_order_too():
    table = Tabular.random(Space(2, 2), generator=Generator().manual_seed(0))
    counts = NGram.fit(torch.tensor([1, 0, 1, 0, 1, 1]), Space(2, 3), order=2)
    for model in (table, counts):
        with pytest.raises(UserError, match="left to right only"):
            model.log_prob(tokens([1, 1]), gaps([1, None, 1, None]))


# Searching.
def test_beam_search_of_full_width_finds_the_best_way_to_fill_each_row():
    model = AnyOrderTable(3, 5)
    found = beam_search(model, TWO, width=27, length_penalty=0.0, best=2)
    for row, count in enumerate((3, 2)):
        context = TWO.select(torch.tensor([row]))
        every = torch.cartesian_prod(*[torch.arange(3)] * count)
        scores = model.log_prob(Sequences(every, torch.full((len(every),), count)), context)
        best = scores.topk(2)
        assert torch.allclose(found.log_probs[row], best.values)
        assert found.x.prefix(2 * row) == every[best.indices[0]].tolist()
    x, log_probs = greedy(model, TWO)
    assert x.lengths.tolist() == [3, 2]
    assert torch.allclose(model.log_prob(x, TWO), log_probs)


# Energies.
def test_features_are_about_the_arranged_text():
    seen = []

    def looks(row: list[int]) -> bool:
        seen.append(row)
        return True

    model, x = AnyOrderTable(9, 5), tokens([7, 5, 6], [3, 4])
    energy = Linear(Features([Predicate(looks, end=None)]), torch.tensor([0.5]))
    assert torch.allclose(Tilted(model, energy).log_score(x, TWO), model.log_prob(x, TWO) + 0.5)
    assert seen == [[1, 5, 2, 6, 7], [4, 0, 3]]
    seen.clear()
    Tilted(model, energy).log_score(x, TWO._replace(order=TWO.order.clone()))
    assert len(seen) == 2  # another order is another text: nothing is kept
    seen.clear()
    conditional = Predicate(lambda text, given: text[0] == given[0], end=None, conditional=True)
    assert Features([conditional])(x, TWO).flatten().tolist() == [1.0, 0.0]


def test_an_energy_of_ones_own_is_given_the_arranged_text_alone():
    seen: dict[str, Any] = {}

    def own(x: Sequences, context: Context | None = None):
        seen.update(rows=x.rows(), context=context)
        return torch.zeros(len(x.lengths))

    measured_energy(own, tokens([7, 5, 6], [3, 4]), TWO)
    assert seen == {"rows": [[1, 5, 2, 6, 7], [4, 0, 3]], "context": None}
    prefix = Context(tokens([8]))
    measured_energy(own, tokens([7, 5]), prefix)
    assert seen == {"rows": [[7, 5]], "context": prefix}


@pytest.mark.parametrize("pool", ["continuation", "all"])
@pytest.mark.parametrize("kind", ["unit", "bit"])
def test_a_network_reads_the_arranged_text_and_pools_the_places_of_x(kind, pool):
    torch.manual_seed(0)
    options: dict[str, Any] = {"layers": 1, "hidden": 8, "heads": 2, "dropout": 0.0}
    backbone = BACKBONES["transformer"](9, **options)
    both = BidirectionalTransformer(9, **options)
    energy = unit(backbone, pool=pool) if kind == "unit" else bit(both, pool=pool)
    with torch.no_grad():
        energy.head.weight.normal_()
    x, given = tokens([7, 5, 6], [3, 4, 1]), tokens([1, 2], [8, 0])
    in_turn = Context(given, torch.arange(5).repeat(2, 1))
    plain = measured_energy(energy, x, Context(given))
    assert torch.allclose(measured_energy(energy, x, in_turn), plain, atol=1e-6)
    # The same text by another order: the same vectors, pooled where x stands.
    shuffled = Context(given, torch.tensor([[0, 1, 4, 2, 3], [0, 1, 3, 2, 4]]))
    mixed = tokens([6, 7, 5], [4, 3, 1])
    assert torch.allclose(measured_energy(energy, mixed, shuffled), plain, atol=1e-6)
    between = Context(given, torch.tensor([[0, 4, 1, 2, 3], [0, 4, 1, 2, 3]]))
    assert not torch.allclose(measured_energy(energy, x, between), plain, atol=1e-3)


@torch.no_grad()
def test_the_energy_in_a_models_own_logits_reads_the_order_itself():
    model, x = AnyOrderTable(9, 5), tokens([7, 5, 6], [3, 4])
    wanted = []
    for row in range(2):
        _, state = model.start(1, TWO.select(torch.tensor([row])))
        own = torch.tensor([x.prefix(row)])
        wanted.append(-float(model.advance(own[:, :-1], state)[0][0, -1].logsumexp(0)))
    assert torch.allclose(measured_energy(OwnLogits(model), x, TWO), torch.tensor(wanted).double())


def test_batches_are_trimmed_with_their_orders():
    x, context = taken((tokens([7, 5, 6], [3, 4]), TWO), torch.tensor([1]))
    assert x.tokens.shape == (1, 2)
    assert context.given.tokens.shape == (1, 1)
    assert context.order.tolist() == [[1, 2, 0]]


@torch.no_grad()
def test_enumeration_agrees_with_the_sum_by_hand():
    model = AnyOrderTable(2, 3)
    context = gaps([1, None, 0, None], [1, 0])
    energy = Linear(Features([Predicate(lambda row: row == [1, 1, 0, 0], end=None)]), torch.tensor([math.log(3.0)]))
    target = Tilted(model, energy)
    p = float(model.log_prob(tokens([0, 1]), context).exp())
    assert float(exact.log_z(target, context).exp()) == pytest.approx(1 + 2 * p)
    check_distribution(model, context)
