"""JSON of a schema: whether every text is valid, how many draws are cut off, and how far masking alone is from p.

A cell of a language model draws as `ebar control grammar` does. A cell of a random model whose texts are all known
compares weighted draws, and masking, with p itself.
"""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.journeys.texts import Grammatical, grammar
from ebar.maths.enumeration import all_sequences
from ebar.maths.proportions import wilson
from ebar.models.construction import from_pretrained
from ebar.models.tabular import Tabular
from ebar.recipes.control.tables import write_toy
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe, Result, Row
from ebar.recipes.residual.configurations import path_of
from ebar.store.writing import plain
from ebar.types import Estimate, Sequences, Space

VALID, CUT, CANONICAL = "share of texts that are valid", "share of draws cut off", "share of p in canonical tokens"
LOG_Z, KL, WORTH = "log Z", "KL(p‖masking), nats", "effective samples per draw"
OF_CHECK = {
    LOG_Z: "log_z", CUT: "share cut off", KL: "KL(p‖masking), nats", CANONICAL: CANONICAL, WORTH: WORTH,
}  # fmt: skip
KNOWN = "every text known"
DISTANCE, ERROR, SHOWN = "total variation from p", "log Z, estimated − exact", "valid"
FURTHER = "total variation from p, masking − draws with weights"
WEIGHTED, IDEAL, MASKING = "draws with weights", "as many draws of p", "masking, exactly"

PERSON: dict[str, Any] = {
    "type": "object", "additionalProperties": False, "required": ["name", "age"],
    "properties": {
        "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}
    },
}  # fmt: skip
COLOURS: dict[str, Any] = {
    "type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3
}  # fmt: skip
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 11}, "minItems": 1, "maxItems": 3}
PEOPLE = 'People as JSON, one on each line:\n{"name": "Bob", "age": 41}\n{"name": "Maria", "age": 7}\n'
SPELLINGS = ["[", "]", "1", "0", ", ", "7]"]


def _case(case: str, schema: dict[str, Any], length: int, prompt: str = PEOPLE) -> dict[str, Any]:
    return {"case": case, "schema": schema, "length": length, "prompt": prompt}


CASES = {
    "demo": [_case("a number", {"type": "integer", "minimum": 0, "maximum": 30}, 4, "")],
    "cpu": [
        _case("name and age, 28 tokens", PERSON, 28), _case("name and age, 15 tokens", PERSON, 15),
        _case("colours", COLOURS, 20, 'The flag of Japan is as JSON ["red"].\nThe flag of Italy is as JSON '),
    ],
}  # fmt: skip
CASES["paper"] = CASES["cpu"]
DRAWS = {"demo": 60, "cpu": 400, "paper": 10_000}
MODELS = {"demo": "toy", "cpu": "smollm2", "paper": "HuggingFaceTB/SmolLM2-135M-Instruct"}
SEEDS = {"demo": 2, "cpu": 5, "paper": 20}
KNOWN_DRAWS = {"demo": 2000, "cpu": 100_000, "paper": 1_000_000}


def grid(scale: str) -> list[Cell]:
    """A cell for each schema and language model; and random models, each of a seed of its own."""
    settings = {"model": MODELS[scale], "draws": DRAWS[scale], "shown": 4}
    known = {"case": KNOWN, "schema": NUMBERS, "length": 6, "draws": KNOWN_DRAWS[scale]}
    return [*Grid(common=settings, axes={"case": CASES[scale]})(scale), *Grid(common=known, seeds=SEEDS[scale])(scale)]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All figures, as plain JSON."""
    found = against_enumeration(cell) if cell["case"] == KNOWN else of_language_model(cell, folder)
    return dict(plain(found))


def of_language_model(cell: Cell, folder: Path) -> dict[str, Any]:
    """What the draws tell, and whether what is returned is valid by another reader of schemas."""
    where = str(write_toy(folder / "toy")) if cell["model"] == "toy" else path_of(cell["model"])
    model = from_pretrained(where, length=cell["length"], ends=True)
    ruled = grammar(model, cell["schema"], prompt=cell["prompt"])
    generator = Generator().manual_seed(cell["seed"])
    drawn = ruled.draw(cell["draws"], generator=generator)
    checked = ruled.check(drawn)
    whole = ruled.text(drawn.x.select(drawn.log_weights > -torch.inf))
    valid, count = float(sum(is_valid(text, cell["schema"]) for text in whole)), float(len(whole))
    return {
        **{name: checked[key] for name, key in OF_CHECK.items()},
        VALID: Estimate(valid / count, *wilson(valid, count), count),
        "texts": {
            text: is_valid(text, cell["schema"]) for text in ruled.texts(drawn, cell["shown"], generator=generator)
        },
    }


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    """Whether a text is JSON of the schema, as the package jsonschema reads it."""
    try:
        jsonschema = import_module("jsonschema")
    except ImportError:
        raise UserError("This recipe checks texts with jsonschema: pip install jsonschema.") from None
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def against_enumeration(cell: Cell) -> dict[str, Any]:
    """Total variation from p: of weighted draws, of as many draws of p itself, and of masking, which needs none."""
    ruled = grammar(random_model(SPELLINGS, cell["length"], cell["seed"]), cell["schema"])
    x = all_sequences(ruled.p.base.space)
    with torch.no_grad():
        log_p, log_masking = ruled.p.log_score(x).double(), ruled.proposal.log_prob(x).double()
    log_z, allowed = log_p.logsumexp(0), log_p > -torch.inf
    p = (log_p - log_z).exp()
    generator = Generator().manual_seed(1000 + cell["seed"])
    drawn, seen = shares_of(ruled, x, cell["draws"], generator)
    ideal = torch.multinomial(p, cell["draws"], replacement=True, generator=generator)
    masking = torch.where(allowed, log_masking.exp(), 0.0)
    shares = {
        WEIGHTED: seen, IDEAL: torch.bincount(ideal, minlength=len(p)).double(), MASKING: masking,
    }  # fmt: skip
    return {
        "distance": {name: float(0.5 * (own / own.sum() - p).abs().sum()) for name, own in shares.items()},
        ERROR: float(drawn - log_z),
    }


def random_model(spellings: Sequence[str], length: int, seed: int) -> Tabular:
    """Any next token may follow any prefix, with random probabilities; the last token of all is the end."""
    end = len(spellings)
    model = Tabular.random(Space(end + 1, length, end), generator=Generator().manual_seed(seed))
    pieces = [*(piece.encode() for piece in spellings), None]
    vars(model)["reading"] = Reading(end=end, longest=length, spellings=pieces)
    return model


def shares_of(ruled: Grammatical, x: Sequences, draws: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """log of the mean weight of draws, and the weight that each of all sequences has got."""
    drawn = ruled.draw(draws, generator=generator)
    number = {tuple(row): place for place, row in enumerate(x.rows())}
    at = torch.tensor([number[tuple(row)] for row in drawn.x.rows()])
    weights = drawn.log_weights.double().exp()
    return weights.mean().log(), torch.zeros(len(number), dtype=torch.float64).index_add(0, at, weights)


def texts(results: Sequence[Result]) -> list[Row]:
    """Some, chosen by their weights."""
    return [
        Row(name=SHOWN, settings={"case": cell["case"], "text": text}, value=float(valid))
        for cell, result in results
        for text, valid in result.get("texts", {}).items()
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What is compared with what."""
    return [
        "P is the model given that the whole text obeys the schema as llguidance reads it, and ends within its tokens; "
        "every draw that was not cut off was read by the package jsonschema.",
        "Where every text is known, the model is random, another one for each seed. Masking's distance is that of the "
        "texts it returns, those cut off left out, and does not fall with more draws; the other two are what chance "
        "leaves of so many draws.",
    ]


def kind(known: bool) -> Callable[[Cell, dict[str, Any]], list[Result]]:
    """Cells of random models, or of language models."""
    return lambda cell, result: [(cell, result)] if (cell["case"] == KNOWN) is known else []


RECIPE = Recipe(
    title="JSON of a schema from SmolLM2-135M, and against enumeration",
    source="ebar's own; grammars as llguidance reads them",
    grid=grid,
    run=run_cell,
    figures=[
        Figures(
            *(Figure(name=name, at=name) for name in (LOG_Z, KL)),
            *(Figure(name=name, at=name, range=(0.0, 1.0)) for name in (VALID, CUT, CANONICAL)),
            Figure(name=WORTH, at=WORTH, bare=True),
            by=["case"], parts=kind(known=False),
        ),
        Figures(
            Figure(name=DISTANCE, at="distance.{of}", each={"of": [WEIGHTED, IDEAL, MASKING]}, range=(0.0, 1.0)),
            Figure(name=FURTHER, at=lambda run: run["distance"][MASKING] - run["distance"][WEIGHTED]),
            Figure(name=ERROR, at=ERROR),
            by=["case"], parts=kind(known=True),
        ),
        texts,
    ],
    tables=[
        Layout(rows=["case"], figures=[VALID, CUT, LOG_Z]),
        Layout(rows=["case"], figures=[KL, WORTH, CANONICAL]),
        Layout(rows=["case"], columns=["of"], figures=[DISTANCE], caption=DISTANCE),
        Layout(rows=["case"], figures=[FURTHER, ERROR]),
        Layout(rows=["case", "text"], figures=[SHOWN], caption="Texts, chosen by their weights"),
    ],
    plots=[
        Points(of=[DISTANCE], label="{of}", title=f"{KNOWN}: {DISTANCE}", x_label=DISTANCE),
        Points(of=[VALID, CUT], label="{case}: {figure}", title="share", x_label="share"),
    ],
    claims=Claim(says="weights undo what masking bends", figure=FURTHER, above=0.0),
    notes=notes,
    reading=Caption(items="{draws:,} draws, one language model"),
)  # fmt: skip
