"""Small made-up data for scale demo, which needs no files: number words, short sentences, bars."""

import torch
from jaxtyping import UInt8
from torch import Generator, Tensor

GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
SUBJECTS = ("the cat", "a dog", "the old man", "my sister", "nobody")
VERBS = ("sees", "likes", "follows", "does not see", "hears")
OBJECTS = ("the house", "a bird", "the river", "us", "the small dog")


def pairs(n: int, seed: int) -> list[tuple[str, str]]:
    """German and English: one to four numbers; "und" turns the order round, so that order has to be learnt."""
    generator = Generator().manual_seed(seed)
    found = []
    for _ in range(n):
        count = int(torch.randint(1, 5, (), generator=generator))
        numbers = torch.randint(len(GERMAN), (count,), generator=generator).tolist()
        turned = count > 1 and bool(torch.rand((), generator=generator) < 0.5)
        german = " ".join(GERMAN[number] for number in numbers)
        english = " ".join(ENGLISH[number] for number in (reversed(numbers) if turned else numbers))
        found.append((f"und {german}" if turned else german, english))
    return found


def text(sentences: int, seed: int) -> str:
    """Sentences of three parts, one a line."""
    generator = Generator().manual_seed(seed)
    parts = (SUBJECTS, VERBS, OBJECTS)
    lines = [
        " ".join(part[int(torch.randint(len(part), (), generator=generator))] for part in parts)
        for _ in range(sentences)
    ]
    return "\n".join(lines) + "\n"


def bars(n: int, seed: int, size: int = 6) -> UInt8[Tensor, "images height width"]:
    """Images of 0 and 255: each column dark or bright, or each row."""
    generator = Generator().manual_seed(seed)
    lines = torch.randint(2, (n, 1, size), generator=generator).expand(n, size, size)
    upright = torch.rand(n, 1, 1, generator=generator) < 0.5
    return (torch.where(upright, lines, lines.transpose(1, 2)) * 255).to(torch.uint8)
