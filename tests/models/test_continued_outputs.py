"""In the middle of a long text, tokens are scored without their logits and outputs are shown, as anywhere else."""

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.models.construction import Autoregressive, assemble
from ebar.models.continued import Carried, Continued, begin
from ebar.objectives import OBJECTIVES
from ebar.types import Clock, Sequences, Space


def model_of(head: str) -> Autoregressive:
    torch.manual_seed(0)
    options = {"layers": 2, "hidden": 5, "embedding": 4, "dropout_output": 0.5}
    return assemble(Space(7, 6), "awd_lstm", options, head, {"tied": True}).double().eval()


def in_the_middle(model: Autoregressive) -> tuple[Continued, torch.Tensor]:
    """After the first segment of two texts, with the next."""
    texts = torch.randint(7, (2, 11), generator=Generator().manual_seed(1))
    _, carried = Continued(model, begin(model, 2)).read(texts[:, :5])
    return Continued(model, carried, own=texts[:, 5:]), texts


@pytest.mark.parametrize("head", ["softmax", "mixture_of_softmaxes"])
def test_given_tokens_score_as_their_logits_do(head: str) -> None:
    continued, texts = in_the_middle(model_of(head))
    wanted = torch.log_softmax(continued.teacher_forced(texts[:, 5:]), -1).gather(2, texts[:, 5:, None])[..., 0]
    torch.testing.assert_close(continued.given_log_probs(texts[:, 5:]), wanted, rtol=0, atol=1e-12)
    assert continued.without_logits(2) == (head != "softmax")


def test_outputs_are_those_of_one_pass_over_the_whole_text() -> None:
    model = model_of("mixture_of_softmaxes")
    continued, texts = in_the_middle(model)
    found = continued.outputs(texts[:, 5:])
    (raw, dropped), _ = model.backbone.segment_outputs(  # type: ignore[attr-defined]
        torch.cat([torch.full((2, 1), 7), texts[:, :-1]], 1),
        model.backbone.empty_memory(2),  # type: ignore[attr-defined]
    )
    torch.testing.assert_close(found.raw, raw[:, 5:], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.dropped, dropped[:, 5:], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.log_probs, continued.given_log_probs(texts[:, 5:]), rtol=0, atol=1e-12)


def test_whoever_reads_the_texts_own_tokens_leaves_where_the_model_then_stands() -> None:
    model = model_of("softmax")
    continued, texts = in_the_middle(model)
    assert continued.after is None
    objective = OBJECTIVES.make("activation_regularised", {"alpha": 0.0, "beta": 0.0}, model=continued)
    x = Sequences(texts[:, 5:], torch.tensor([6, 6]))
    (loss,) = objective.losses(x, Clock(0, 0), generator=Generator())
    assert float(loss.value.detach()) == pytest.approx(
        -float(continued.given_log_probs(x.tokens).mean().detach()), abs=1e-12
    )
    _, after = Continued(model, begin(model, 2)).read(texts)
    assert isinstance(continued.after, Carried)
    torch.testing.assert_close(continued.after.memory.hidden, after.memory.hidden, rtol=0, atol=1e-12)
    assert continued.after.last.tolist() == texts[:, -1].tolist()


def test_a_backbone_without_them_is_refused_in_a_sentence() -> None:
    torch.manual_seed(0)
    options = {"layers": 1, "hidden": 8, "heads": 2, "feedforward": 8}
    model = assemble(Space(7, 6), "transformer", options, "softmax", {})
    with pytest.raises(UserError, match="choose awd_lstm"):
        Continued(model, begin(model, 1)).outputs(torch.zeros(1, 3, dtype=torch.long))
