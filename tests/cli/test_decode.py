"""`ebar decode` and `ebar evaluate` on runs that translate and runs that continue text."""

import io
import json
from pathlib import Path

import pytest

from ebar.cli import main

WORDS = {"eins": "one", "zwei": "two", "drei": "three"}
PAIRS = [f"{a} {b}\t{WORDS[a]} {WORDS[b]}" for a in WORDS for b in WORDS] * 4


@pytest.fixture(scope="module")
def translates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that translates numbers, word by word."""
    folder = tmp_path_factory.mktemp("translation")
    (folder / "train.tsv").write_text("\n".join(PAIRS) + "\n")
    (folder / "test.tsv").write_text("\n".join(PAIRS[:9]) + "\n")
    options = [
        "--data.kind", "parallel", "--data.train", str(folder / "train.tsv"), "--data.test", str(folder / "test.tsv"),
        "--data.tokeniser", "words", "--backbone.kind", "encoder_decoder", "--backbone.layers", "1",
        "--backbone.encoder_layers", "1", "--backbone.hidden", "16", "--backbone.heads", "2", "--backbone.dropout", "0",
        "--training.epochs", "60", "--training.batch_size", "9", "--optimiser.learning_rate", "0.01",
    ]  # fmt: skip
    assert main(["train", "--runs", str(folder), "--name", "numbers", "--json", *options]) == 0
    return folder / "numbers"


def output(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


def test_it_translates(translates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("drei eins\nzwei zwei\n")
    for method in ("beam", "greedy"):
        found = output(["decode", str(translates), "--input", str(tmp_path / "in.txt"), "--method", method], capsys)
        assert found == "three one\ntwo two\n"


@pytest.mark.parametrize(
    "method",
    [
        ["--method", "sample", "--top_k", "1"],
        ["--method", "sample"],
        ["--method", "energy", "--candidates", "4"],
        ["--method", "energy", "--candidates", "3", "--weights", "last_logit", "--distinct"],
        ["--method", "energy", "--temperature", "0.5"],
        ["--method", "beam", "--width", "3", "--length_penalty", "0", "--enough", "3"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_method_gives_a_line_for_each_line(
    method: list[str], translates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("drei eins\nzwei zwei\neins\n")
    words = ["decode", str(translates), "--input", str(tmp_path / "in.txt"), *method]
    first = output(words, capsys)
    assert len(first.splitlines()) == 3
    assert output(words, capsys) == first  # the seed decides
    if "--top_k" in method:
        assert first.splitlines()[:2] == ["three one", "two two"]


def test_several_for_each_line(
    translates: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("zwei drei\neins eins\n"))
    found = json.loads(output(["decode", str(translates), "--input", "-", "--best", "3", "--json"], capsys))
    assert [line["source"] for line in found["lines"]] == ["zwei drei", "eins eins"]
    for line in found["lines"]:
        scores = [made["score"] for made in line["outputs"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert len({made["text"] for made in line["outputs"]}) == 3
    monkeypatch.setattr("sys.stdin", io.StringIO("zwei drei\neins eins\n"))
    rows = output(["decode", str(translates), "--input", "-", "--best", "2"], capsys).splitlines()
    assert [row.split("\t")[0] for row in rows] == ["1", "1", "2", "2"]
    assert rows[0].split("\t")[2] == "two three"


def test_without_an_input_the_test_sentences_are_translated(
    translates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [pair.split("\t")[1] for pair in PAIRS[:9]]
    assert output(["decode", str(translates)], capsys).splitlines() == expected


def test_evaluation_keeps_the_hypotheses_beside_their_references(
    translates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output(["evaluate", str(translates), "--json"], capsys)
    expected = [pair.split("\t")[1] for pair in PAIRS[:9]]
    for name in ("hypotheses.txt", "references.txt"):
        assert (translates / name).read_text().splitlines() == expected


def test_text_is_continued(continues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("abc\nca\n")
    words = ["decode", str(continues), "--input", str(tmp_path / "in.txt")]
    for method in ("beam", "greedy", "sample", "energy"):
        found = json.loads(output([*words, "--method", method, "--json"], capsys))
        # A window has 8 characters, of which the beginning takes some.
        assert [len(line["outputs"][0]["text"]) for line in found["lines"]] == [5, 6]
        assert all(line["outputs"][0]["log_prob"] < 0 for line in found["lines"])
        found = json.loads(output([*words, "--method", method, "--maximal_length", "2", "--json"], capsys))
        assert [len(line["outputs"][0]["text"]) for line in found["lines"]] == [2, 2]
    assert len(output(["decode", str(continues), "--method", "greedy"], capsys).splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--top_k", "3"], "are for draws"),
        (["--method", "greedy", "--best", "2"], "Greedy search finds one"),
        (["--best", "9"], "make --width larger"),
        (["--method", "energy", "--distinct", "--top_p", "0.5"], "come from a beam"),
        (["--method", "mode"], "mode"),
        (["--input", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    words: list[str], sentence: str, translates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["decode", str(translates), *words]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told


def test_a_line_that_cannot_be_read_is_named(
    continues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("abc\nxyz\n")
    capsys.readouterr()
    assert main(["decode", str(continues), "--input", str(tmp_path / "in.txt")]) == 2
    assert "in.txt, line 2" in capsys.readouterr().err


def test_translations_are_evaluated(translates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sacrebleu", reason="needs the extra metrics")
    found = json.loads(output(["evaluate", str(translates), "--edges", "2", "--json"], capsys))
    assert found["BLEU signature"].startswith("nrefs:1|")
    assert found["perplexity_per_token"]["value"] < 1.5
    assert found["BLEU of 0 references of [0, 2) words"] == "–"
    assert "BLEU of 9 references of [2, ∞) words" in found
    assert (translates / "report.html").exists()
    assert "nrefs:1|" in output(["evaluate", str(translates), "--width", "1"], capsys)


def test_text_is_evaluated(continues: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(["evaluate", str(continues), "--stride", "4", "--json"], capsys))
    words = ["evaluate", str(continues), "--stride", "4", "--backend", "process", "--json"]
    in_shards = json.loads(output(words, capsys))["cross_entropy_per_token"]
    assert in_shards["value"] == pytest.approx(found["cross_entropy_per_token"]["value"], rel=1e-5)
    per_token, bits = found["cross_entropy_per_token"]["value"], found["bits_per_byte"]["value"]
    assert bits == pytest.approx(per_token / 0.6931471805599453)  # every character here is a byte
    assert found["perplexity_per_word, line breaks counted"]["value"] > found["perplexity_per_token"]["value"]
