"""What Deng et al. 2020 leave open: other samplers of the joint model, and a base that is updated too."""

from collections.abc import Iterator, Sequence
from typing import Any

from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result, Row
from ebar.recipes.residual.reading import BY_TASK, MODEL, PAPER, RUNS, cell_of, less, over_both, with_part
from ebar.recipes.residual.students import DATA, GRADIENT, JOINT, OWN
from ebar.recipes.rows import chosen

# Students ---------------------------------------------------------------------------------------------------------

GAIN, PAIRED = "nats per token − the base LM's", "nats per token, {one} − {other}"
FIRST, AGAIN = "joint model", "joint model of the student and a new energy"
STUDENTS = {way: f"student by {way}" for way in (DATA, OWN, JOINT, GRADIENT)}
COMPARED = ((STUDENTS[JOINT], STUDENTS[OWN]), (STUDENTS[GRADIENT], STUDENTS[OWN]), (STUDENTS[JOINT], STUDENTS[DATA]),
            (AGAIN, FIRST))  # fmt: skip


def _gains(result: Result, about: Cell, run: dict[str, Any]) -> Iterator[Row]:
    """Over the seeds of the students and the prefixes that they share."""
    tokens, settings = result[1]["rivals"]["base"]["tokens"], {key: about[key] for key in MODEL}
    over = {"seeds": "students", "one": "one training"}
    gains = {FIRST: [run["gains"]], **{STUDENTS[way]: own for way, own in run["distilled"]["gains"].items()}}
    if run["distilled"]["again"] is not None:
        gains[AGAIN] = [run["distilled"]["again"]]
    for name, own in gains.items():
        yield over_both(GAIN, {**settings, "of": name}, own, tokens, **over)
    for one, other in COMPARED:
        if one in gains and other in gains:
            several = [less(*pair) for pair in zip(gains[one], gains[other], strict=True)]
            yield over_both(PAIRED.format(one=one, other=other), settings, several, tokens, **over)


def _why(rows: Sequence[Row]) -> list[str]:
    """Whether the data themselves, in place of the joint model's draws, would have taught the base anything."""
    taught = chosen(rows, GAIN, {"of": STUDENTS[DATA]})
    gained = [row for row in taught if (row.high or 0.0) < 0]
    joint = chosen(rows, GAIN, {"of": STUDENTS[JOINT]})
    better = [row for row in joint if (row.high or 0.0) < 0]
    said = [
        f"A student of the joint model is below the base it was copied from in {len(better)} of {len(joint)} cases. "
        f"Trained as long on the data themselves, which no teacher surpasses, the same copy is below it in "
        f"{len(gained)} of {len(taught)}."
    ]
    if len(better) == len(joint):
        return said
    why = "Why the student does not gain is not known: the data teach the base in some cases and not in others."
    if not gained:
        why = (
            "Why the student does not gain: the base. It is what maximum likelihood finds in a network of its size, "
            "and so many texts move it nowhere, be they the data themselves."
        )
    elif len(gained) == len(taught):
        why = "Why the student does not gain: the draws. As many texts of the data do move the base down."
    return [*said, why]


DISTILLED = Recipe(
    title="The base updated by the joint model",
    source=f"{PAPER}, “Limitations” (the generator is fixed during training: “Use RL to update P_φ as well?”)",
    figures=lambda results: [
        row for result in results for run in with_part("distilled")(*result) for row in _gains(result, *run)
    ],
    tables=[
        Layout(rows=MODEL, columns=("of",), figures=[GAIN], caption=GAIN),
        Layout(rows=MODEL, figures=["nats per token, *"], caption="Paired over prefixes"),
    ],
    plots=Points(of=[GAIN], label="{model}: {of}", x_label="nats per token − base", **BY_TASK),
    claims=[
        Claim(says="draws of the joint model teach a copy of the base more than the base's own do",
              figure=PAIRED.format(one=STUDENTS[JOINT], other=STUDENTS[OWN]), below=0.0),
        Claim(says="an updated base with a new energy is below the first joint model",
              figure=PAIRED.format(one=AGAIN, other=FIRST), below=0.0),
    ],
    notes=_why,
    **RUNS,
)  # fmt: skip

# Samplers ---------------------------------------------------------------------------------------------------------

ENERGY, READ = "energy of a draw − its mean under the joint model", "texts that the energy has read, for each draw"


def _ways(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every sampler at every budget as a run of its own, and the base's draws as they are."""
    found: list[Result] = []
    for about, run in with_part("samplers")(cell, result):
        own = run["samplers"]
        found.append(({**about, "sampler": "base LM", "budget": 0}, {"gap": own["base"], "texts": 0}))
        found += [
            ({**about, "sampler": name, "budget": int(budget)}, one)
            for budget, ways in own["budgets"].items()
            for name, one in ways.items()
        ]
    return found


def _nearest(rows: Sequence[Row]) -> list[str]:
    """Which sampler comes nearest at each budget, and whether that is known."""
    said = []
    for budget in dict.fromkeys(row.settings["budget"] for row in chosen(rows, ENERGY, {}) if row.settings["budget"]):
        own = sorted(chosen(rows, ENERGY, {"budget": budget}), key=lambda row: abs(row.value or 0.0))
        exact = [str(row.settings["sampler"]) for row in own if (row.low or 0.0) <= 0 <= (row.high or 0.0)]
        said.append(
            f"{budget} texts: nearest to the joint model is {own[0].settings['sampler']} ({own[0].value or 0.0:+.3f}); "
            f"not told from it: {', '.join(exact) or 'none'}."
        )
    return said


SAMPLERS = Recipe(
    title="Resampling, Metropolis and SMC for the joint model, at equal cost",
    source=f"{PAPER}, “Limitations” (“Other sampling techniques (such as MH)?”)",
    figures=Figures(
        Figure(name=ENERGY, at="gap"),
        Figure(name=READ, at="texts", bare=True),
        by=(*MODEL, "budget", "sampler"), parts=_ways,
    ),
    tables=Layout(rows=(*MODEL, "budget", "sampler"), figures=[ENERGY, READ]),
    plots=Points(
        of=[ENERGY], label="{budget}: {sampler}", x_label="energy − its mean under the joint model", **BY_TASK
    ),
    notes=lambda rows: [
        *_nearest(rows),
        "Cost is counted in texts that the energy reads: the whole of a candidate, of a proposal, or of a particle at "
        "each of its places (shorter texts count as whole ones). The mean under the joint model is that of all draws "
        "for log Z together; 0 would be an exact sampler. SMC's guess at the end of a text is the energy of its "
        "beginning, of which the energy was never trained.",
    ],
    reading=Caption(
        items=lambda row, cells: f"{cell_of(row, cells)['samplers']['prefixes']} prefixes, one draw or choice of each "
        "sampler for each"
    ),
    **RUNS,
)  # fmt: skip
