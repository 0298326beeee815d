import sys

import pytest

from ebar.data.hub import HubPairs, HubSplit, HubTexts
from ebar.data.text import read_tokens, windows
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError

datasets = pytest.importorskip("datasets")
ROWS = {"text": ["ab", "c"], "translation": [{"de": "ja", "en": "yes"}, {"de": "nein", "en": "no"}], "n": [1, 2]}


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and a cache of its own."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_folder_that_save_to_disk_wrote(tmp_path):
    one = datasets.Dataset.from_dict(ROWS)
    datasets.DatasetDict({"train": one, "test": one.select([1])}).save_to_disk(str(tmp_path / "both"))
    one.save_to_disk(str(tmp_path / "one"))
    for name in ("both", "one"):
        split = HubSplit(name=str(tmp_path / name))
        texts = HubTexts(data=split)
        assert list(texts) == list(texts) == ["ab", "c"]
        assert list(HubPairs(data=split, source="translation.de", target="translation.en")) == [
            ("ja", "yes"),
            ("nein", "no"),
        ]
        assert windows(read_tokens(texts, Alphabet("abc")), 3).tokens.tolist() == [[0, 1, 2]]
    assert list(HubTexts(data=HubSplit(name=str(tmp_path / "both"), split="test"))) == ["c"]
    for name, part, message in (("both", "dev", "its splits are test, train"), ("one", "dev", "one split")):
        with pytest.raises(UserError, match=message):
            list(HubTexts(data=HubSplit(name=str(tmp_path / name), split=part)))
    for column, message in (("words", "its columns are n, text, translation"), ("n", "holds int, no text")):
        with pytest.raises(UserError, match=message):
            list(HubTexts(data=HubSplit(name=str(tmp_path / "one")), text=column))


def test_files_are_read_by_their_kind(tmp_path, offline):
    (tmp_path / "train.txt").write_text("ab\nc\n")
    assert list(HubTexts(data=HubSplit(name=str(tmp_path)))) == ["ab", "c"]
    datasets.Dataset.from_dict(ROWS).to_parquet(str(tmp_path / "valid.parquet"))
    assert list(HubTexts(data=HubSplit(name=str(tmp_path), split="valid"))) == ["ab", "c"]
    assert list(HubTexts(data=HubSplit(name=str(tmp_path / "valid.parquet")))) == ["ab", "c"]
    (tmp_path / "odd.bin").touch()
    for name, part, message in (("", "dev", "no file whose name begins with 'dev'"), ("odd.bin", "train", "no kind")):
        with pytest.raises(UserError, match=message):
            list(HubTexts(data=HubSplit(name=str(tmp_path / name), split=part)))


def test_a_name_that_the_hub_does_not_give(offline):
    with pytest.raises(UserError, match="no folder or file here, and the hub did not give it"):
        list(HubTexts(data=HubSplit(name="nobody/nothing-of-the-kind")))


def test_without_the_package_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"ebar\[data\]"):
        list(HubTexts(data=HubSplit(name=str(tmp_path))))
