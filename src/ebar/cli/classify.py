"""`ebar classify`: a classifier from few labels."""

import sys
from collections.abc import Sequence
from typing import Any

from ebar.build.classify import classify_as
from ebar.cli.folder import carry_out
from ebar.cli.train import TrainPlace, ending
from ebar.config.classify import MANUAL, ClassifyConfig
from ebar.config.reader import read
from ebar.devices import device_named
from ebar.journeys.classify.journey import Classified
from ebar.training import distributed
from ebar.types import Estimate

NAMES = {
    "error": "test error",
    "true_share": "test images with a logit above 0",
    "fake_share": "generated images without one",
}


def main(words: Sequence[str]) -> int:
    """Train, or go on with a run that was interrupted; then measure the best and the last epoch."""
    config, place = read(words, MANUAL, ClassifyConfig, TrainPlace)

    def show(found: Classified) -> None:
        result = found.result
        assert result is not None
        best = "" if result.best.value is None else f"; best validation error {result.best.value:.2%}"
        sys.stdout.write(f"{ending(result)}{best}\n")
        for last in (False, True):
            sys.stdout.write(f"{'last' if last else 'best'} epoch: {_said(found.evaluate(last=last))}\n")
        sys.stdout.write(f"{place.folder}\n")

    with distributed.processes(device_named(config.device)):
        return carry_out(
            place,
            lambda: classify_as(config, place.folder, quiet=place.json, replace_config=place.replace_config),
            to_dict=_figures,
            show=show,
        )


def _said(figures: dict[str, Estimate]) -> str:
    return ", ".join(
        f"{NAMES[name]} {one.value:.2%} [{one.low:.2%}, {one.high:.2%}]" for name, one in figures.items()
    )  # fmt: skip


def _figures(found: Classified) -> dict[str, Any]:
    result = found.result
    assert result is not None
    position = result.position
    return {
        "ended": result.status, "reason": result.reason, "step": position.step, "epoch": position.epoch,
        "validation": result.best, "best": found.evaluate(), "last": found.evaluate(last=True),
    }  # fmt: skip
