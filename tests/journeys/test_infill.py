"""Infilling held against enumeration: an alphabet of two letters and a blank, every word and every order."""

import copy
import itertools
import json
import math
from typing import Any

import pytest
import torch

from ebar.cli import main
from ebar.data.tokenisers import Alphabet
from ebar.errors import UserError
from ebar.journeys.infill import infill
from ebar.models.construction import assemble
from ebar.models.ngram import Tabular
from ebar.types import Context, Sequences, Space
from tests.models.any_order import AnyOrderTable

LETTERS = Alphabet("ab ")
MODEL = AnyOrderTable(3, 9)


@torch.no_grad()
def log_mixture(given: dict[int, int], filling: dict[int, int]) -> float:
    """log of the mean over all orders of p(filling | given), place by place."""
    found = []
    for order in itertools.permutations(filling):
        places = torch.tensor([[*given, *order]])
        known = Sequences(torch.tensor([list(given.values())]), torch.tensor([len(given)]))
        x = Sequences(torch.tensor([[filling[place] for place in order]]), torch.tensor([len(order)]))
        found.append(MODEL.log_prob(x, Context(known, places))[0])
    return float(torch.stack(found).logsumexp(0)) - math.log(len(found))


def words(longest: int) -> list[tuple[int, ...]]:
    return [word for number in range(1, longest + 1) for word in itertools.product(range(2), repeat=number)]


def test_the_candidates_of_a_gap_are_all_words_with_their_probabilities_over_all_orders():
    found = infill(MODEL, "a ___ b", candidates=100, pieces=3, tokeniser=LETTERS)
    given = {0: 0, 1: 2}
    wanted = {}
    for word in words(3):
        rest = {2 + len(word): 2, 3 + len(word): 1}
        filling = {2 + place: letter for place, letter in enumerate(word)}
        wanted["".join("ab"[letter] for letter in word)] = -math.log(3) + log_mixture(given | rest, filling)
    assert {one.word: one.log_prob.value for one in found.gaps[0]} == pytest.approx(wanted, abs=1e-9)
    assert all(one.log_prob.is_exact for one in found.gaps[0])
    assert [one.log_prob.value for one in found.gaps[0]] == pytest.approx(sorted(wanted.values(), reverse=True))
    # Of one gap, what is filled together is what is filled alone.
    assert {one.words[0]: one.log_prob.value for one in found.fillings} == pytest.approx(wanted, abs=1e-9)
    assert found.fillings[0].text == f"a {found.gaps[0][0].word} b"
    top = infill(MODEL, "a ___ b", candidates=2, pieces=3, tokeniser=LETTERS)
    assert [one.word for one in top.gaps[0]] == [one.word for one in found.gaps[0][:2]]


def test_two_gaps_alone_and_together():
    """The second is left open for the first: all numbers of its pieces, each as likely as any other."""
    found = infill(MODEL, "___ ___", candidates=100, pieces=2, orders=24, tokeniser=LETTERS)
    alone, together = {}, {}
    for first in words(2):
        spelt = "".join("ab"[letter] for letter in first)
        filling = dict(enumerate(first))
        parts = [log_mixture({len(first): 2}, filling)] * 2  # an open gap says nothing here: the model sees no length
        alone[spelt] = -math.log(4) + float(torch.tensor(parts).double().logsumexp(0))
        for second in words(2):
            both = filling | {len(first) + 1 + place: letter for place, letter in enumerate(second)}
            text = spelt + " " + "".join("ab"[letter] for letter in second)
            together[text] = -math.log(4) + log_mixture({len(first): 2}, both)
    assert {one.word: one.log_prob.value for one in found.gaps[0]} == pytest.approx(alone, abs=1e-6)
    assert {one.text: one.log_prob.value for one in found.fillings} == pytest.approx(together, abs=1e-9)


def test_with_a_fixed_number_the_strings_of_letters_and_blanks_add_up_to_one():
    found = infill(MODEL, "a ___:2 b", candidates=100, tokeniser=LETTERS)
    given = {0: 0, 1: 2, 4: 2, 5: 1}
    every = [log_mixture(given, {2: one, 3: two}) for one, two in itertools.product(range(3), repeat=2)]
    assert sum(map(math.exp, every)) == pytest.approx(1)
    assert {len(one.pieces) for one in found.gaps[0]} == {2}
    assert sum(math.exp(one.log_prob.value) for one in found.gaps[0]) == pytest.approx(
        sum(math.exp(log_mixture(given, {2: one, 3: two})) for one, two in itertools.product(range(2), repeat=2))
    )


def test_a_prior_over_the_number_of_pieces_is_added():
    uniform = infill(MODEL, "a ___ b", candidates=100, pieces=2, tokeniser=LETTERS)
    other = infill(MODEL, "a ___ b", candidates=100, pieces=2, prior=[0.9, 0.1], tokeniser=LETTERS)
    was = {one.word: one.log_prob.value for one in uniform.gaps[0]}
    for one in other.gaps[0]:
        share = 0.9 if len(one.pieces) == 1 else 0.1
        assert one.log_prob.value - was[one.word] == pytest.approx(math.log(share / 0.5))


def test_intervals_are_over_orders_where_these_are_many():
    """24 orders of 4 pieces: of 20 drawn, the interval holds the truth; the seed decides."""
    truth = infill(MODEL, "a ___:4 b", candidates=3, orders=24, tokeniser=LETTERS)
    some = infill(MODEL, "a ___:4 b", candidates=16, orders=20, tokeniser=LETTERS, seed=1)
    known = {one.word: one.log_prob.value for one in truth.gaps[0]}
    assert not some.gaps[0][0].log_prob.is_exact
    near = [one.log_prob for one in some.gaps[0] if one.word in known]
    assert len(near) == 3
    assert all(one.low < one.value < one.high for one in near)
    again = infill(MODEL, "a ___:4 b", candidates=16, orders=20, tokeniser=LETTERS, seed=1)
    assert again.as_dict() == some.as_dict()


def test_special_tokens_stand_at_the_end_where_the_model_has_them():
    torch.manual_seed(0)
    model = assemble(Space(7, 20), "xlnet", {"layers": 1, "hidden": 8, "heads": 2}).double()
    seen: list[Any] = []

    def watched(rows: int, context: Context | None = None) -> Any:
        seen.append(context)
        return model.start(rows, context)

    watching: Any = copy.copy(model)
    watching.start = watched
    infill(watching, "a ___:1 b", tokeniser=LETTERS, candidates=2)
    assert seen[0].given.tokens.tolist() == [[0, 2, 2, 1, 3, 4]]
    assert seen[0].order.tolist() == [[0, 1, 3, 4, 5, 6, 2]]


def test_mistakes_are_one_sentence_each():
    for text, options, said in (
        ("a b", {}, "There is no gap"),
        ("a ___ " + "b" * 20, {}, "takes 24 tokens, and the model reads 9"),
        ("a ___ b", {"candidates": 0}, "At least one candidate"),
        ("a ___ b", {"prior": [1.0]}, "3 probabilities that add up to 1"),
        ("___ ___ ___ ___ ___", {"pieces": 4}, "too many ways"),
    ):
        with pytest.raises(UserError, match=said):
            infill(MODEL, text, tokeniser=LETTERS, **options)
    with pytest.raises(UserError, match="give its tokeniser"):
        infill(MODEL, "a ___ b")
    table = Tabular.random(Space(2, 2), generator=torch.Generator())
    with pytest.raises(UserError, match="left to right only"):
        infill(table, "a ___ b", tokeniser=LETTERS)


def test_the_command_prints_candidates_and_refuses_other_runs(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("It was a dark and stormy night.\n" * 30)
    small = ["--backbone.layers", "1", "--backbone.hidden", "8", "--backbone.heads", "2", "--training.epochs", "1"]
    data = ["--data.train", str(tmp_path / "book.txt"), "--runs", str(tmp_path), "--json"]
    short = ["--data.length", "40", "--data.reuse", "16", "--training.batch_size", "4"]
    assert main(["pretrain", "--name", "novels", *data, *short, *small]) == 0
    assert (
        main(["train", "--name", "plain", "--data.kind", "text", "--backbone.kind", "transformer", *data, *small]) == 0
    )
    capsys.readouterr()
    text = "It was a ___ and ___:2 night."
    assert main(["infill", str(tmp_path / "novels"), text, "--candidates", "2", "--pieces", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == text
    assert [len(gap) for gap in found["gaps"]] == [2, 2]
    assert {"value", "low", "high"} <= set(found["fillings"][0]["log_prob"])
    assert main(["infill", str(tmp_path / "novels"), text, "--pieces", "2"]) == 0
    shown = capsys.readouterr().out
    assert "gap 1" in shown
    assert "all gaps" in shown
    assert main(["infill", str(tmp_path / "plain"), text]) == 2
    assert "left to right only" in capsys.readouterr().err
    assert main(["infill", str(tmp_path / "novels"), "It was a night."]) == 2
    assert "There is no gap" in capsys.readouterr().err
