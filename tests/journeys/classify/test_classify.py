"""A classifier from few labels, from end to end: what it learns, how it goes on, halts, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ebar
from ebar.cli import main
from ebar.data.image_files import LabelledFile
from ebar.data.labelled_images import FewLabels, few_labels
from ebar.errors import UserError
from ebar.journeys.classify.journey import Classified, ClassifyTraining, classify
from ebar.models.classifiers import MlpClassifier, initialise
from ebar.models.generators import SoftplusGenerator
from ebar.objectives.bad_gan import BadGanTerms
from ebar.training.loop import fit
from ebar.training.run import Checkpoints
from ebar.training.semi_supervised import FewLabelBatches

QUICK = ClassifyTraining(
    epochs=3, batch_size=20, labelled_size=4, initialise_on=50, samples=40, checkpoint_every=5, density_images=30
)  # fmt: skip


def rows(count: int, seed: int) -> LabelledFile:
    """Three classes of 6 × 6 pixels, each with two bright rows of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    bright = torch.randint(100, 256, (count, 3, 2, 6), generator=generator)
    own = torch.arange(3)[None, :, None, None] == labels[:, None, None, None]
    return LabelledFile(torch.where(own, bright, 0).view(count, 1, 6, 6).to(torch.uint8), labels)


@pytest.fixture(scope="module")
def data() -> FewLabels:
    return few_labels(rows(180, 0), rows(60, 1), labels=6, validation=40, seed=0)


def networks(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "classifier": MlpClassifier(shape=(1, 6, 6), classes=3, widths=(16, 8)),
        "generator": SoftplusGenerator(shape=(1, 6, 6), latent=4, widths=(16,)),
    }


def weights(found: Classified) -> dict[str, torch.Tensor]:
    pairs = {"best": found.best, "last": found.last}
    return {
        f"{name}.{player}.{key}": value
        for name, pair in pairs.items()
        for player, module in (("classifier", pair.classifier), ("generator", pair.generator))
        for key, value in module.state_dict().items()
    }


def test_classes_are_learnt_and_both_epochs_reported(data: FewLabels) -> None:
    found = classify(data, **networks(), training=QUICK, seed=1)
    assert found.result is not None
    assert found.result.status == "finished"
    assert found.folder is None
    for last in (False, True):
        figures = found.evaluate(last=last)
        assert figures["error"].value < 0.2  # by chance 0.67
        assert set(figures) == {"error", "true_share", "fake_share"}
    errors = [error for _, error in found.history.curve("validation.error")]
    assert len(errors) == 3
    assert found.evaluate("validation")["error"].value == pytest.approx(min(errors))
    assert found.evaluate("validation", last=True)["error"].value == pytest.approx(errors[-1])
    right = found.predict(data.test) == data.test_labels
    assert float((~right).double().mean()) == pytest.approx(found.evaluate()["error"].value)


def test_labels_alone_need_no_generator(data: FewLabels) -> None:
    found = classify(
        data, classifier=networks()["classifier"], terms=BadGanTerms(supervised=True), training=QUICK, seed=1
    )
    assert found.best.generator is None
    assert set(found.evaluate()) == {"error", "true_share"}


def test_a_run_stopped_between_checkpoints_goes_on_to_the_same_bit_and_is_initialised_once(
    data: FewLabels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(classifier: Any, x: torch.Tensor) -> None:
        calls.append(1)
        initialise(classifier, x)

    monkeypatch.setattr("ebar.journeys.classify.journey.initialise", counted)
    terms = BadGanTerms(pull_away=0.1)
    whole = classify(data, **networks(), terms=terms, training=QUICK, seed=1, folder=tmp_path / "whole")

    def stopping(*arguments: Any, **named: Any) -> Any:
        for step in fit(*arguments, **named):
            if step.number == 8:  # the last checkpoint is of step 7, the end of the first epoch
                raise ZeroDivisionError
            yield step

    monkeypatch.setattr("ebar.training.train.fit", stopping)
    with pytest.raises(ZeroDivisionError):
        classify(data, **networks(), terms=terms, training=QUICK, seed=1, folder=tmp_path / "cut")
    monkeypatch.setattr("ebar.training.train.fit", fit)
    assert len(calls) == 2
    # Other first weights: all must come from the checkpoint.
    again = classify(data, **networks(seed=5), terms=terms, training=QUICK, seed=1, folder=tmp_path / "cut")
    assert len(calls) == 2
    one, other = weights(whole), weights(again)
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == (tmp_path / "cut" / "metrics.jsonl").read_bytes()


def test_a_game_that_collapses_halts_with_its_reason_and_keeps_an_earlier_checkpoint(
    data: FewLabels, tmp_path: Path
) -> None:
    found = classify(
        data, **networks(), terms=BadGanTerms(collapsed=100.0), training=QUICK, seed=1, folder=tmp_path / "run"
    )  # fmt: skip
    assert found.result is not None
    assert found.result.status == "halted"
    assert "collapsed" in found.result.reason
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [0]


def test_the_threshold_comes_from_unlabelled_training_images(data: FewLabels) -> None:
    seen: list[int] = []

    def density(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        assert not bool(torch.isin(x.flatten(1).sum(1), torch.tensor([float("nan")])).any())
        return -x.flatten(1).sum(1)

    terms = BadGanTerms(low_density=0.1, low_density_share=1.0, low_density_start=0.0, low_density_rows=7)
    found = classify(data, **networks(), density=density, terms=terms, training=replace(QUICK, epochs=1), seed=1)
    assert seen[0] == 30
    assert set(seen[1:]) == {7}
    assert len(found.history.curve("generator.low_density")) == 0  # logged every tenth step, of which there are none


def test_batches_depend_on_seed_epoch_and_number_alone_and_labelled_ones_come_in_passes(data: FewLabels) -> None:
    source = FewLabelBatches(data=data, batch_size=20, labelled_size=3, latent=4, law="uniform", seed=2)
    assert len(source) == 6
    whole, rest = list(source.at(1, 0)), list(source.at(1, 4))
    for one, other in zip(whole[4:], rest, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    for first, second in zip(whole[0::2], whole[1::2], strict=True):
        both = torch.cat([first.labels, second.labels])
        assert both.bincount().tolist() == [2, 2, 2]  # two batches are a pass over the six labelled ones
    unlabelled = torch.cat([batch.unlabelled for batch in whole])
    assert len(unlabelled.flatten(1).unique(dim=0)) == 120  # each once
    assert not torch.equal(next(iter(source.at(0, 0))).noise, whole[0].noise)


def test_networks_for_other_data_are_refused_in_one_sentence(data: FewLabels) -> None:
    other = MlpClassifier(shape=(1, 5, 6), classes=3, widths=(4,))
    with pytest.raises(UserError, match="classifier is for images of 1 × 5 × 6, the data are of 1 × 6 × 6"):
        classify(data, classifier=other)
    with pytest.raises(UserError, match="4 classes, the data have 3"):
        classify(data, classifier=MlpClassifier(shape=(1, 6, 6), classes=4, widths=(4,)))


def test_the_command_trains_goes_on_and_its_folder_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    for name, seed, count in (("train", 0, 120), ("test", 1, 30)):
        one = rows(count, seed)
        np.savez(tmp_path / f"{name}.npz", images=one.images[:, 0].numpy(), labels=one.labels.numpy())
    words = [
        "classify", "--runs", str(tmp_path), "--name", "few", "--labels", "6", "--data.train",
        str(tmp_path / "train.npz"), "--data.test", str(tmp_path / "test.npz"), "--data.validation_size", "30",
        "--classifier.widths", "[8, 4]", "--generator.widths", "[8]", "--generator.latent", "3", "--encoder.hidden",
        "4", "--terms.variational", "0.01", "--training.batch_size", "20", "--training.samples", "20",
    ]  # fmt: skip
    assert main([*words, "--training.epochs", "1"]) == 0
    said = capsys.readouterr().out
    assert "finished at step 4, after 1 whole epoch: these are all of --training.epochs; best validation error" in said
    assert "best epoch: test error" in said
    assert "last epoch: test error" in said
    double = ["--name", "double", "--precision", "float64", "--training.epochs", "1", "--json"]
    assert main([*words, *double]) == 0
    assert ebar.load(tmp_path / "double").classifier.head.bias.dtype == torch.float64
    capsys.readouterr()
    assert main([*words, "--training.epochs", "2", "--replace_config", "--json"]) == 0
    assert '"epoch": 2' in capsys.readouterr().out
    opened = ebar.load(tmp_path / "few")
    assert isinstance(opened, Classified)
    assert opened.evaluate(last=True)["error"].effective_sample_size == 30
    assert main([*words, "--terms.low_density", "1"]) == 2
    assert "needs a density of images" in capsys.readouterr().err
    assert main([*words[:7], "--terms.supervise"]) == 2
    assert "did you mean --terms.supervised" in capsys.readouterr().err
