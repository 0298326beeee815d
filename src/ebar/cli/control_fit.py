"""`ebar control fit`: λ for what is to be true of the text, and what that came to."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ebar.bounds import Amount
from ebar.build.control import fit_control
from ebar.cli.folder import RunFolder, carry_out
from ebar.cli.show import show_table
from ebar.config.control import MANUAL, ControlConfig
from ebar.config.reader import option, read
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.report import MOMENTS, Checked, lambda_warnings, moment_rows
from ebar.store.writing import plain


@dataclass(frozen=True, kw_only=True)
class ControlPlace(RunFolder):
    """Where the run is kept, and what else is printed."""

    within: Amount | None = option(metavar="EPSILON")
    """Also say how many draws make log Z and the moments of p known within ± EPSILON."""


def main(words: Sequence[str]) -> int:
    """λ, or that of a run that has it; and fresh draws."""
    config, place = read(words, MANUAL, ControlConfig, ControlPlace)
    folder = place.folder

    def work() -> tuple[Controlled, Checked]:
        controlled = fit_control(config, folder)
        return controlled, controlled.check(within=place.within)

    def show(found: tuple[Controlled, Checked]) -> None:
        controlled, checked = found
        rows = moment_rows(controlled.constraints, controlled.fitted, checked)
        show_table(f"{folder}: 95 % intervals", MOMENTS, rows)
        show_table("how far it is", ("figure", "value"), list(checked.distances().items()))
        if checked.budgets is not None:
            show_table("how many draws", ("figure", "draws"), list(checked.budgets.items()))
        for warning in lambda_warnings(controlled.fitted):
            sys.stdout.write(f"⚠ {warning}\n")
        sys.stdout.write(f"{folder / 'report.html'}\n")

    return carry_out(
        place, work, show=show,
        to_dict=lambda found: {"lambda": found[0].fitted.to_dict(), **plain(found[1])},
    )  # fmt: skip
