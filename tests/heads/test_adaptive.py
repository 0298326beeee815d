"""The adaptive softmax: a cluster, then a token of it; and input vectors cut in the same way."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.adaptive import AdaptiveEmbedding
from ebar.errors import UserError
from ebar.heads.adaptive import AdaptiveSoftmax, default_cutoffs
from ebar.models.construction import assemble
from ebar.testing import check_head
from ebar.types import Space

WIDTH, VOCABULARY = 8, 11
WAYS: dict[str, dict[str, Any]] = {
    "one table": {"cutoffs": (4, 7)},
    "shorter": {"cutoffs": (4, 7), "divide": 2},
    "one cluster": {"cutoffs": ()},
    "default": {},
    "tied": {"cutoffs": (4, 7), "divide": 2, "tied": True, "tie_projections": (False, True)},
    "projections tied": {"cutoffs": (4, 7), "divide": 2, "tie_projections": (True, True, True)},
    "tied to one table": {"cutoffs": (4, 7), "tied": True},
}


def inputs(divide: int = 2) -> AdaptiveEmbedding:
    return AdaptiveEmbedding(VOCABULARY, WIDTH, cutoffs=(4, 7), divide=divide)


def head_of(way: str) -> Any:
    torch.manual_seed(0)
    options = WAYS[way]
    embedding: Any = inputs(options.get("divide", 1)) if "tie_projections" in options else None
    if way == "tied to one table":
        embedding = torch.nn.Parameter(torch.randn(VOCABULARY + 1, WIDTH))
    head = AdaptiveSoftmax(WIDTH, VOCABULARY, embedding, **options)
    own = [*embedding.parameters()] if isinstance(embedding, torch.nn.Module) else []
    with torch.no_grad():
        for parameter in (*head.parameters(), *own):
            parameter.add_(torch.randn(parameter.shape))
    for module in (head, embedding):
        if isinstance(module, torch.nn.Module):
            module.double()
    if way == "tied to one table":
        embedding.data = embedding.data.double()
    return head


@pytest.mark.parametrize("way", WAYS)
def test_it_is_a_distribution_and_knows_its_targets(way):
    check_head(head_of(way), width=WIDTH, vocabulary=VOCABULARY, tolerance=1e-9)


@torch.no_grad()
def test_a_cluster_and_a_token_by_hand():
    """Hidden 1: first step 1 : 1 : 2 for tokens 0, 1 and the cluster, in which tokens 2 and 3 are 1 : 3."""
    head = AdaptiveSoftmax(1, 4, cutoffs=(2,)).double()
    head.tables[0].copy_(torch.tensor([[0.0], [0.0], [0.0], [1.0]]))
    head.bias.copy_(torch.tensor([0.0, 0.0, 0.0, math.log(3) - 1], dtype=torch.float64))
    head.cluster_weight.fill_(math.log(2))
    hidden = torch.ones(1, 1, dtype=torch.float64)
    torch.testing.assert_close(head(hidden).exp()[0], torch.tensor([1 / 4, 1 / 4, 1 / 8, 3 / 8], dtype=torch.float64))
    found = head.log_probs(hidden.expand(3, 1), torch.tensor([3, 0, 2])).exp()
    torch.testing.assert_close(found, torch.tensor([3 / 8, 1 / 4, 1 / 8], dtype=torch.float64))


@torch.no_grad()
def test_clusters_where_no_target_lies_are_not_scored(monkeypatch):
    head, scored = head_of("shorter"), []
    tail = head._tail

    def counted(hidden: Tensor, cluster: int) -> Any:
        scored.append((cluster, len(hidden)))
        return tail(hidden, cluster)

    monkeypatch.setattr(head, "_tail", counted)
    head.log_probs(torch.zeros(2, 3, WIDTH).double(), torch.tensor([[0, 8, 3], [8, 1, 9]]))
    assert scored == [(2, 3)]


def test_ties_share_their_gradient():
    head = head_of("tied")
    embedding = head._inputs[0]
    assert {name for name, _ in head.named_parameters()} == {
        "bias", "cluster_weight", "cluster_bias", "projections.0", "projections.2",
    }  # fmt: skip
    head.log_probs(torch.ones(1, WIDTH).double(), torch.tensor([5])).sum().backward()
    assert embedding.tables[1].grad.any()
    assert embedding.projections[1].grad.any()
    assert embedding.projections[0].grad is None
    assert embedding.tables[2].grad is None


@torch.no_grad()
def test_input_vectors_by_hand():
    embedding = inputs().double()
    tokens = torch.tensor([[0, 5], [10, VOCABULARY]])
    found = embedding(tokens)
    torch.testing.assert_close(found[0, 0], embedding.projections[0] @ embedding.tables[0][0])
    torch.testing.assert_close(found[0, 1], embedding.projections[1] @ embedding.tables[1][1])
    torch.testing.assert_close(found[1, 0], embedding.projections[2] @ embedding.tables[2][3])
    assert torch.equal(found[1, 1], embedding.beginning)
    assert [table.shape for table in embedding.tables] == [(4, 8), (3, 4), (4, 2)]
    whole = inputs(1)
    assert torch.equal(whole(tokens)[0, 1], whole.tables[0][5])
    assert embedding(tokens[:0]).shape == (0, 2, WIDTH)


@pytest.mark.parametrize("kind", ["transformer_xl", "transformer", "lstm"])
def test_a_backbone_gives_its_input_vectors(kind, generator):
    torch.manual_seed(0)
    options: dict[str, Any] = {"layers": 1, "hidden": 8} | ({} if kind == "lstm" else {"heads": 2})
    head: dict[str, Any] = {"cutoffs": (3, 6), "tied": kind == "transformer"}
    if kind == "transformer_xl":
        options |= {"cutoffs": (3, 6), "divide": 2}
        head = {"tied": True, "tie_projections": (False, True, True)}
    model = assemble(Space(VOCABULARY, 6, end=0), kind, options, "adaptive_softmax", head).double()
    made: Any = model.head
    assert made.bounds == [0, 3, 6, VOCABULARY]
    assert made.divide == (2 if kind == "transformer_xl" else 1)
    x, log_q = model.sample_with_log_prob(20, generator=generator)
    torch.testing.assert_close(model.log_prob(x), log_q)
    assert not model.free_logits
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len({id(parameter) for parameter in model.parameters()})


def test_default_cutoffs():
    assert default_cutoffs(267_735) == (20_081, 40_161, 200_802)
    assert default_cutoffs(3) == (1,)
    assert default_cutoffs(1) == ()
    assert default_cutoffs(100) == (8, 15, 75)


@pytest.mark.parametrize(
    ("options", "embedding", "message"),
    [
        ({"cutoffs": (5, 2)}, None, "cutoffs must grow"),
        ({"cutoffs": (11,)}, None, "cutoffs must grow"),
        ({"cutoffs": (2, 3), "divide": 4}, None, "cannot be divided"),
        ({"tied": True}, None, "no input vectors"),
        ({"cutoffs": (4,), "divide": 2, "tied": True}, inputs(), "not cut in the same way"),
        ({"divide": 1, "tied": True}, inputs(), "other widths"),
        ({"divide": 1, "tie_projections": (True,)}, inputs(1), "nothing is projected"),
        ({"tied": True}, torch.nn.Parameter(torch.zeros(12, 5)), "other widths"),
    ],
)
def test_what_cannot_be_tied_is_refused(options, embedding, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveSoftmax(WIDTH, VOCABULARY, embedding, **options)
    with pytest.raises(UserError, match="head adaptive_softmax cannot be made"):
        assemble(Space(VOCABULARY, 4), "lstm", {"hidden": 4, "layers": 1}, "adaptive_softmax", {"cutoffs": (9, 2)})


def test_hidden_vectors_of_any_shape(generator: Generator):
    head = head_of("default")
    hidden = torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=generator)
    assert head(hidden[0, 0]).shape == (VOCABULARY,)
    assert head.log_probs(hidden[0, 0], torch.tensor(3)).shape == ()
    assert head.log_probs(hidden[:0], torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3)
