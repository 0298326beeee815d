"""Samplers on a Transformer-XL whose sequences are longer than its memory: nothing in them knows of a memory."""

import torch
from torch import Generator

from ebar.backbones.transformer_xl import TransformerXl
from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers.beam import beam_search
from ebar.samplers.draw import draw
from ebar.samplers.look_ahead import LookAhead
from ebar.testing import check_stepwise
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space
from tests.backbones.reading import lively

SPACE = Space(3, 6, end=2)
PREFIXES = Context(Sequences(torch.tensor([[0, 9, 9], [1, 0, 1]]), torch.tensor([1, 3])))


def model(space: Space = SPACE) -> Autoregressive:
    torch.manual_seed(0)
    backbone = lively(TransformerXl(3, layers=2, hidden=8, heads=2, memory=3))
    return Autoregressive(backbone, Softmax(8, 3).double(), space).eval()


def test_it_is_a_stepwise_model():
    check_stepwise(model())
    check_stepwise(model(), PREFIXES)


@torch.no_grad()
def test_a_wide_beam_finds_the_likeliest():
    q = model()
    everything = whole_space(SPACE, PREFIXES)
    wanted = q.log_prob(everything, PREFIXES).view(2, -1).amax(1)
    beams = beam_search(q, PREFIXES, width=64, length_penalty=0.0)
    torch.testing.assert_close(q.log_prob(beams.x, PREFIXES), wanted)


@torch.no_grad()
def test_look_ahead_is_worth_what_the_target_says():
    q = model()
    target = Tilted(q, Linear(Features([Motif(motif="101", alphabet="01", end=2)]), torch.tensor([2.0]).double()))
    draws = draw(LookAhead(), target, 200, generator=Generator().manual_seed(0))
    everything = whole_space(SPACE)
    z = target.log_score(everything).exp().sum()
    weights = draws.log_weights.exp()
    # Within 6 standard errors of Z: a false alarm about once in 10⁸.
    assert abs(weights.mean() - z) < 6 * weights.std() / 200**0.5


@torch.no_grad()
def test_a_draw_longer_than_the_memory_agrees_with_log_prob():
    q = model(Space(3, 60))
    x, log_q = q.sample_with_log_prob(3, PREFIXES, generator=Generator().manual_seed(0))
    torch.testing.assert_close(q.log_prob(x, PREFIXES), log_q, rtol=0, atol=1e-9)
