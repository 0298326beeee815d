"""Log-probabilities of given targets, in tiles, against those of the whole vocabulary."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.heads import output
from ebar.heads.output import linear_log_probs


def dense(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    logits = vectors @ weight[: len(bias)].T + bias
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def inputs(rows: int, vocabulary: int, *, more: int = 0, size: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = Generator().manual_seed(3)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    return leaf(rows, size), leaf(vocabulary + more, size), leaf(vocabulary)


def test_two_words_by_hand() -> None:
    vectors = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    weight, bias = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    found = linear_log_probs(vectors, weight, bias, torch.tensor([1, 0]))
    torch.testing.assert_close(found.exp(), torch.tensor([3 / 4, 1 / 10], dtype=torch.float64))


@pytest.mark.parametrize(("rows", "words"), [(512, 1024), (3, 4), (1, 1), (7, 5)])
@pytest.mark.parametrize("more", [0, 2])
def test_values_and_gradients_are_the_dense_ones(
    monkeypatch: pytest.MonkeyPatch, rows: int, words: int, more: int
) -> None:
    monkeypatch.setattr(output, "ROWS", rows)
    monkeypatch.setattr(output, "WORDS", words)
    given, generator = inputs(7, 10, more=more), Generator().manual_seed(5)
    targets = torch.tensor([0, 9, 3, 4, 4, 9, 7])  # of every tile, some twice
    scale = torch.randn(7, generator=generator, dtype=torch.float64)
    scale[2] = 0.0
    found, wanted = linear_log_probs(*given, targets), dense(*given, targets)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    ours = torch.autograd.grad((found * scale).sum(), given)
    theirs = torch.autograd.grad((wanted * scale).sum(), given)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert torch.equal(ours[1][10:], torch.zeros(more, 4))


@pytest.mark.parametrize("learnt", range(3))
def test_a_gradient_for_one_input_only(learnt: int) -> None:
    given, targets = inputs(5, 6), torch.tensor([0, 5, 2, 2, 1])
    wanted = torch.autograd.grad(dense(*given, targets).sum(), given)[learnt]
    for place, one in enumerate(given):
        one.requires_grad_(place == learnt)
    linear_log_probs(*given, targets).sum().backward()
    torch.testing.assert_close(given[learnt].grad, wanted, rtol=0, atol=1e-10)


def test_the_same_numbers_twice() -> None:
    given, targets = inputs(600, 1500), torch.randint(1500, (600,), generator=Generator().manual_seed(1))
    first, second = (torch.autograd.grad(linear_log_probs(*given, targets).sum(), given) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_large_logits_do_not_overflow_and_nan_stays_nan() -> None:
    vectors = torch.tensor([[2000.0], [math.nan]], requires_grad=True)
    weight, bias = torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
    found = linear_log_probs(vectors, weight, bias, torch.tensor([1, 0]))
    assert found[0].item() == -4000.0
    assert math.isnan(found[1].item())
    found.sum().backward()
    assert vectors.grad is not None
    assert float(vectors.grad[0]) == -2.0
    assert math.isnan(float(vectors.grad[1]))


def test_no_rows() -> None:
    given = inputs(0, 3)
    found = linear_log_probs(*given, torch.zeros(0, dtype=torch.long))
    assert found.shape == (0,)
    found.sum().backward()
    assert given[1].grad is not None
    assert not bool(given[1].grad.any())


def test_no_tensor_is_as_large_as_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "ROWS", 8)
    monkeypatch.setattr(output, "WORDS", 16)
    given, targets = inputs(64, 100), torch.zeros(64, dtype=torch.long)
    with Largest() as seen:
        linear_log_probs(*given, targets).sum().backward()
    assert seen.numbers <= 100 * 4  # the weights; there are 6,400 logits


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The number of elements of the largest tensor that any operation has made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made
