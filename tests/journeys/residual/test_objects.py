"""A residual model from objects in memory: whole sequences, without a prefix, a configuration or a folder."""

import math

import pytest
import torch

from ebar.backbones.lstm import Lstm
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.data import LinesData
from ebar.data.chunks import Chunks, Positives
from ebar.data.corpus import Corpus
from ebar.energies.kinds import WarmUp
from ebar.energies.neural import bit, unit_from
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.journeys.residual.journey import Residual, residual
from ebar.journeys.residual.settings import Fitting, NegativesDraws
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive
from ebar.types import Context, Sequences, Space

FITTING = Fitting(epochs=16, batch_size=20, learning_rate=3e-2, patience=9)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Lines of which most are 01, which a base that was not trained does not know."""
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("01\n01\n01\n01\n01\n0\n11\n" * 15)  # not five: every fifth is held out
    return LinesData(train=path).read(maximal_length=3)


def language_model(space: Space, seed: int = 0) -> Autoregressive:
    torch.manual_seed(seed)
    backbone = Lstm(space.vocabulary, layers=1, hidden=8)
    return Autoregressive(backbone, Softmax(backbone.width, space.vocabulary), space).eval()


@pytest.fixture(scope="module")
def joint(data: Corpus) -> Residual:
    q = language_model(data.space)
    energy = bit(BidirectionalTransformer(data.space.vocabulary, layers=1, hidden=8, heads=2, dropout=0.0))
    return residual(q, energy, data, fitting=FITTING, warm_up=WarmUp(epochs=1), seed=1)


def log_p(joint: Residual, space: Space) -> tuple[Sequences, torch.Tensor]:
    """Every sequence there is, with its log-probability."""
    everything = all_sequences(space)
    with torch.no_grad():
        return everything, torch.log_softmax(joint.p.log_score(everything).double(), 0)


def test_whole_sequences_have_one_z_and_the_model_comes_nearer_to_them(joint, data):
    everything, exact = log_p(joint, data.space)
    costs = {tuple(everything.prefix(row)): -float(exact[row]) for row in range(len(exact))}
    test = data.test
    truth = math.exp(
        math.fsum(costs[tuple(test.prefix(row))] for row in range(len(test.lengths))) / float(test.lengths.sum())
    )
    found = joint.perplexity(test, draws=2000, seed=2)
    # The interval is over other sequences of the kind too, so it is wide; the value has the error of Z alone.
    assert found.value == pytest.approx(truth, rel=0.02)
    assert found.low < truth < found.high
    assert joint.perplexity("test", draws=2000, seed=2) == found
    with torch.no_grad():
        base = math.exp(-float(joint.base.q.log_prob(test).sum()) / float(test.lengths.sum()))
    assert truth < base - 0.1


def test_what_is_generated_is_text_of_the_corpus(joint):
    made = joint.generate(count=40, candidates=200, seed=3)
    texts = joint.texts(made.drawn.x)
    assert len(texts) == 40
    assert set("".join(texts)) <= {"0", "1"}
    assert texts.count("01") > 15  # five lines in seven; about one in seven of the base's
    with pytest.raises(UserError, match="need prefixes"):
        joint.evaluate()


def test_without_a_seed_randomness_is_torchs_own(data):
    q = language_model(data.space)

    def once() -> list[float]:
        torch.manual_seed(5)
        made = residual(q, unit_from(q), data, fitting=Fitting(epochs=1, batch_size=40))
        return [*made.energy.head.weight.flatten().tolist(), made.perplexity(draws=50).value]

    assert once() == once()


def test_a_folder_is_gone_on_with(data, tmp_path):
    q = language_model(data.space)
    first = residual(q, unit_from(q), data, fitting=FITTING, seed=1, folder=tmp_path)
    again = residual(q, unit_from(q), data, fitting=FITTING, seed=1, folder=tmp_path)
    assert first.energy.head.weight.tolist() == again.energy.head.weight.tolist()
    assert first.perplexity(draws=50, seed=1) == again.perplexity(draws=50, seed=1)
    other = language_model(data.space, seed=9)
    with pytest.raises(UserError, match="base model"):
        residual(other, unit_from(other), data, fitting=FITTING, seed=1, folder=tmp_path)


def test_a_model_of_longer_sequences_continues_prefixes(generator):
    q = language_model(Space(4, 6))
    x = Sequences(torch.randint(4, (30, 2), generator=generator), torch.full((30,), 2))
    context = Context(Sequences(torch.randint(4, (30, 3), generator=generator), torch.full((30,), 3)))
    part = Positives(x, context)
    chunks = Chunks(train=part, validation=part.spread(10), test=part.spread(5))
    made = residual(q, unit_from(q), chunks, fitting=Fitting(epochs=1), negatives=NegativesDraws(draws=2), seed=1)
    assert made.base.q.space == Space(4, 2)
    found = made.perplexity(draws=100, seed=1)
    assert found.low <= found.value <= found.high
    with torch.no_grad():
        whole = q.log_prob(Sequences(torch.cat([context.given.tokens, x.tokens], 1), x.lengths + 3))
    assert bool((whole < made.base.q.log_prob(x, context) + 1e-5).all())


def test_fewer_chunks_than_the_warm_up_reads_can_be_fitted(data, tmp_path):
    q = language_model(data.space)
    few = Fitting(epochs=1, batch_size=4, chunks=8)
    residual(q, unit_from(q), data, fitting=few, seed=1, folder=tmp_path)
    from ebar.store.stages import HEADER

    assert (tmp_path / "negatives" / "train" / HEADER).exists()
