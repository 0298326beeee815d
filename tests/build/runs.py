"""Data in a blink: a text, sentence pairs and images, and the words that train on them."""

from pathlib import Path

import numpy as np

from ebar.config.reader import read
from ebar.config.train import MANUAL, TrainConfig

GERMAN, ENGLISH = ["null", "eins", "zwei", "drei"], ["zero", "one", "two", "three"]


def run_of(*words: str) -> TrainConfig:
    return read(words, MANUAL, TrainConfig)


def text(folder: Path, name: str = "text.txt", lines: int = 40) -> Path:
    path = folder / name
    path.write_text("".join(f"the cat sees {number % 7} dogs\n" for number in range(lines)))
    return path


def table(folder: Path, name: str = "pairs.tsv", rows: int = 40) -> Path:
    """English, a tab, German: as many words as the row's number says, from 1 to 4."""
    path = folder / name
    sides = [
        [words[number * at % 4] for at in range(1, number % 4 + 2)]
        for number in range(rows)
        for words in (ENGLISH, GERMAN)
    ]
    lines = [" ".join(side) for side in sides]
    path.write_text("".join(f"{english}\t{german}\n" for english, german in zip(lines[::2], lines[1::2], strict=True)))
    return path


def images(folder: Path, name: str = "images.npz", number: int = 20, size: tuple[int, int] = (3, 4)) -> Path:
    path = folder / name
    np.savez(path, images=np.random.default_rng(0).integers(0, 256, (number, *size), dtype=np.uint8))
    return path


def words_for(kind: str, folder: Path) -> list[str]:
    """A tiny run on a kind of data, with the backbone made for it."""
    data = ["--data.kind", kind]
    small = ["--backbone.layers", "1", "--backbone.hidden", "8", "--backbone.heads", "2"]
    if kind == "text":
        data += ["--data.train", str(text(folder)), "--data.length", "16"]
        return [*data, "--backbone.kind", "transformer", *small, "--training.batch_tokens", "320"]
    if kind == "parallel":
        data += ["--data.train", str(table(folder)), "--data.source_column", "1", "--data.target_column", "0"]
        data += ["--data.tokeniser", "words", "--data.shared", "false", "--training.batch_tokens", "80"]
        return [*data, "--backbone.kind", "encoder_decoder", "--backbone.encoder_layers", "1", *small]
    data += ["--data.train", str(images(folder)), "--data.binary", "true", "--training.batch_size", "6"]
    return [*data, "--backbone.kind", "pixelcnn", "--backbone.layers", "1", "--backbone.features", "4"]
