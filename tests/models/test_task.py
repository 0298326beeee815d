"""Task models: identities, numbers by hand, and that padding and other rows change nothing."""

import math

import pytest
import torch
from torch import nn

from ebar.backbones.local_xl import LocalBidirectional
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.backbones.xlnet import XlNet
from ebar.data.labelled import Inputs
from ebar.errors import UserError
from ebar.models.construction import assemble
from ebar.models.task.encoders import BothWays, ContentStream, HuggingFaceEncoder, task_encoder
from ebar.models.task.model import (
    KernelPooling,
    Read,
    SpanHead,
    SummaryHead,
    TaskModel,
    best_spans,
    kernels,
    new_head,
    passage_places,
    pooled,
)
from ebar.types import Space

SEP, CLS, PAD = 8, 9, 11


def network(**options):
    return XlNet(12, layers=2, hidden=8, heads=2, **options)


def inputs(*rows: tuple[list[int], list[int] | None]) -> Inputs:
    """Texts and pairs of texts, one choice each."""
    made = []
    for a, b in rows:
        tokens, segments = [*a, SEP], [0] * (len(a) + 1)
        if b is not None:
            tokens, segments = [*tokens, *b, SEP], [*segments, *[1] * (len(b) + 1)]
        made.append(([*tokens, CLS], [*segments, 2]))
    longest = max(len(tokens) for tokens, _ in made)
    padded = torch.tensor([[[*own, *[PAD] * (longest - len(own))]] for own, _ in made])
    parts = torch.tensor([[[*own, *[0] * (longest - len(own))]] for _, own in made])
    return Inputs(padded, parts, torch.tensor([[len(own)] for own, _ in made]))


def encoders():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=12, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=20,
        )
    )  # fmt: skip
    return {
        "xlnet": network(),
        "local xlnet": network(chunk=2),
        "bidirectional": BidirectionalTransformer(12, layers=1, hidden=8, heads=2),
        "local": LocalBidirectional(12, layers=1, hidden=8, heads=2, chunk=3),
        "hugging face": bert,
    }


@pytest.mark.parametrize("name", ["xlnet", "local xlnet", "bidirectional", "local", "hugging face"])
def test_a_text_has_the_same_scores_alone_and_padded_beside_a_longer_one(name):
    encoder = task_encoder(encoders()[name]).double().eval()  # type: ignore[attr-defined]
    model = TaskModel(encoder, {"task": SummaryHead(8, 3).double().eval()})
    short, long = ([1, 2], [3]), ([4, 5, 6, 7, 1, 2], [3, 3, 2])
    together = model.scores(inputs(short, long), "task")
    torch.testing.assert_close(together[:1], model.scores(inputs(short), "task"))
    assert not torch.allclose(together[0], together[1])


def test_bert_is_given_cls_first_and_its_vectors_come_back_in_our_order():
    bert = encoders()["hugging face"].eval()
    encoder = HuggingFaceEncoder(bert)
    read = inputs(([1, 2], [3]), ([4], None))
    hidden = encoder(*(part[:, 0] for part in read))
    own = bert(
        input_ids=torch.tensor([[CLS, 1, 2, SEP, 3, SEP]]), token_type_ids=torch.tensor([[0, 0, 0, 0, 1, 1]])
    ).last_hidden_state
    torch.testing.assert_close(hidden[0], own[0][[1, 2, 3, 4, 5, 0]])
    own = bert(input_ids=torch.tensor([[CLS, 4, SEP]])).last_hidden_state
    torch.testing.assert_close(hidden[1, :3], own[0][[1, 2, 0]])


def test_what_reads_both_ways_is_found_and_what_does_not_is_refused():
    model = assemble(Space(12, 6), "xlnet", {"layers": 1, "hidden": 8, "heads": 2}, "softmax", {"tied": True})
    assert isinstance(task_encoder(model), ContentStream)
    assert isinstance(task_encoder(BidirectionalTransformer(12, layers=1, hidden=8, heads=2)), BothWays)
    with pytest.raises(UserError, match="Lstm does not read a text both ways"):
        task_encoder(assemble(Space(12, 6), "lstm", {"layers": 1, "hidden": 8}))


@pytest.mark.parametrize(("mean", "summary"), [(False, (1, -1)), (True, (5, 4))])
def test_the_summary_head_by_hand(mean, summary):
    """h = (1, −1) at CLS, (5, 4) in the mean; V = [[1, 0], [0, 2]], W = (3, 1), c = ½: 3·tanh h₁ + tanh 2h₂ + ½."""
    head = SummaryHead(2, 1, mean=mean).eval()
    with torch.no_grad():
        head.project.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        head.project.bias.zero_()
        head.out.weight.copy_(torch.tensor([[3.0, 1.0]]))
        head.out.bias.fill_(0.5)
    hidden = torch.tensor([[[9.0, 9.0], [1.0, -1.0], [7.0, 7.0]]])
    expected = 3 * math.tanh(summary[0]) + math.tanh(2 * summary[1]) + 0.5
    assert float(head(hidden, torch.tensor([2])).detach()) == pytest.approx(expected, abs=1e-6)


def test_an_option_that_a_question_has_not_is_never_chosen():
    model = TaskModel(task_encoder(network()).eval(), {"task": SummaryHead(8, 1)})  # type: ignore[attr-defined]
    two = inputs(([1, 2], [3]), ([4], [5]))
    read = Inputs(*(part.transpose(0, 1) for part in two))._replace(lengths=torch.tensor([[6, 0]]))
    assert model.scores(read, "task")[0, :, 0].softmax(0).tolist() == [1.0, 0.0]


def test_a_passage_is_the_first_text_without_its_separator():
    [_, segments, lengths] = inputs(([1, 2, 3], [4]), ([5], [6, 7, 1, 2]))
    found = passage_places(segments[:, 0], lengths[:, 0])
    assert found.long().tolist() == [[1, 1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    document = passage_places(segments[:, 0], lengths[:, 0], 1)
    assert document.long().tolist() == [[0, 0, 0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0]]


def span_model(seed: int = 1):
    torch.manual_seed(seed)
    model = TaskModel(task_encoder(network()), {"task": new_head("span", 8)}).double().eval()
    model.requires_grad_(False)
    return model.span_head("task"), model.read(inputs(([1, 2, 3, 4], [5]), ([6, 7], [1, 2, 3])))


def every_span(head: SpanHead, read: Read) -> torch.Tensor:
    rows, length = read.places.shape
    first = torch.arange(length).expand(rows, -1)
    return head.first_log_probs(read.hidden, read.places)[:, :, None] + head.last_log_probs(
        read.hidden, read.places, first
    )


def test_probabilities_of_all_spans_add_up_to_1_and_none_leaves_the_passage_or_ends_before_it_begins():
    head, read = span_model()
    probabilities = every_span(head, read).exp()
    torch.testing.assert_close(probabilities.sum((1, 2)), torch.ones(2, dtype=torch.float64))
    inside = probabilities[0, :4, :4]
    torch.testing.assert_close(inside.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert bool((inside.tril(-1) == 0).all())
    assert bool((inside.triu() > 0).masked_select(torch.ones(4, 4).triu().bool()).all())


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_over_all_first_tokens_finds_the_likeliest_span_and_a_short_one_obeys_the_longest_answer(seed):
    head, read = span_model(seed)
    probabilities = every_span(head, read).exp()
    found = best_spans([(head, read)], beam=99)
    for row in range(2):
        assert float(found.probability[row]) == pytest.approx(float(probabilities[row].max()))
        assert float(probabilities[row, found.first[row], found.last[row]]) == pytest.approx(
            float(probabilities[row].max())
        )
    one = best_spans([(head, read)], beam=99, longest=1)
    assert one.first.tolist() == one.last.tolist()
    torch.testing.assert_close(one.probability, probabilities.diagonal(dim1=1, dim2=2).max(1).values)


def test_several_models_find_the_span_of_the_highest_mean_probability():
    head, read = span_model()
    torch.manual_seed(5)
    other = SpanHead(8).double().eval()
    mean = (every_span(head, read).exp() + every_span(other, read).exp()) / 2
    found = best_spans([(head, read), (other, read)], beam=99)
    torch.testing.assert_close(found.probability, mean.flatten(1).max(1).values)
    answerable = [one.answerable_logits(read.hidden, read.lengths).sigmoid() for one in (head, other)]
    torch.testing.assert_close(found.answerable, (answerable[0] + answerable[1]) / 2)


def test_the_eleven_kernels_are_those_of_the_paper():
    means, widths = kernels()
    torch.testing.assert_close(means, torch.tensor([1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]))
    assert widths.tolist() == pytest.approx([1e-3] + [0.1] * 10)


def test_kernel_pooling_by_hand():
    """Two query words, two document words, kernels at 1 and 0 of width ½.

    exp(−(m − 1)²/0.5) of m = 1, 0.5, 0: 1, e^−½, e^−2. Query word 1 has (1, 0), word 2 has (0.5, 0).
    """
    likeness = torch.tensor([[[1.0, 0.0, 0.3], [0.5, 0.0, 0.3], [1.0, 1.0, 1.0]]], dtype=torch.float64)
    query, document = torch.tensor([[True, True, False]]), torch.tensor([[True, True, False]])
    means, widths = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.5, 0.5]).double()
    found = pooled(likeness, query, document, means, widths)
    half, two = math.exp(-0.5), math.exp(-2)
    expected = [math.log(1 + two) + math.log(half + two), math.log(two + 1) + math.log(half + 1)]
    assert found[0].tolist() == pytest.approx(expected)


def test_the_score_of_kernel_pooling_reads_cosines_of_tokens_and_not_their_place():
    encoder = task_encoder(network())
    model = KernelPooling(encoder)
    first, second = inputs(([1, 2], [1, 3, 4])), inputs(([2, 1], [4, 1, 3]))
    torch.testing.assert_close(model.scores(first, "task"), model.scores(second, "task"))
    vectors = nn.functional.normalize(encoder.table.detach(), dim=1)
    likeness = vectors[[1, 2]] @ vectors[[1, 3, 4]].T
    means, widths = kernels()
    sums = torch.exp(-((likeness[:, :, None] - means) ** 2) / (2 * widths**2)).sum(1)
    feature = sums.clamp(min=1e-10).log().sum(0)
    expected = torch.tanh(model.out(0.01 * feature))
    torch.testing.assert_close(model.scores(first, "task")[0, 0], expected)
    assert [name for name, _ in model.named_parameters()] == ["out.weight", "out.bias"]


@pytest.mark.parametrize("name", ["a.b", "", "two words"])
def test_names_of_tasks_are_identifiers(name):
    with pytest.raises(UserError, match="cannot be the name of a task"):
        TaskModel(task_encoder(network()), {name: SummaryHead(8, 1)})
