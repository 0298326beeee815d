"""Local attention against plain attention over all pairs of places, written out here."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.local_attention import TERMS, LocalAttention, aligned, masked_softmax

WIDTH, HEADS, ROWS = 6, 2, 3

# Rounded to float32, as the positions are in any precision.
FREQUENCIES = [float(1 / 10_000 ** (torch.tensor(2.0 * k) / WIDTH)) for k in range(WIDTH // 2)]


def some(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def attention(**settings: Any) -> Any:
    torch.manual_seed(0)
    made: Any = LocalAttention(WIDTH, HEADS, **{"chunk": 3, **settings}).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(some(*parameter.shape, seed=number))
    return made


def plain(made: Any, x: Tensor, sees: Any, terms: tuple[str, ...] = TERMS) -> tuple[Tensor, Tensor]:
    """What is seen and by which weights, one query and one head at a time; `sees(row, i, j)` says what is allowed."""
    length, size = x.shape[1], WIDTH // HEADS
    weights = torch.zeros(HEADS, len(x), length, length, dtype=torch.float64)
    out = torch.zeros_like(x)
    for head in range(HEADS):
        mine = slice(head * size, (head + 1) * size)
        query = x @ made.query.weight[mine].T + made.query.bias[mine]
        both = x @ made.memory.weight.T + made.memory.bias
        key, value = both[..., :WIDTH][..., mine], both[..., WIDTH:][..., mine]
        for row in range(len(x)):
            for i in range(length):
                allowed = [j for j in range(length) if sees(row, i, j)]
                if not allowed:
                    continue
                scores = []
                for j in allowed:
                    angles = [(i - j) * frequency for frequency in FREQUENCIES]
                    wave = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)
                    kernel = made.positions.weight[mine] @ wave
                    parts = {
                        "content": query[row, i] @ key[row, j], "bias": made.content_bias[head] @ key[row, j],
                        "dynamic": query[row, i] @ kernel, "light": made.position_bias[head] @ kernel,
                    }  # fmt: skip
                    scores.append(torch.stack([parts[term] for term in terms]).sum() / math.sqrt(size))
                weights[head, row, i, allowed] = torch.stack(scores).softmax(0)
        out[..., mine] = weights[head] @ value
    return out @ made.out.weight.T + made.out.bias, weights


def nothing(made: Any, rows: int = ROWS) -> Tensor:
    return made.remember(torch.zeros(rows, 0, WIDTH, dtype=torch.float64))  # type: ignore[no-any-return]


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_chunk_as_long_as_the_text_is_full_attention(length: int) -> None:
    x = some(ROWS, length, WIDTH)
    for chunk in (length, length + 1, 40):
        made = attention(chunk=chunk)
        wanted, _ = plain(made, x, lambda row, i, j: j <= i)
        torch.testing.assert_close(made(x, nothing(made), 0)[0], wanted, rtol=0, atol=1e-12)
        wanted, _ = plain(made, x, lambda row, i, j: True)
        torch.testing.assert_close(made.around(x), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 3, 4, 6, 8, 11])
@pytest.mark.parametrize("window", [False, True], ids=["chunks", "window"])
def test_chunks_are_full_attention_with_a_mask(length: int, window: bool) -> None:
    made, x, chunk = attention(window=window), some(ROWS, length, WIDTH), 3
    near = (lambda i, j: i - j < chunk) if window else (lambda i, j: i // chunk - j // chunk <= 1)
    wanted, _ = plain(made, x, lambda row, i, j: j <= i and near(i, j))
    for first in range(length):  # in one pass, and from what the first places leave behind
        before, memory = made(x[:, :first], nothing(made), 0)
        after, _ = made(x[:, first:], memory[:, max(0, first - made.kept) :], first)
        torch.testing.assert_close(torch.cat([before, after], 1), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_each_row_has_chunks_of_its_own() -> None:
    """Rows that have read 4, 0 and 5 places go on by seven, which is more than a chunk."""
    made, x, places = attention(), some(ROWS, 12, WIDTH), torch.tensor([4, 0, 5])
    wanted, _ = plain(made, x, lambda row, i, j: j <= i and i // 3 - j // 3 <= 1)
    whole = made.remember(x)
    memory = aligned(whole, places - 5, 5)  # what stands before a shorter text is anything
    following = aligned(x, places, 7)
    found, _ = made(following, memory, places)
    for row, place in enumerate(places.tolist()):
        torch.testing.assert_close(found[row], wanted[row, place : place + 7], rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 3, 4, 8, 11])
@pytest.mark.parametrize("window", [False, True], ids=["chunks", "window"])
def test_both_sides_are_full_attention_with_a_mask(length: int, window: bool) -> None:
    made, x, chunk = attention(window=window), some(ROWS, length, WIDTH), 3
    lengths = torch.tensor([length, (length + 1) // 2, 1])
    inside = torch.arange(length) < lengths[:, None]
    near = (lambda i, j: abs(i - j) < chunk) if window else (lambda i, j: abs(i // chunk - j // chunk) <= 1)
    wanted, _ = plain(made, x, lambda row, i, j: j < lengths[row] and near(i, j))
    # Far from all that is inside nothing is seen: no NaN, and the output is its bias.
    torch.testing.assert_close(made.around(x, inside), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("terms", [("content",), ("bias",), ("dynamic",), ("light",), ("content", "light"), TERMS])
def test_each_term_is_its_own_of_equation_5_2(terms: tuple[str, ...]) -> None:
    complete, some_of = attention(), attention(terms=terms)
    for name, parameter in some_of.named_parameters():
        wanted = dict(complete.named_parameters())[name]
        parameter.copy_(wanted if parameter.shape == wanted.shape else wanted[WIDTH:])  # values without keys
    x = some(ROWS, 8, WIDTH)
    wanted, _ = plain(complete, x, lambda row, i, j: j <= i and i // 3 - j // 3 <= 1, terms)
    torch.testing.assert_close(some_of(x, nothing(some_of), 0)[0], wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_there_is_one_softmax_over_all_neighbours() -> None:
    """Weights of the left and the own chunk together sum to 1, and are those of full attention."""
    made, x = attention(), some(ROWS, 6, WIDTH)
    to_keys, to_distances = made.queries(x[:, 3:])
    hidden = ~torch.ones(3, 6, dtype=torch.bool).tril(3)[None, None]
    queries = to_keys[:, None], to_distances[:, None]
    weights = made.weights(queries, made.remember(x)[:, None], hidden, range(5, -1, -1))
    torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, ROWS, 1, 3, dtype=torch.float64))
    wanted = plain(made, x, lambda row, i, j: j <= i)[1][:, :, 3:]
    torch.testing.assert_close(weights[:, :, 0], wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_weights_by_hand() -> None:
    """Width 1, query log 3, keys 0 and 1 weigh 1 to 3; chunks of 1 see one place back, and nothing before the text."""
    made: Any = LocalAttention(1, 1, chunk=1, terms=("content",)).double()
    made.query.weight.fill_(math.log(3))
    for parameter in (made.memory.weight, made.out.weight):
        parameter.fill_(1)
    x = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64).reshape(1, 4, 1)
    seen = made(x, made.remember(x[:, :0]), 0)[0].flatten()
    # A key of zeros before the text would make the first 3/4.
    torch.testing.assert_close(seen, torch.tensor([1, 1 / 2, 3 / 4, 1], dtype=torch.float64))
    both = made.around(x).flatten()
    torch.testing.assert_close(both, torch.tensor([3 / 4, 2 / 3, 6 / 7, 1], dtype=torch.float64))


@torch.no_grad()
def test_position_terms_by_hand() -> None:
    """Width 2, so K_d = (sin d, cos d): ν = √2·(0, log 2) weighs a place d away by 2^cos d."""
    made: Any = LocalAttention(2, 1, chunk=2, terms=("light",)).double()
    made.positions.weight.copy_(torch.eye(2))
    made.position_bias.copy_(torch.tensor([[0.0, math.sqrt(2) * math.log(2)]]))
    for layer in (made.memory, made.out):
        layer.weight.copy_(torch.eye(2))
    x = torch.tensor([[1.0, 0], [0, 1]], dtype=torch.float64)[None]
    own, other = 2.0, 2 ** math.cos(1)
    wanted = torch.tensor([[1, 0], [other / (own + other), own / (own + other)]], dtype=torch.float64)
    torch.testing.assert_close(made(x, made.remember(x[:, :0]), 0)[0][0], wanted)


def test_rows_that_see_nothing_are_zero_and_have_no_gradient() -> None:
    scores = some(2, 3).requires_grad_()
    hidden = torch.tensor([[True, True, True], [False, True, False]])
    weights = masked_softmax(scores * 1, hidden)
    assert weights[0].tolist() == [0, 0, 0]
    assert weights[1, 1].item() == 0
    (gradient,) = torch.autograd.grad((weights * some(2, 3, seed=2)).sum(), scores)
    assert gradient[0].tolist() == [0, 0, 0]
    assert bool(gradient.isfinite().all())


@torch.no_grad()
def test_aligned_by_hand() -> None:
    part = torch.arange(1.0, 5).reshape(1, 4, 1).expand(2, 4, 1)
    assert aligned(part, -2, 4)[0, :, 0].tolist() == [0, 0, 1, 2]
    assert aligned(part, 1, 5)[0, :, 0].tolist() == [2, 3, 4, 0, 0]
    found = aligned(part, torch.tensor([1, 2]), 2)
    assert found[..., 0].tolist() == [[2, 3], [3, 4]]
