"""What document 000's Figures 2 to 7 share: cross-entropy, ℓ1_mom and motif frequency against |D|."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.gam.cells import curve, entropy_rows, gam_experiment, panel, standard_rows
from ebar.recipes.gam.settings import SIZES, cell_for
from ebar.recipes.recipe import Cell, Row
from ebar.report.plots import Panel

KEYS = ("motif", "ft", "presence", "regime", "matching", "size")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A panel, or a row of panels: which language, which features, which regime."""

    motif: str
    ft: str
    presence: float = 1.0
    regime: str = "two_stage"


def figure(title: str, source: str, settings: Sequence[Setting], *, moments: bool) -> Experiment:
    """A figure with these settings; at scale demo only its first, at scale cpu its first two |D|."""

    def cells(scale: str) -> list[Cell]:
        sizes = {"demo": (60,), "cpu": (500, 5000), "paper": SIZES}[scale]
        chosen = settings[:1] if scale == "demo" else settings
        methods = ("rs", "snis") if scale == "paper" else ("newton",)
        return [
            cell_for(
                scale, motif=one.motif, ft=one.ft, presence=one.presence, regime=one.regime, size=size, seed=0,
                matching=matching,
            )
            for one in chosen
            for matching in methods
            for size in sizes
        ]  # fmt: skip

    def figures(results: Sequence[Result]) -> list[Row]:
        return entropy_rows(results, KEYS) + standard_rows(results, KEYS)

    return gam_experiment(title=title, source=source, cells=cells, figures=figures, panels=_panels(moments))


def _panels(moments: bool) -> Callable[[Sequence[Row]], list[Panel]]:
    def panels(rows: Sequence[Row]) -> list[Panel]:
        found = []
        keys = ("motif", "ft", "presence", "regime")
        for key in dict.fromkeys(tuple(row.settings[name] for name in keys) for row in rows):
            own: dict[str, Any] = dict(zip(keys, key, strict=True))
            title = f"{own['motif']}, ft {own['ft']}" + ("" if own["presence"] == 1 else ", mixture")
            title += "" if own["regime"] == "two_stage" else ", cyclical"
            methods = dict.fromkeys(
                row.settings["matching"] for row in rows if all(row.settings[name] == own[name] for name in keys)
            )

            def lines(figure: str, who: str, own: dict[str, Any] = own, methods: Any = methods) -> list[Any]:
                return [curve(rows, figure, f"{who}, {method}", **own, matching=method) for method in methods]

            entropy = next(row.value for row in rows if row.name == "entropy" and row.settings["motif"] == own["motif"]
                           and row.settings["presence"] == own["presence"])  # fmt: skip
            costs = lines("cross-entropy of r", "r") + lines("cross-entropy of π", "π")
            found.append(panel(f"CE: {title}", "nats per token", costs, {"H": float(entropy or 0.0)}))
            if moments:
                distances = lines("ℓ1_mom of r", "r") + lines("ℓ1_mom of the distilled set", "distilled")
                found.append(panel("ℓ1_mom", "to the truth", distances))
            frequencies = lines("motif frequency of r", "r") + lines("motif frequency of π", "π")
            found.append(panel("motif frequency", "of 2,000 draws", frequencies))
        return found

    return panels
