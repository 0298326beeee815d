"""Small made-up data of every task, which a small network learns in seconds."""

import json
import random
from pathlib import Path
from typing import Any

from ebar.backbones.xlnet import XlNet
from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.training.course import Training
from ebar.training.optimisers import Adam, Constant

GOOD, BAD, PLAIN = ["good", "fine", "great"], ["bad", "poor", "awful"], ["the", "film", "plot", "was", "a", "of"]
QUICK: dict[str, Any] = {
    "training": Training(epochs=12, batch_size=16, patience=12, clip=1.0),
    "optimiser": Adam(learning_rate=5e-3),
    "schedule": Constant(),
    "seed": 1,
}


def sentences(count: int, seed: int = 0) -> list[tuple[str, bool]]:
    """Plain words with a good or a bad one among them."""
    coin = random.Random(seed)
    found = []
    for _ in range(count):
        good = coin.random() < 0.5
        words = coin.choices(PLAIN, k=coin.randrange(3, 7))
        words.insert(coin.randrange(len(words) + 1), coin.choice(GOOD if good else BAD))
        found.append((" ".join(words), good))
    return found


def classification(folder: Path, count: int = 120) -> LabelledData:
    lines = [f"{text}\t{'positive' if good else 'negative'}\n" for text, good in sentences(count)]
    (folder / "reviews.tsv").write_text("".join(lines))
    return LabelledData(train=folder / "reviews.tsv", test_share=0.2, validation_share=0.2, length=16)


def regression(folder: Path) -> LabelledData:
    coin = random.Random(2)
    rows = [["good"] * coin.randrange(4) + ["the"] * coin.randrange(3) + ["film"] for _ in range(150)]
    for words in rows:
        coin.shuffle(words)
    lines = [f"{' '.join(words)}\t{words.count('good') / 2}\n" for words in rows]
    (folder / "numbers.tsv").write_text("".join(lines))
    return LabelledData(
        train=folder / "numbers.tsv", task="regression", test_share=0.2, validation_share=0.2, length=16
    )


def span(folder: Path, unanswerable: bool = True) -> LabelledData:
    """Which word stands after "is": a question without the word has no answer."""
    coin = random.Random(3)
    names = ["anna", "bert", "carl", "dora"]
    rows = []
    for number in range(200):
        words, answers = coin.choices(PLAIN, k=coin.randrange(3, 6)), []
        if not unanswerable or coin.random() < 0.7:
            place, name = coin.randrange(len(words)), coin.choice(names)
            words[place:place] = ["is", name]
            passage = " ".join(words)
            answers = [{"text": name, "answer_start": passage.index(f"is {name}") + 3}]
        rows.append({"id": str(number), "context": " ".join(words), "question": "who", "answers": answers})
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LabelledData(train=folder / "questions.jsonl", task="span", test_share=0.2, validation_share=0.2, length=16)


def ranking(folder: Path) -> LabelledData:
    """A document is the more relevant, the more good words it has, whatever the query."""
    coin = random.Random(4)
    rows = []
    for query in range(40):
        for grade in (0, 0, 1, 2):
            text = coin.choices(PLAIN, k=3 - grade) + coin.choices(GOOD, k=grade)
            coin.shuffle(text)
            rows.append({"query_id": query, "query": coin.choice(PLAIN), "document": " ".join(text), "grade": grade})
    (folder / "ranked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LabelledData(train=folder / "ranked.jsonl", task="ranking", test_share=0.2, validation_share=0.2, length=16)


def choice(folder: Path) -> LabelledData:
    """Which of the options is a good word; every fifth question has one option less."""
    coin = random.Random(5)
    rows = []
    for number in range(120):
        options = coin.choices(BAD, k=2 if number % 5 == 0 else 3)
        answer = coin.randrange(len(options))
        options[answer] = coin.choice(GOOD)
        passage = " ".join(coin.choices(PLAIN, k=3))
        subset = "high" if number % 3 else "middle"
        rows.append({"article": passage, "question": "was", "options": options, "answer": answer, "subset": subset})
    (folder / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LabelledData(train=folder / "choices.jsonl", task="choice", test_share=0.2, validation_share=0.2, length=16)


DATA = {"classification": classification, "regression": regression, "span": span, "ranking": ranking, "choice": choice}


def network(corpus: LabelledCorpus, **options: object) -> XlNet:
    sizes: dict[str, object] = {"layers": 1, "hidden": 32, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    return XlNet(corpus.vocabulary, **{**sizes, **options})  # type: ignore[arg-type]
