"""Points along curves of the plane, of which few have labels."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.bounds import Count, check
from ebar.data.labelled_images import FewLabels
from ebar.errors import UserError
from ebar.maths.manifolds import MANIFOLDS
from ebar.maths.randomness import folded


@dataclass(frozen=True, kw_only=True)
class ManifoldData:
    """Points of classes along curves of the plane: two circles, four spins (Dai 2019 (thesis), Figure C.1)."""

    manifold: str = "four_spins"
    """two_circles or four_spins."""
    size: Count = 2000
    """Unlabelled points."""
    held_out: Count = 10_000
    """Points to validate with, and as many others to test with."""

    kind = "manifold"

    def __post_init__(self) -> None:
        check(self)

    def read(self, *, labels: int = 40, seed: int = 0) -> FewLabels:
        """In float32, `labels` of them with a label, equally many of each class; all drawn by the seed."""
        found = MANIFOLDS.choose(self.manifold)()
        classes = len(found.curves)
        if labels < classes or labels % classes:
            raise UserError(f"{labels} labels cannot be shared evenly by {classes} classes: give a multiple.")

        def draw(part: str, count: int) -> tuple[Float[Tensor, "points 2"], Int[Tensor, " points"]]:
            x, own = found.draw(count, Generator().manual_seed(folded(seed, "manifold", part)))
            return x.float(), own

        parts = {part: draw(part, self.held_out) for part in ("validation", "test")}
        labelled, own = draw("labelled", labels)
        return FewLabels(
            labelled=labelled, labels=own, unlabelled=draw("unlabelled", self.size)[0],
            validation=parts["validation"][0], validation_labels=parts["validation"][1],
            test=parts["test"][0], test_labels=parts["test"][1], classes=classes, source=self,
        )  # fmt: skip
