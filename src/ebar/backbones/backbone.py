"""What a backbone is: tokens → hidden vectors, in parallel or one step at a time."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from ebar.types import Context, State


@runtime_checkable
class Backbone(Protocol):
    """Reads tokens; the hidden vector after a prefix is all that a head sees of it.

    `start` reads what comes before the first token: a beginning-of-sequence mark, then the context's prefix.
    One with an attribute `any_order` that is True reads tokens in the places and in the order of `Context.order`.
    """

    @property
    def width(self) -> int:
        """Of a hidden vector."""

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], State]:
        """`rows` is a multiple of the context's rows, context-major; each context is read once."""

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Any
    ) -> tuple[Float[Tensor, "rows length width"], State]: ...


@runtime_checkable
class Reads(Protocol):
    """Reads a whole sequence in one pass, as tokens or as vectors in their place (scheduled sampling, Langevin)."""

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length size"]:
        """What `read` takes in place of tokens, before positions and dropout."""

    def read(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Hidden vectors before each input and after the last: length + 1 places.

        The context has one row for each of the rows, or each of its rows serves equally many, context-major.
        """


@runtime_checkable
class Layered(Protocol):
    """Shows what every layer makes of a sequence, not the last one only."""

    def read_layers(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> tuple[Float[Tensor, "rows places width"], ...]:
        """Hidden vectors as `Reads.read` gives them, of each layer; the last are those of `read`."""


@runtime_checkable
class Resumes(Protocol):
    """Can be entered after its first layer: shows what that makes of a sequence, and goes the rest of the way from it.

    `read_on` of `first_layer` is `read`, without dropout.
    """

    def first_layer(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Vectors of the beginning and of each input: length + 1 places."""

    def read_on(
        self, vectors: Float[Tensor, "rows places width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """Hidden vectors as `Reads.read` gives them, from such vectors on."""


@runtime_checkable
class Carries(Protocol):
    """Reads a long text segment by segment, and carries a memory of fixed size from one segment to the next.

    A memory is a NamedTuple of tensors, one row for each text, whose shapes never change: it fits in a checkpoint, and
    rows of it are taken like rows of a batch. What it holds is without gradient.
    """

    def empty_memory(self, rows: int) -> Any:
        """Of texts of which nothing has been read."""

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: Any
    ) -> tuple[Float[Tensor, "rows length width"], Any]:
        """Hidden vectors after each of the tokens, and the memory after the last one.

        The token whose number is the size of the vocabulary is the beginning of a text.
        """


class Outputs(NamedTuple):
    """The hidden vectors of the last layer, before dropout and after it; a head sees those after it."""

    raw: Float[Tensor, "rows places width"]
    dropped: Float[Tensor, "rows places width"]


@runtime_checkable
class ShowsOutputs(Protocol):
    """Shows what its last layer gave before dropout as well, so that an objective can regularise it in the one pass."""

    def read_outputs(self, inputs: Float[Tensor, "rows length size"], context: Context | None = None) -> Outputs:
        """`dropped` is what `read` returns: length + 1 places."""


@runtime_checkable
class CarriesOutputs(Protocol):
    """The same for a text that is read segment by segment (`Carries`)."""

    def segment_outputs(self, tokens: Int[Tensor, "rows length"], memory: Any) -> tuple[Outputs, Any]:
        """`dropped` and the memory are what `read_segment` returns."""


@runtime_checkable
class Enters(Protocol):
    """Can go through a segment token by token as well.

    Where a backbone cannot, a segment is read from its beginning again for every token that is drawn.
    """

    def enter_segment(self, memory: Any) -> State:
        """A state from which `advance` gives, however tokens are cut, what `read_segment` gives of them all at once."""


class NoMemory(NamedTuple):
    """Of a backbone that takes nothing from one segment to the next."""


@runtime_checkable
class Stepper(Protocol):
    """The cache of a backbone or a model while sampling: changed in place, whereas a `State` is a value.

    It serves one draw, has no gradient and no dropout.
    """

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows outputs"]:
        """The output after one more token; valid until the next step, which may overwrite it."""

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Continue with some of the rows."""


@runtime_checkable
class Quick(Protocol):
    """Has a faster way to draw than repeated `advance`."""

    def stepper(self, state: Any) -> Stepper: ...


def check_attention(
    hidden: int, heads: int, head_size: int | None, layers: int, *dropouts: float, **sizes: int | None
) -> None:
    """Sizes of layers whose heads need not share the hidden vector evenly, where their size is given."""
    for dropout in dropouts:
        check_layers(layers, dropout)
    if hidden < 1 or heads < 1 or (head_size is None and hidden % heads):
        raise ValueError(f"hidden must be a multiple of heads, not {hidden} of {heads}, unless head_size is given")
    for name, size in {"head_size": head_size, **sizes}.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def check_layers(layers: int, dropout: float = 0.0) -> None:
    """A number of layers or a dropout that cannot be is refused before anything is made of it."""
    if not 1 <= layers <= 1000:  # past that it is a slip of the finger, and would take for ever to make
        raise ValueError(f"there must be between 1 and 1,000 layers, not {layers}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
