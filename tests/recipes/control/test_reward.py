"""The recipe of rewards at its smallest scale."""

from pathlib import Path

import pytest

from ebar.evaluation.best_of_n import kl_bound
from ebar.recipes.control import reward
from ebar.recipes.control.reward import BEST, BOUND, COUNT, KL, LOG_Z, REWARD, SAME, SCORE, VALUE, classifier_config
from ebar.recipes.rows import chosen

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")


def test_figures_of_the_smallest_scale_belong_together(tmp_path: Path) -> None:
    (cell,) = reward.RECIPE.grid("demo")
    result = reward.RECIPE.run(cell, tmp_path)
    rows = reward.RECIPE.rows([(cell, result)])
    for beta in ("0.5", "0.1"):
        of = {name: chosen(rows, name, {"β": beta})[0].value for name in (LOG_Z, VALUE, REWARD, KL, SAME, COUNT)}
        assert of[VALUE] == pytest.approx(float(beta) * (of[LOG_Z] or 0))
        assert of[KL] == pytest.approx((of[REWARD] or 0) / float(beta) - (of[LOG_Z] or 0), abs=1e-6)
        assert kl_bound(int(of[COUNT] or 0)) <= (of[KL] or 0)
        assert (of[VALUE] or 0) <= (of[REWARD] or 0) <= 1
    alone, best = (chosen(rows, BEST, {"n": n})[0].value or 0 for n in (1, 4))
    assert alone < best
    assert [chosen(rows, BOUND, {"n": n})[0].value for n in (1, 4)] == pytest.approx([0, kl_bound(4)])
    shown = chosen(rows, SCORE, {})
    assert {row.settings["text of"] for row in shown} == {"the model", "p, β = 0.5", "p, β = 0.1"}
    assert all(0 < (row.value or 0) < 1 for row in shown)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_the_classifier_has_options_that_exist(
    scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(reward, "path_of", lambda name: f"models/{name}")
    monkeypatch.setattr(reward, "file_of", lambda name: tmp_path / name)
    for cell in reward.RECIPE.grid(scale):
        config = classifier_config(cell, tmp_path)
        assert config.pretrained == "models/minilm"
        assert str(config.data.train).endswith("sentence_polarity.zip")
