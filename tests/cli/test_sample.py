"""`ebar sample` after a prompt, between separators, on a sheet; lines of one length; what limits leave."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import ebar
from ebar.build.train import load_trained
from ebar.cli import main
from ebar.journeys.decode import complete_images
from ebar.maths.enumeration import all_sequences
from tests.cli.test_commands import answer


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_each_prompt_is_gone_on_from_by_as_many_tokens_as_in_training(
    continues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sample", str(continues), "--n", "3", "--prompt", "abc", "c"]
    found = answer(capsys, *words)["prompts"]
    assert [one["prompt"] for one in found] == ["abc", "c"]
    for one in found:
        texts = [entry["text"] for entry in one["samples"]]
        assert len(texts) == 3
        assert all(text.startswith(one["prompt"]) and len(text) == len(one["prompt"]) + 8 for text in texts)
    (tmp_path / "prompts.txt").write_text("abc\nc\n")
    assert answer(capsys, *words[:4], "--prompts", str(tmp_path / "prompts.txt"))["prompts"] == found
    longer = answer(capsys, *words, "--maximal_length", "30")["prompts"]  # far more than a window
    assert {len(entry["text"]) - len(one["prompt"]) for one in longer for entry in one["samples"]} == {30}


def test_what_a_prompt_begins_a_tilt_sees(continues: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every text has abc once the prompt ends in it; after ab, a hard constraint asks for the c that comes next."""
    words = ["sample", str(continues), "--n", "6", "--sampler.kind", "rejection"]
    free = answer(capsys, *words, "--tilt", "!motif:cba=-inf", "--prompt", "cba")["prompts"][0]
    assert free["distinct"] > 1
    [held] = answer(capsys, *words, "--tilt", "!starts_with:abc=-inf", "--prompt", "ab")["prompts"]
    assert all(entry["text"].startswith("abc") for entry in held["samples"])


def test_a_prompt_has_the_probabilities_of_the_model(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Greedy continuations are the likeliest tokens of the model itself, worked out from its log-probabilities."""
    [found] = answer(capsys, "sample", str(trained), "--n", "1", "--top_k", "1", "--prompt", "01")["prompts"]
    model, tokens = load_trained(trained).model, [0, 1]
    while len(tokens) < 11 and (not tokens or tokens[-1] != 2):
        with torch.no_grad():
            logits, _ = model.start(
                1, ebar.Context(ebar.Sequences(torch.tensor([tokens]), torch.tensor([len(tokens)])))
            )
        tokens.append(2 if len(tokens) == 10 else int(logits.argmax()))
    assert found["samples"][0]["text"] == "".join(map(str, tokens)).removesuffix("2")


def test_texts_of_several_lines_are_told_apart(
    continues: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [entry["text"] for entry in answer(capsys, "sample", str(continues), "--n", "4")["samples"]]
    assert said(capsys, "sample", str(continues), "--n", "4") == "".join(f"{text}\n---\n" for text in texts)
    other = said(capsys, "sample", str(continues), "--n", "4", "--separator", "###")
    assert other == "".join(f"{text}\n###\n" for text in texts)
    assert len(said(capsys, "sample", str(trained), "--n", "4").splitlines()) == 4  # lines need nothing


def read_png(path: Path) -> np.ndarray:
    image = pytest.importorskip("PIL.Image", reason="reads the sheet back")
    return np.asarray(image.open(path))


def test_images_are_drawn_on_a_sheet(pixels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "sheet.png"
    assert said(capsys, "sample", str(pixels), "--n", "3", "--output", str(path)) == f"{path}\n"
    assert read_png(path).shape == (12, 32, 3)  # three of 4 × 4, twice as large, 2 pixels of paper around each
    drawn = answer(capsys, "sample", str(pixels), "--n", "3")["samples"][0]["text"].split()
    assert read_png(path)[2:10:2, 2:10:2, 0].flatten().tolist() == [int(level) for level in drawn]


def test_the_upper_half_of_an_image_is_kept_and_the_rest_is_drawn(
    pixels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sample", str(pixels), "--n", "2", "--complete", "2", "--output", str(tmp_path / "sheet.png")]
    found = answer(capsys, *words)
    assert (found["images"], found["rows_given"]) == (2, 2)
    sheet = read_png(tmp_path / "sheet.png")
    assert sheet.shape == (22, 32, 3)  # a row for each: itself and two completions
    assert (sheet[2:10, 2:10] == 18).all()  # the last tenth is held out, images of all 18 and of all 19
    assert (sheet[12:20, 2:10] == 19).all()
    assert answer(capsys, *words, "--given", "0.25")["rows_given"] == 1
    trained = load_trained(pixels)
    whole = complete_images(trained.model, trained.data.test, 8, n=3, generator=Generator().manual_seed(0))
    assert whole.tokens.shape == (6, 16)
    assert whole.tokens[:3, :8].eq(18).all()
    assert whole.tokens[3:, :8].eq(19).all()
    assert whole.tokens[:, 8:].unique().numel() > 2


def test_lines_of_one_length_have_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dna.txt").write_text("ACA\nCCA\nACC\nAAA\nCAC\n" * 4)
    words = ["train", "--runs", str(tmp_path), "--name", "fixed", "--json", "--data.kind", "lines"]
    words += ["--data.train", str(tmp_path / "dna.txt"), "--data.fixed_length", "--backbone.layers", "1"]
    assert main([*words, "--backbone.hidden", "4", "--training.epochs", "1"]) == 0
    run = str(tmp_path / "fixed")
    model = load_trained(Path(run)).model
    assert (model.space.vocabulary, model.space.length, model.space.end) == (2, 3, None)
    with torch.no_grad():
        assert float(model.log_prob(all_sequences(model.space)).exp().sum()) == pytest.approx(1, abs=1e-6)
    drawn = [entry["text"] for entry in answer(capsys, "sample", run, "--n", "20")["samples"]]
    assert {len(text) for text in drawn} == {3}
    [after] = answer(capsys, "sample", run, "--n", "5", "--prompt", "CC")["prompts"]
    assert {entry["text"] for entry in after["samples"]} <= {"CCA", "CCC"}
    found = answer(capsys, "evaluate", run, "--n", "50", "--feature", "motif:CC")
    assert found["mean_length"]["value"] == 3
    assert 0 < found["frequency of motif CC"]["value"] < 1
    assert found["cross_entropy"]["value"] == pytest.approx(3 * found["cross_entropy_per_token"]["value"])


def test_limits_leave_so_many_drawn_by_the_seed(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{number:03}\n" for number in range(50)))
    whole = ebar.read_lines(tmp_path / "lines.txt")
    some = ebar.read_lines(tmp_path / "lines.txt", limit=7, held_out_limit=3)
    assert [len(part.lengths) for part in (some.train, some.validation, some.test)] == [7, 3, 3]
    assert set(some.text(some.train)) < set(whole.text(whole.train))
    assert some.text(some.validation) == [whole.text(whole.validation)[place] for place in (0, 4, 9)]
    assert ebar.read_lines(tmp_path / "lines.txt", limit=1000).text(whole.train) == whole.text(whole.train)
    assert whole.origin is not None
    assert some.origin is not None
    assert set(whole.origin) == {"kind", "train", "validation", "test", "alphabet"}  # as in earlier versions
    assert some.origin["limit"] == 7
    longer, shorter = (ebar.language(motif="11", length=5, size=20, limit=limit) for limit in (None, 4))
    assert shorter.text(shorter.train) == longer.text(longer.train)[:4]
    images = np.arange(40, dtype=np.uint8)[:, None, None]
    np.savez(tmp_path / "images.npz", images=images)
    kept = ebar.read_images(tmp_path / "images.npz", limit=5, held_out_limit=2)
    assert [len(part.lengths) for part in (kept.train, kept.validation, kept.test)] == [5, 2, 2]
    assert kept.validation.tokens.flatten().tolist() == [36, 39]
