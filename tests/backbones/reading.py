"""One backbone, read in every way it can be: the numbers must be the same."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.backbones.backbone import Backbone, Quick, Reads
from ebar.models.construction import Autoregressive
from ebar.testing.backbones import by_segments, by_stepper
from ebar.types import Context, Sequences

VOCABULARY, ROWS, LENGTH = 5, 6, 9
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
ANYTHING = 99  # padding may hold a token that does not exist

UNEQUAL = Context(
    Sequences(torch.tensor([[0, 99, 99, 99], [1, 0, 99, 99], [2, 1, 0, 4], [99] * 4, [3, 3, 3, 99], [4, 3, 2, 1]]),
              torch.tensor([1, 2, 4, 0, 3, 4]))
)  # fmt: skip
EQUAL = Context(Sequences(torch.tensor([[0, 1], [1, 0], [2, 1], [4, 4], [0, 1], [3, 2]]), torch.full((6,), 2)))
SHARED = UNEQUAL.select(torch.tensor([1, 2]))  # each for three rows
SHARED_EQUAL = EQUAL.select(torch.tensor([0, 3, 4]))  # each for two
EMPTY = Context(Sequences(torch.zeros(6, 0, dtype=torch.long), torch.zeros(6, dtype=torch.long)))
CONTEXTS = {"unequal": UNEQUAL, "equal": EQUAL, "shared": SHARED, "shared equal": SHARED_EQUAL, "empty": EMPTY}


def lively(backbone: Any, dtype: torch.dtype = torch.float64) -> Any:
    """Far from linear, every parameter away from where it was set, no dropout."""
    generator = Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(1.5).add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return backbone.to(dtype).eval()


def some_tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCABULARY, (ROWS, length), generator=Generator().manual_seed(1))


def assert_all_ways_agree(backbone: Any, context: Context | None, dtype: torch.dtype) -> None:
    tokens = some_tokens()
    with torch.no_grad():
        whole = backbone.read(backbone.embed(tokens), context)
        assert whole.shape == (ROWS, LENGTH + 1, backbone.width)
        assert whole.dtype == dtype
        assert float(whole.diff(dim=1).abs().amax(2).min()) > 1e-3  # every token matters
        for lengths in ([LENGTH], [1] * LENGTH, [2, 4, 1, 2]):
            segments = by_segments(backbone, tokens, context, lengths)
            torch.testing.assert_close(segments, whole, rtol=0, atol=TOLERANCE[dtype])
        torch.testing.assert_close(by_stepper(backbone, tokens, context), whole, rtol=0, atol=TOLERANCE[dtype])
        nothing = backbone.read(backbone.embed(tokens[:, :0]), context)
        torch.testing.assert_close(nothing, whole[:, :1], rtol=0, atol=TOLERANCE[dtype])


def assert_nothing_later_matters(backbone: Any, context: Context | None) -> None:
    tokens = some_tokens()
    with torch.no_grad():
        whole = backbone.read(backbone.embed(tokens), context)
        for place in range(LENGTH):
            changed = tokens.clone()
            changed[:, place] = (changed[:, place] + 1) % VOCABULARY
            other = backbone.read(backbone.embed(changed), context)
            # Place 0 is before the first token: the vector after the changed token is the first to differ.
            torch.testing.assert_close(other[:, : place + 1], whole[:, : place + 1], rtol=0, atol=1e-12)
            assert bool(((other - whole)[:, place + 1 :].abs().amax(2) > 1e-6).all())


def assert_padding_never_matters(backbone: Any) -> None:
    tokens, given = some_tokens(), UNEQUAL.given
    with torch.no_grad():
        wanted = backbone.read(backbone.embed(tokens), UNEQUAL)
        for content in (0, 3, -1):
            other = Context(Sequences(torch.where(given.mask(), given.tokens, content), given.lengths))
            assert torch.equal(backbone.read(backbone.embed(tokens), other), wanted)
            assert torch.equal(by_stepper(backbone, tokens, other), by_stepper(backbone, tokens, UNEQUAL))
        wider = Context(Sequences(torch.nn.functional.pad(given.tokens, (0, 3), value=ANYTHING), given.lengths))
        torch.testing.assert_close(backbone.read(backbone.embed(tokens), wider), wanted, rtol=0, atol=1e-12)
        for row in range(ROWS):  # each row as if it were alone, with no padding at all
            length = int(given.lengths[row])
            alone = Context(Sequences(given.tokens[row : row + 1, :length], given.lengths[row : row + 1]))
            one = backbone.read(backbone.embed(tokens[row : row + 1]), alone)
            torch.testing.assert_close(one, wanted[row : row + 1], rtol=0, atol=1e-12)


def assert_rows_can_be_selected(backbone: Any, context: Context | None) -> None:
    """Reordered, dropped, duplicated, in a state and in a stepper, which ends up with what is drawn from it."""
    tokens = some_tokens()
    with torch.no_grad():
        whole = backbone.read(backbone.embed(tokens), context)
        _, state = backbone.start(ROWS, context)
        _, state = backbone.advance(tokens[:, :3], state)
        before = [layer.clone() for layer in state.memory]
        for rows in ([5, 0, 2], [1, 1, 4, 4, 4, 0, 2], [3, 5, 4, 2, 1, 0], [4], []):
            chosen = torch.tensor(rows, dtype=torch.long)
            hidden, _ = backbone.advance(tokens[chosen, 3:], state.select(chosen))
            torch.testing.assert_close(hidden, whole[chosen, 4:], rtol=0, atol=1e-12)
        stepper = backbone.stepper(state)
        alive = torch.arange(ROWS)
        keeps = {3: [0, 2, 3, 5], 4: [3, 1, 0], 5: [2, 1], 6: [1, 0, 0, 1, 1], 7: [4, 0, 3], 8: [2]}
        for place in range(3, LENGTH):
            kept = torch.tensor(keeps[place])
            stepper.keep(kept)
            alive = alive[kept]
            hidden = stepper.step(tokens[alive, place])
            torch.testing.assert_close(hidden, whole[alive, place + 1], rtol=0, atol=1e-12)
        assert all(torch.equal(layer, kept) for layer, kept in zip(state.memory, before, strict=True))  # a value


def assert_gradients_agree(backbone: Any, context: Context | None) -> None:
    tokens = some_tokens()
    weight = torch.randn(ROWS, LENGTH + 1, backbone.width, dtype=torch.float64, generator=Generator().manual_seed(2))
    gradients = []
    for read in (
        lambda: backbone.read(backbone.embed(tokens), context),
        lambda: by_segments(backbone, tokens, context, [1, 3, 5]),
    ):
        backbone.zero_grad()
        (read() * weight).sum().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in backbone.named_parameters()})
    for name, gradient in gradients[0].items():
        assert bool(gradient.any()), name
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-9, msg=name)


def assert_it_reads_and_steps(backbone: Any, width: int) -> None:
    assert isinstance(backbone, Backbone)
    assert isinstance(backbone, Reads)
    assert isinstance(backbone, Quick)
    assert backbone.width == width


def last_loss(model: Autoregressive, loss_of: Callable[[Generator], Tensor], steps: int) -> float:
    """The loss after so many steps of Adam."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    generator = Generator().manual_seed(0)
    for _ in range(steps):
        loss = loss_of(generator)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    return loss.item()
