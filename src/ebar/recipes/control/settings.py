"""What each recipe of control asks for, at each scale."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ebar.recipes.recipe import Cell

Cases = Mapping[str, tuple[str, ...]]  # name → terms
PAPER_LENGTH, PAPER_DRAWS = 40, 10_240


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One recipe at one scale: options of `ebar control fit` and `ebar control tune`."""

    model: str
    cases: Cases
    seeds: tuple[int, ...] = (0,)
    control: dict[str, Any] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)


# Khalifa et al. 2021, appendix and code: Adam 1.41e-5 unchanged, 2,048 draws a step, 40 tokens, λ from 10,240 draws,
# q replaced by a better π every 10 steps, all weights, no clipping. Our π has no dropout.
PAPER: dict[str, Any] = {
    "steps": 1500,
    "draws": 2048,
    "learning_rate": 1.41e-5,
    "schedule": "constant",
    "warmup": 0,
    "clip": None,
    "lora_rank": None,
    "proposal": "model",
    "replace": True,
    "accumulate": 64,
    "evaluate_every": 50,
    "evaluation_draws": 2000,
}
DEMO: dict[str, Any] = {
    "steps": 6,
    "draws": 32,
    "learning_rate": 1e-2,
    "warmup": 1,
    "lora_rank": 2,
    "evaluate_every": 3,
    "evaluation_draws": 60,
}
TOY_CASES: Cases = {"pointwise": ("expression:ab=1",), "half": ("expression:c=0.5",)}
TOY: dict[str, Any] = {"length": 8, "draws": 200, "checks": 200, "surrogate_draws": 100, "rows": 200}

STORIES = {
    "demo": Setting(model="toy", cases=TOY_CASES, control=TOY, tuning=DEMO),
    "cpu": Setting(
        model="stories260k",
        cases={"pointwise": ("word:rabbit|bunny=1",), "half": ("word:mom|mommy=0.5",)},
        control={"length": 40, "draws": 6000, "checks": 3000, "surrogate_draws": 4000, "rows": 512},
        tuning={
            "steps": 160, "draws": 192, "learning_rate": 7e-4, "lora_rank": 8, "replace": True, "evaluate_every": 40,
            "evaluation_draws": 1000, "checkpoint_every": 20,
        },
    ),
    "paper": Setting(
        model="gpt2",
        cases={"pointwise": ("word:amazing=1",), "half": ("word:[Ss]he|[Hh]er=0.5",)},
        seeds=(0, 1, 2),
        control={"length": PAPER_LENGTH, "draws": PAPER_DRAWS, "checks": PAPER_DRAWS, "rows": 256},
        tuning=PAPER,
    ),
}  # fmt: skip
SMOLLM2 = {
    "demo": Setting(model="toy", cases={"pointwise": TOY_CASES["pointwise"]}, control=TOY, tuning=DEMO),
    "cpu": Setting(
        model="smollm2",
        cases={"pointwise": ("word:castle|dragon=1",)},
        control={
            "prompt": "Once upon a time, there was a", "length": 20, "draws": 200, "checks": 300,
            "surrogate_draws": 400, "rows": 64,
        },
        tuning={
            "steps": 24, "draws": 24, "learning_rate": 1e-3, "lora_rank": 8, "warmup": 2, "evaluate_every": 8,
            "evaluation_draws": 300, "checkpoint_every": 4,
        },
    ),
    "paper": Setting(
        model="HuggingFaceTB/SmolLM2-135M",
        cases={"pointwise": ("word:castle|dragon=1",)},
        seeds=(0, 1, 2),
        control={
            "prompt": "Once upon a time, there was a", "length": PAPER_LENGTH, "draws": PAPER_DRAWS,
            "checks": PAPER_DRAWS, "rows": 256,
        },
        tuning=PAPER,
    ),
}  # fmt: skip
SETTINGS = {"stories": STORIES, "smollm2": SMOLLM2}


def cells(recipe: str, scale: str) -> list[Cell]:
    """One run per case and seed."""
    setting = SETTINGS[recipe][scale]
    return [
        {"recipe": recipe, "scale": scale, "model": setting.model, "case": case, "terms": list(terms), "seed": seed,
         "control": setting.control, "tuning": setting.tuning}
        for case, terms in setting.cases.items()
        for seed in setting.seeds
    ]  # fmt: skip
