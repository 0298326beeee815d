"""The lines of docs/python.md run as they stand, on files a user could have; and what each of them gives."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ebar
from ebar.journeys.gam.settings import Distillation
from tests.example_files import write_example_files
from tests.test_documentation import ROOT, blocks

LINES, MEASURES, NETWORK = blocks(ROOT / "docs" / "python.md", "python")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the names of the lines are afterwards.

    The lines say nothing of how many draws π and λ are found from: here it is a tenth of the usual number, in several
    batches still, and of shorter texts.
    """
    folder = tmp_path_factory.mktemp("user")
    write_example_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(ebar, "gam", partial(ebar.gam, distillation=Distillation(size=2000, validation=300)))
        patch.setattr(ebar, "control", partial(ebar.control, draws=1000, surrogate_draws=500, rows=400, length=60))
        torch.manual_seed(0)
        names: dict[str, Any] = {"__name__": "written"}
        exec(compile(LINES, "python.md", "exec"), names)
        yield names


def test_training_is_kept_and_loaded_again(written: Any) -> None:
    data, r, same = written["data"], written["r"], written["same"]
    assert {"train", "validation", "test"} <= set(data.parts)
    assert r.history.curve("validation.loss")
    assert torch.equal(same.model.log_prob(data.test), r.model.log_prob(data.test))
    assert ebar.moments(ebar.draw(ebar.Importance(), same.model, 50), written["features"])[0][0].value > 0


def test_gam_makes_the_feature_as_frequent_as_in_the_data(written: Any, tmp_path: Path) -> None:
    data, gam, features = written["data"], written["gam"], written["features"]
    in_data = sum("010101" in line for line in data.text(data.train)) / len(data.train.lengths)
    ((moment,),) = ebar.moments(written["draws"], features)
    assert moment.value == pytest.approx(in_data, abs=0.06)  # λ and the draws both have an error of about 0.01
    assert ebar.log_z(written["draws"])[0].estimate.low < ebar.log_z(written["draws"])[0].estimate.high
    assert float(gam.fitted.coefficients) > 0
    torch.manual_seed(1)
    assert len(data.text(gam.pi.sample(3))) == 3
    page = tmp_path / "page.html"
    gam.report(str(page))
    assert "<html" in page.read_text()


def test_a_residual_model_has_a_perplexity_with_an_interval_and_generates(written: Any) -> None:
    joint, data = written["joint"], written["data"]
    found = joint.perplexity(data.test)
    assert found.low < found.value < found.high
    assert joint.texts(joint.generate().drawn.x)[0].strip("01") == ""
    assert torch.isfinite(joint.p.log_score(data.test)).all()


def test_a_controlled_model_keeps_its_rules(written: Any) -> None:
    ruled = written["ruled"]
    texts = ruled.sample(5)
    assert len(texts) == 5
    assert all("rabbit" in str(text) or "bunny" in str(text) for text in texts)
    assert isinstance(ruled.p, ebar.Tilted)


def test_torch_s_own_state_repeats_what_no_seed_decides(written: Any) -> None:
    def once() -> list[Any]:
        torch.manual_seed(5)
        data = written["data"]
        q = ebar.train(ebar.lstm(data, layers=1, hidden=4), data, training=ebar.Training(epochs=1)).model
        return [data.text(q.sample(3)), ebar.draw(ebar.Importance(), q, 3).x.tokens.tolist()]

    assert once() == once()


def test_measures_of_a_model_are_had_by_one_call_each(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(MEASURES, "python.md", "exec"), dict(written))
    printed = capsys.readouterr().out
    assert "cross_entropy" in printed
    assert "log_z" in printed


def test_a_network_of_the_user_s_own_is_a_model(written: Any) -> None:
    names = dict(written)
    exec(compile(NETWORK, "python.md", "exec"), names)
    assert names["mine"].model.log_prob(names["data"].test).isfinite().all()
    ebar.train(names["mine"].model, names["data"], training=ebar.Training(epochs=1), folder="runs/mine")
    with pytest.raises(ebar.UserError, match="repeat the call with folder="):
        ebar.load("runs/mine")


@pytest.mark.parametrize("config", [None, "{}", "[1, 2]", "colour: blue\n", "seed: 0\ncolour: blue\n"])
def test_a_folder_that_is_no_run_is_refused_in_a_sentence(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(ebar.UserError, match=r"^\S+ (is no run folder|cannot be opened by itself)"):
        ebar.load(tmp_path)


def test_models_of_text_suit_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was a dark and stormy night.\n" * 20)
    data = ebar.read_text(tmp_path / "book.txt", length=8)
    inputs: Any = ebar.lstm(data).backbone
    assert inputs.inputs.shape[1] < data.space.vocabulary  # vectors of tokens, not one-hot
    assert ebar.transformer(data, layers=1).reading is data.reading
    with pytest.raises(ebar.UserError, match="reads images"):
        ebar.pixelcnn(data)
