"""`ebar control fit`: λ for what is to be true of the text, and what that came to."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebar.bounds import Amount
from ebar.cli.folder import Place, carry_out
from ebar.cli.show import show_table
from ebar.config.control import MANUAL, ControlConfig
from ebar.config.reader import described, option, read
from ebar.journeys.control.fit import Checked, Controlled, check, fit
from ebar.journeys.control.folder import another, take_over
from ebar.journeys.control.report import MOMENTS, distance_rows, lambda_warnings, moment_rows, write_fit_page
from ebar.store.writing import to_json
from ebar.training import open_run


@dataclass(frozen=True, kw_only=True)
class ControlPlace(Place):
    """Where the run is kept, and what else is printed."""

    within: Amount | None = option(metavar="EPSILON")
    """Also say how many draws make log Z and the moments of p known within ± EPSILON."""


def main(words: Sequence[str]) -> int:
    """λ, or that of a run that has it; and fresh draws."""
    config, place = read(words, MANUAL, ControlConfig, ControlPlace)
    folder = place.folder
    description = described(folder, MANUAL, config)
    other = another(folder, description)

    def work() -> tuple[Controlled, Checked]:
        with open_run(folder, config=description, seed=config.seed, replace_config=other) as run:
            if other:
                take_over(run, config.seed)
            controlled = fit(config, folder)
            checked = check(controlled, within=place.within)
            run.write("results.json", to_json(_figures(controlled, checked), indent=1))
            write_fit_page(folder, controlled, checked)
        return controlled, checked

    def show(found: tuple[Controlled, Checked]) -> None:
        controlled, checked = found
        show_table(f"{folder}: 95 % intervals", MOMENTS, moment_rows(controlled, checked))
        show_table("how far it is", ("figure", "value"), distance_rows(checked))
        if checked.budgets is not None:
            show_table("how many draws", ("figure", "draws"), list(checked.budgets.items()))
        for warning in lambda_warnings(controlled.fitted):
            sys.stdout.write(f"⚠ {warning}\n")
        sys.stdout.write(f"{folder / 'report.html'}\n")

    return carry_out(folder, work, as_json=place.json, to_dict=lambda found: _figures(*found), show=show)


def _figures(controlled: Controlled, checked: Checked) -> dict[str, Any]:
    return {"lambda": controlled.fitted.to_dict(), **checked.to_dict()}
