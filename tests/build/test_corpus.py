"""Configuration → data: what each kind gives, and what is refused."""

import pytest
import torch

from ebar.build.train import build_corpus, build_model
from ebar.data.built_tokeniser import Bpe
from ebar.data.images import Images
from ebar.data.packed import Packed, PackedPairs
from ebar.data.tokenisers import Alphabet, Bytes, Words
from ebar.errors import UserError
from ebar.types import Sequences, Space
from tests.build.runs import images, run_of, table, text


def test_text_is_windows_of_one_stream(tmp_path):
    path = text(tmp_path)
    corpus = build_corpus(run_of("--data.kind", "text", "--data.train", str(path), "--data.length", "16"))
    assert corpus.space == Space(256, 16, None)
    assert corpus.tokeniser == Bytes()
    rows = len(path.read_bytes()) // 16
    assert (len(corpus.train.lengths), len(corpus.validation.lengths)) == (rows - rows // 10, rows // 10)
    assert "".join(corpus.text(corpus.train)) == path.read_text()[: 16 * len(corpus.train.lengths)]
    assert corpus.test is corpus.validation
    with pytest.raises(UserError, match="Features are written in characters"):
        _ = corpus.alphabet


@pytest.mark.parametrize(("kind", "made"), [("characters", Alphabet), ("words", Words), ("bpe", Bpe)])
def test_a_tokeniser_is_made_from_the_training_text_and_kept(tmp_path, kind, made):
    path, held_out = text(tmp_path), tmp_path / "valid.txt"
    held_out.write_text("the dogs sees the cat\n" * 5)
    words = ["--data.kind", "text", "--data.train", str(path), "--data.length", "4", "--data.tokeniser", kind]
    words += ["--data.validation", str(held_out), "--data.vocabulary", "260" if kind == "bpe" else "9"]
    corpus = build_corpus(run_of(*words))
    assert isinstance(corpus.tokeniser, made)
    assert corpus.tokeniser.size == (260 if kind == "bpe" else 9)
    (tmp_path / "tokeniser.json").write_text(corpus.files["tokeniser.json"])
    text(tmp_path).write_text("something else altogether, 8 9 / * + = !\n" * 9)
    assert build_corpus(run_of(*words), tmp_path).tokeniser == corpus.tokeniser
    other = [*words, "--data.tokeniser_file", str(tmp_path / "tokeniser.json")]
    assert build_corpus(run_of(*other)).tokeniser == corpus.tokeniser
    assert build_corpus(run_of(*words)).tokeniser != corpus.tokeniser


def test_what_is_on_disk_is_what_is_in_memory(tmp_path):
    held_out = str(text(tmp_path, "valid.txt"))
    base = ["--data.kind", "text", "--data.train", str(text(tmp_path)), "--data.length", "16"]
    base += ["--data.validation", held_out]
    packed = build_corpus(run_of(*base, "--data.cache", str(tmp_path / "cache")))
    assert isinstance(packed.parts["train"], Packed)
    assert torch.equal(packed.train.tokens, build_corpus(run_of(*base)).train.tokens)
    base = ["--data.kind", "parallel", "--data.train", str(table(tmp_path)), "--data.tokeniser", "words"]
    base += ["--data.validation", str(table(tmp_path, "valid.tsv"))]
    stored, read = build_corpus(run_of(*base, "--data.cache", str(tmp_path / "cache"))), build_corpus(run_of(*base))
    assert isinstance(stored.parts["train"], PackedPairs)
    assert torch.equal(stored.train.tokens, read.train.tokens)
    one, other = stored.sources("train"), read.sources("train")
    assert one is not None
    assert other is not None
    assert torch.equal(one.given.tokens, other.given.tokens)
    assert stored.space == read.space
    assert len(list((tmp_path / "cache").glob("[!.]*"))) == 2


def test_pairs_have_targets_and_sources(tmp_path):
    base = ["--data.kind", "parallel", "--data.train", str(table(tmp_path)), "--data.tokeniser", "words"]
    base += ["--data.source_column", "1", "--data.target_column", "0"]
    shared = build_corpus(run_of(*base))
    assert shared.tokeniser is shared.source_tokeniser
    assert shared.shape == {}
    assert shared.space == Space(10, 9, 9)  # 8 words and the unknown one, an end; twice 4 words and an end
    assert (len(shared.train.lengths), len(shared.validation.lengths)) == (38, 2)
    apart = build_corpus(run_of(*base, "--data.shared", "false"))
    assert apart.shape == {"source_vocabulary": 6}
    assert set(apart.files) == {"tokeniser.json", "source_tokeniser.json"}
    assert apart.text(apart.train)[1] == "one two"
    sources = apart.sources("train")
    assert sources is not None
    assert apart.source_tokeniser is not None
    assert apart.source_tokeniser.decode(sources.given.prefix(1)[:-1]) == "eins zwei"
    assert isinstance(apart.train, Sequences)
    lines = [line.split("\t") for line in table(tmp_path).read_text().splitlines()]
    german, english = tmp_path / "g.txt", tmp_path / "e.txt"
    for at, path in ((1, german), (0, english)):
        path.write_text("".join(f"{line[at]}\n" for line in lines))
    two = ["--data.kind", "parallel", "--data.train", str(german), "--data.train_target", str(english)]
    assert torch.equal(build_corpus(run_of(*two, "--data.tokeniser", "words")).train.tokens, shared.train.tokens)


def test_images_are_bytes_until_they_are_asked_for(tmp_path):
    base = ["--data.kind", "images", "--data.train", str(images(tmp_path))]
    corpus = build_corpus(run_of(*base))
    assert corpus.space == Space(256, 12, None)
    assert corpus.shape == {"image_height": 3, "image_width": 4, "channels": 1}
    assert isinstance(corpus.parts["train"], Images)
    assert (len(corpus.train.lengths), len(corpus.test.lengths)) == (18, 2)
    binary = build_corpus(run_of(*base, "--data.binary", "true"))
    assert binary.space == Space(2, 12, None)
    assert set(binary.text(binary.test)[0]) <= set("01 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.kind", "text"], "either data.train or data.dataset"),
        (["--data.kind", "text", "--data.train", "{text}", "--data.dataset", "x"], "either data.train or data.dataset"),
        (["--data.kind", "text", "--data.train", "{text}", "--data.cache", "{here}"], "validation file of its own"),
        (["--data.kind", "text", "--data.train", "{text}", "--data.length", "500"], "only one window"),
        (["--data.kind", "text", "--data.train", "{text}", "--training.maximal_length", "9"], "have one length"),
        (
            ["--data.kind", "text", "--data.train", "{text}", "--data.tokeniser", "bpe", "--data.vocabulary", "9"],
            "The tokeniser bpe cannot be made: .* 256 bytes",
        ),
        (["--data.kind", "text", "--data.train", "{text}", "--data.tokeniser_file", "{here}/no"], "cannot be read"),
        (["--data.kind", "parallel"], "either data.train or data.dataset"),
        (["--data.kind", "parallel", "--data.train", "{table}", "--data.test_target", "x"], "translation of nothing"),
        (["--data.kind", "parallel", "--data.train", "{table}", "--data.source_column", "de"], "are numbers"),
        (["--data.kind", "parallel", "--data.train", "{table}", "--data.cache", "{here}"], "validation file of their"),
        (
            ["--data.kind", "parallel", "--data.train", "{table}", "--data.length", "3", "--data.too_long", "error",
             "--data.tokeniser", "words"],
            "line 3: 4 tokens are more than the 3 allowed",
        ),
        (["--data.kind", "images", "--data.train", "{images}", "--data.test", "{others}"], "images of 5 × 4 × 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(tmp_path, words, message):
    places = {"text": text(tmp_path), "table": table(tmp_path), "images": images(tmp_path), "here": tmp_path}
    places["others"] = images(tmp_path, "others.npz", size=(5, 4))
    with pytest.raises(UserError, match=message):
        build_corpus(run_of(*(word.format(**places) for word in words)))


def test_long_pairs_are_left_out_of_training_but_not_of_the_test(tmp_path):
    words = ["--data.kind", "parallel", "--data.train", str(table(tmp_path)), "--data.tokeniser", "words"]
    words += ["--data.length", "4", "--data.test", str(table(tmp_path, "test.tsv"))]
    with pytest.warns(RuntimeWarning, match="10 of 40 pairs .* left out"):
        corpus = build_corpus(run_of(*words))
    assert int(corpus.train.lengths.max()) == 4
    assert len(corpus.test.lengths) == 40
    with (
        pytest.warns(RuntimeWarning, match="left out"),
        pytest.raises(UserError, match=r"A test sentence has 5 tokens, .* larger training.maximal_length"),
    ):
        build_corpus(run_of(*words, "--training.maximal_length", "4"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backbone.kind", "gated_pixelcnn"], "reads images: choose another, or data of kind images"),
        (["--backbone.kind", "encoder_decoder"], "reads a source: choose another, or data of kind parallel"),
    ],
)
def test_a_backbone_for_other_data_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        build_model(run_of(*words), Space(3, 5, 2))


def test_a_data_set_saved_on_disk_serves_as_text_and_as_pairs(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(
        {"text": ["ab\n", "ba\n"] * 3, "translation": [{"de": "eins", "en": "one"}, {"de": "zwei", "en": "two"}] * 3}
    )
    parts = datasets.DatasetDict(dict.fromkeys(("train", "validation", "test"), rows))
    parts.save_to_disk(str(tmp_path / "saved"))
    base = ["--data.dataset", str(tmp_path / "saved")]
    corpus = build_corpus(run_of("--data.kind", "text", *base, "--data.length", "6", "--data.tokeniser", "characters"))
    assert corpus.text(corpus.train) == ["ab\nba\n"] * 3
    columns = ["--data.source_column", "translation.de", "--data.target_column", "translation.en"]
    pairs = build_corpus(run_of("--data.kind", "parallel", *base, *columns, "--data.tokeniser", "words"))
    assert pairs.text(pairs.test)[:2] == ["one", "two"]
