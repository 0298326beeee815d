"""A word that must occur, and one that half of all texts are to have: moments, look-ahead, KL over tuning.

A cell is a configuration of `ebar control fit`, and one of `ebar control tune`.

A random language model of seventy letters, for the smallest scale.
"""

import shutil
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ebar.build.control import fit_control
from ebar.config.control import ControlConfig
from ebar.hugging_face import quiet, transformers
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.report import MODEL, TARGET
from ebar.journeys.control.tuning import Tuning
from ebar.recipes.pieces import Caption, Cell, Curves, Figure, Figures, Grid, Layout, Points, Recipe, Result, Row
from ebar.recipes.residual.configurations import path_of
from ebar.recipes.rows import chosen
from ebar.store.writing import TEMPORARY, plain

LETTERS = "Ġ" + string.ascii_letters + string.digits + ".,!?'-"  # Ġ is a blank
END = "<end>"


def write_toy(folder: Path) -> Path:
    """A folder as transformers saves it, written once."""
    if folder.exists():
        return folder
    import tokenizers

    library = transformers()
    pieces = [*LETTERS, "ab", END]
    configuration = library.GPT2Config(
        vocab_size=len(pieces), n_positions=32, n_embd=16, n_layer=1, n_head=2, initializer_range=0.2,
        bos_token_id=len(pieces) - 1, eos_token_id=len(pieces) - 1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={piece: token for token, piece in enumerate(pieces)}, merges=[("a", "b")])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=END, eos_token=END)
    temporary = folder.with_name(TEMPORARY + folder.name)
    shutil.rmtree(temporary, ignore_errors=True)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        library.GPT2LMHeadModel(configuration).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    temporary.rename(folder)
    return folder


MOMENT, LAMBDA, GAIN = "moment", "λ", "effective samples per draw"
STEERED, AFTER, POLICY = "looking ahead, unweighted", "p", "best π"
DISTANCE = "KL(p‖q)"

# Khalifa et al. 2021, appendix and code: Adam 1.41e-5 unchanged, 2,048 draws a step, 40 tokens, λ from 10,240 draws,
# q replaced by a better π every 10 steps, all weights, no clipping. Our π has no dropout.
PAPER: dict[str, Any] = {
    "steps": 1500, "draws": 2048, "learning_rate": 1.41e-5, "schedule": "constant", "warmup": 0, "clip": None,
    "lora_rank": None, "proposal": "model", "replace": True, "accumulate": 64, "evaluate_every": 50,
    "evaluation_draws": 2000,
}  # fmt: skip
PAPER_CONTROL: dict[str, Any] = {"length": 40, "draws": 10_240, "checks": 10_240, "rows": 256}
PROMPT = {"prompt": "Once upon a time, there was a"}
TOY: dict[str, Any] = {
    "model": "toy",
    "control": {"length": 8, "draws": 200, "checks": 200, "surrogate_draws": 100, "rows": 200},
    "tuning": {
        "steps": 6, "draws": 32, "learning_rate": 1e-2, "warmup": 1, "lora_rank": 2, "evaluate_every": 3,
        "evaluation_draws": 60,
    },
}  # fmt: skip


def _grid(recipe: str, cpu: dict[str, Any], paper: dict[str, Any], **cases: tuple[str, str, str]) -> Grid:
    """Each case has a term at each scale; at the smallest, the model is a toy."""
    scales = {"demo": TOY, "cpu": cpu, "paper": {**paper, "tuning": PAPER}}
    return Grid(
        common={"recipe": recipe},
        scales={scale: {"scale": scale, **settings} for scale, settings in scales.items()},
        axes={
            "case": {
                scale: [{"case": case, "terms": [terms[place]]} for case, terms in cases.items()]
                for place, scale in enumerate(scales)
            }
        },
        seeds={"demo": 1, "cpu": 1, "paper": 3},
    )


STORIES_GRID = _grid(
    "stories",
    {
        "model": "stories260k",
        "control": {"length": 40, "draws": 6000, "checks": 3000, "surrogate_draws": 4000, "rows": 512},
        "tuning": {
            "steps": 160, "draws": 192, "learning_rate": 7e-4, "lora_rank": 8, "replace": True, "evaluate_every": 40,
            "evaluation_draws": 1000, "checkpoint_every": 20,
        },
    },
    {"model": "gpt2", "control": PAPER_CONTROL},
    pointwise=("expression:ab=1", "word:rabbit|bunny=1", "word:amazing=1"),
    half=("expression:c=0.5", "word:mom|mommy=0.5", "word:[Ss]he|[Hh]er=0.5"),
)  # fmt: skip
SMOLLM2_GRID = _grid(
    "smollm2",
    {
        "model": "smollm2",
        "control": {**PROMPT, "length": 20, "draws": 200, "checks": 300, "surrogate_draws": 400, "rows": 64},
        "tuning": {
            "steps": 24, "draws": 24, "learning_rate": 1e-3, "lora_rank": 8, "warmup": 2, "evaluate_every": 8,
            "evaluation_draws": 300, "checkpoint_every": 4,
        },
    },
    {"model": "HuggingFaceTB/SmolLM2-135M", "control": {**PROMPT, **PAPER_CONTROL}},
    pointwise=("expression:ab=1", "word:castle|dragon=1", "word:castle|dragon=1"),
)  # fmt: skip


def fitted(cell: Cell, folder: Path) -> Controlled:
    """What `ebar control fit` makes of the cell."""
    model = str(write_toy(folder / "toy")) if cell["model"] == "toy" else path_of(cell["model"])
    control = ControlConfig(model=model, features=tuple(cell["terms"]), seed=cell["seed"], **cell["control"])
    return fit_control(control, folder / "run")


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All figures, as plain JSON; each stage goes on where it was killed."""
    controlled = fitted(cell, folder)
    # All steps, and what is not said stays as it was when the recipes were recorded.
    earlier = {"method": "policy_gradient", "tolerance": None, "replace": False}
    tuning = Tuning(seed=cell["seed"], **{**earlier, **cell["tuning"]})
    tuned = controlled.tune(**vars(tuning)).to_dict()
    (constraint,) = controlled.constraints
    found = {
        "feature": constraint.feature.name,
        "wanted": constraint.moment,
        "λ": None if constraint.pointwise else plain(controlled.fitted.intervals[0]),
        "checked": plain(controlled.check()),
        "tuned": {name: figure for name, figure in tuned.items() if name not in ("model", "seconds")},
    }
    return dict(plain(found))


def about(runs: Sequence[Result]) -> dict[str, Any]:
    """The feature, and the moment that was asked for."""
    return {name: runs[0][1][name] for name in ("feature", "wanted")}


def _moment(run: Mapping[str, Any], of: str) -> Any:
    if of == "end":
        return run["tuned"]["end"][f"mean of {run['feature']}"]
    moments = run["checked"][of]
    if of == "steered" and moments is not None:
        # That every draw has what every draw must have is no cause for a warning.
        return {**moments[run["feature"]], "warning": None}
    return None if moments is None else moments[run["feature"]]


PER_DRAW = "checked.effective_samples_per_draw"
FIGURES = Figures(
    Figure(
        name=MOMENT, at=_moment, about=about,
        each={"of": {"q": "before", STEERED: "steered", AFTER: "after", POLICY: "end"}},
    ),
    Figure(name=LAMBDA, at="λ", about=about),
    Figure(name=GAIN, at=f"{PER_DRAW}.{{of}}", each={"of": PER_DRAW}),
    Figure(name=DISTANCE, at="checked.kl_of_p_from_model"),
    Figure(
        name="{figure}", at=lambda run, figure, step: run["tuned"]["curves"][figure][step],
        each={
            "figure": "tuned.curves",
            "step": lambda run: {step: place for place, step in enumerate(run["tuned"]["steps"])},
        },
    ),
    by=["case"],
)  # fmt: skip


def _curves(title: str, **of: str) -> Curves:
    return Curves(of={name: f"{{case}}{label}" for name, label in of.items()}, x="step", title=title, by=["case"])


def notes(rows: Sequence[Row]) -> list[str]:
    """Whether p has the moments that were asked for, and how the two divergences are to be read."""
    said = []
    for row in chosen(rows, MOMENT, {"of": AFTER}):
        if row.low is not None and row.high is not None:
            wanted = float(row.settings["wanted"])
            inside = "holds it" if row.low <= wanted <= row.high else "**does not hold it**"
            said.append(
                f"{row.settings['case']}: {wanted} was asked for, and the interval of p's moment {inside}: "
                f"{row.low:.3f} to {row.high:.3f}."
            )
    last = f"π begins as q, so {MODEL} begins at 0; where π nears p, it nears {DISTANCE}. What is to fall is {TARGET}."
    return [*said, last]


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    cell = next(cell for cell in cells if cell["case"] == row.settings["case"])
    if row.name == LAMBDA:
        count = cell["control"]["draws"]
    elif "step" in row.settings or row.settings.get("of") == POLICY:
        count = cell["tuning"]["evaluation_draws"]
    else:
        count = cell["control"]["checks"]
    return f"{count:,} draws, one seed of λ, look-ahead and π"


READ: dict[str, Any] = {
    "source": "ebar's own, after Khalifa et al. 2021 (arXiv:2012.11635)",
    "run": run_cell,
    "figures": [FIGURES],
    "tables": [
        Layout(rows=["case", "feature", "wanted"], columns=["of"], figures=[MOMENT], caption="Share of texts"),
        Layout(rows=["case"], columns=["of"], figures=[GAIN], caption=GAIN),
        Layout(rows=["case"], figures=[LAMBDA, DISTANCE]),
        Layout(rows=["case", "step"], figures=[TARGET, MODEL, "mean of *", "distinct-*"], caption="Over tuning"),
    ],
    "plots": [
        Points(of=[MOMENT], label="{case}: {of}", title=MOMENT, x_label="share of texts"),
        Points(of=[GAIN], label="{case}: {of}", title=GAIN, x_label=GAIN),
        _curves(f"{TARGET}, nats per text", **{TARGET: ""}),
        _curves(f"{MODEL}, nats per text", **{MODEL: ""}),
        _curves("moments of π", **{"mean of *": ""}),
        _curves("distinct n-grams of π", **{"distinct-1": ", n = 1", "distinct-2": ", n = 2"}),
    ],
    "notes": notes,
    "reading": Caption(items=items, ranges={MOMENT: (0.0, 1.0), GAIN: (0.0, 1.0)}),
}
STORIES = Recipe(
    title="Control of a small story-teller: a pointwise and a distributional constraint", grid=STORIES_GRID, **READ
)
SMOLLM2 = Recipe(title="Control of SmolLM2-135M: a pointwise constraint", grid=SMOLLM2_GRID, **READ)
