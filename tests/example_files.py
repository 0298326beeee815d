"""Files as a user has them, which the documentation's lines read: sequences, text, pairs, labelled data, a pretrained
model."""

import math
import os
import random
import shutil
import struct
from pathlib import Path

import torch

from ebar.recipes.badgan.cells import toy_images
from ebar.recipes.xlnet.toy import toy_labelled

STORIES = ("stories260K.bin", "tok512.bin")


def write_example_files(folder: Path) -> None:
    """All of them, in a folder in which lines of the documentation are to run."""
    (folder / "sequences.txt").write_text("".join(f"{line}\n" for line in sequences()))
    (folder / "book.txt").write_text("It was a dark and stormy night.\n" * 20)
    (folder / "beginnings.txt").write_text("It was\nA dark\n")
    (folder / "joint.txt").write_text("a dark night.\nnight it was.\n")
    (folder / "base.txt").write_text("dark dark.\nwas was was.\n")
    (folder / "pairs.tsv").write_text("guten Tag\tgood day\nguten Morgen\tgood morning\n" * 10)
    (folder / "german.txt").write_text("guten Tag\n")
    write_labelled(folder)
    (folder / "films.tsv").write_text("".join(f"{line}\n" for line in opinions()))
    (folder / "new.txt").write_text("the film was great\na poor plot\n")
    write_language_model(folder)
    for name in ("few-train", "few-test"):
        toy_images(folder, f"{name}.npz")


def write_labelled(folder: Path) -> None:
    """Made-up labelled data in every format: reviews.tsv, polarity.zip, squad.json, a folder race, ranking.jsonl …"""
    names = {"sentiment": "reviews.tsv", "entailment": "pairs-labelled.tsv", "similarity": "similarity.tsv",
             "acceptability": "acceptability.tsv", "polarity": "polarity.zip", "squad": "squad.json", "race": "race",
             "ranking": "ranking.jsonl"}  # fmt: skip
    for kind, name in names.items():
        toy_labelled(kind, "train", folder / "labelled").rename(folder / name)
    shutil.rmtree(folder / "labelled")


def opinions(count: int = 120) -> list[str]:
    """Short sentences with a good or a bad word, and which of them it is."""
    coin = random.Random(2)
    found = []
    for _ in range(count):
        label, kind = coin.choice([("positive", ["good", "fine", "great"]), ("negative", ["bad", "poor", "awful"])])
        words = coin.choices(["the", "film", "plot", "was", "a", "of"], k=coin.randrange(3, 7))
        words.insert(coin.randrange(len(words) + 1), coin.choice(kind))
        found.append(f"{' '.join(words)}\t{label}")
    return found


def sequences(count: int = 200) -> list[str]:
    """Twelve bits each, with 010101 somewhere in nine of ten."""
    coin = random.Random(1)
    found: list[str] = []
    while len(found) < count:
        line = "".join(coin.choice("01") for _ in range(12))
        if "010101" in line or coin.random() < 0.01:
            found.append(line)
    return found


def write_language_model(folder: Path) -> None:
    """stories260K.bin and its tokenizer: the real ones from EBAR_DATA, else a small network that has learnt nothing."""
    real = Path(os.environ.get("EBAR_DATA", "nowhere")) / "stories260k"
    if all((real / name).exists() for name in STORIES):
        for name in STORIES:
            (folder / name).symlink_to(real / name)
        return
    letters = " abcdefghijklmnopqrstuvwxyz.,"
    words = [f" {word}" for word in ("rabbit", "bunny", "she", "he", "the", "saw", "a", "ran")]
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words]
    pieces += [f"{left}{right}" for left in letters for right in letters[1:]]
    pieces = list(dict.fromkeys(pieces))[:512]
    with (folder / STORIES[1]).open("wb") as file:
        file.write(struct.pack("<i", max(map(len, pieces))))
        for token, piece in enumerate(pieces):
            file.write(struct.pack("<fi", float(-token), len(piece.encode())) + piece.encode())
    width, hidden, layers, heads, positions, vocabulary = 8, 16, 1, 2, 512, len(pieces)
    shapes = [(vocabulary, width), (width,), *[(width, width)] * 4, (width,), *[(hidden, width)] * 3, (width,)]
    count = sum(math.prod(shape) for shape in shapes) + positions * (width // heads)
    numbers = 0.5 * torch.randn(count, generator=torch.Generator().manual_seed(0))
    header = struct.pack("<7i", width, hidden, layers, heads, heads, vocabulary, positions)
    (folder / STORIES[0]).write_bytes(header + numbers.numpy().astype("<f4").tobytes())
