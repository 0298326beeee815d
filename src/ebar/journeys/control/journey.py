"""Control of a language model: constraints on its text, draws that satisfy them, a model that has learnt them.

P(x) = q(x)·exp⟨λ, φ(x)⟩ is the nearest distribution to q with the wanted means of φ: a GAM whose base is a pretrained
model (GDC, Khalifa et al. 2021, arXiv:2012.11635).
"""

from pathlib import Path

from ebar.data.corpus import Corpus
from ebar.journeys.control.constraints import Constraints, Wanted, pairs_of
from ebar.journeys.control.continuing import of_length, reading_for
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.train import seed_of
from ebar.types import Stepwise


def control(
    model: Stepwise,
    constraints: Wanted,
    *,
    data: Corpus | None = None,
    prompt: str = "",
    reads_prompt: bool = False,
    length: int | None = None,
    draws: int = 10_000,
    checks: int = 4000,
    surrogate_draws: int = 4000,
    rounds: int = 0,
    round_draws: int = 1000,
    rows: int = 1024,
    seed: int | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
    at_once: bool = True,
) -> Controlled:
    """λ with which each feature has its moment over all text; 1 means in every single text, 0 in none.

    A model that is pretrained or was made for data knows what its tokens spell; for another, give its corpus as `data`.
    Draws continue the `prompt`, and features read it too if `reads_prompt`; they have `length` tokens in place of the
    model's own. λ is found on `draws`, `rows` of them at a time, what looks ahead is fitted to `surrogate_draws` and
    learns from the model's hidden states in `rounds` of `round_draws`, and `check` uses `checks`. In a folder, what was
    found is read back; without a seed, one is drawn from torch's state. λ is found `at_once`, or when it is first asked
    for: mistakes in features are errors before.
    """
    reading = reading_for(model, data)
    model = of_length(model, length or model.space.length)
    reading = reading.going_on_from(prompt, model.space.length, reads_prompt=reads_prompt)
    place = None if folder is None else Path(folder)
    seed = seed_of(place) if seed is None else seed
    asked = {
        "prompt": prompt, "reads_prompt": reads_prompt, "draws": draws, "checks": checks,
        "surrogate_draws": surrogate_draws, "rounds": rounds, "round_draws": round_draws, "rows": rows, "seed": seed,
    }  # fmt: skip
    pairs = pairs_of(constraints)
    made = Controlled(
        model=model, constraints=Constraints.of(pairs, reading), reading=reading, prompt=prompt, draws=draws,
        checks=checks, surrogate_draws=surrogate_draws, rounds=rounds, round_draws=round_draws, rows=rows, seed=seed,
        folder=place,
        description=description or {"model": model, "constraints": pairs, **asked},
    )  # fmt: skip
    if at_once:
        made.fitted  # noqa: B018 — found now
    return made
