"""The stages of a residual model: what each makes, and that none is lost when the process is killed."""

import hashlib
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.build.residual import load_residual, train_residual
from ebar.config.reader import Chosen
from ebar.config.residual import ResidualConfig
from ebar.data.chunks import ChunksData
from ebar.energies.kinds import ENERGIES
from ebar.energies.neural import Bidirectional, Causal
from ebar.errors import UserError
from ebar.journeys.residual.journey import Residual as Trained
from ebar.journeys.residual.negatives import draw_negatives
from ebar.journeys.residual.settings import Fitting, Measuring, NegativesDraws
from ebar.maths.randomness import folded
from ebar.store.differences import as_yaml
from ebar.store.stages import stage_seconds
from ebar.store.writing import to_json
from ebar.training.run import Checkpoints, open_run
from ebar.types import Context, Sequences

DATA = ChunksData(prefix=12, continuation=6, chunks=20, validation_chunks=6, test_chunks=5)
FITTING = Fitting(epochs=2, batch_size=8, learning_rate=1e-2, checkpoint_every=2)
BIT = Chosen(
    kind="bit",
    options={"layers": 1, "hidden": 8, "heads": 2, "dropout": 0.1, "warm_up": 2, "warm_up_learning_rate": 1e-2,
             "masked": 0.2, "pool": "continuation", "bound": None},
)  # fmt: skip
UNIT = Chosen(kind="unit", options={"start": "base", "lora": None, "pool": "continuation", "bound": None})


def asked(base: Path, energy: Chosen = BIT, **others: Any) -> ResidualConfig:
    return ResidualConfig(base=str(base), data=DATA, energy=energy, training=FITTING, **others)


def run(residual: ResidualConfig, folder: Path) -> Trained:
    """As the command line does it."""
    from dataclasses import asdict

    with open_run(folder, config=as_yaml(asdict(residual)), seed=residual.seed):
        return train_residual(residual, folder)


def kept(folder: Path) -> dict[str, str]:
    """Everything that is the run's result, by its digest; not when and where it was run.

    Nor the random states in checkpoints: what checks types in these tests draws Python's random numbers, too.
    """
    other = ("timing.jsonl", "header.json", "environment.json", "lock", "training.safetensors", "SHA256SUMS")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in other]
    return {str(path.relative_to(folder)): hashlib.sha256(_untimed(path)).hexdigest() for path in files}


def _untimed(path: Path) -> bytes:
    """A file as it is, but a stage's header without when it was made and how long that took."""
    text = path.read_bytes()
    return re.sub(rb'"(seconds|begun)": [^,\n]*', b"", text) if path.name == "header.json" else text


def in_a_process_of_its_own(residual: ResidualConfig, folder: Path, *, dies_at: int) -> tuple[int, list[str]]:
    """The signal that ended it, and the files it has put in place. It kills itself before the next one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        rename, done = os.rename, 0

        def telling(source: Any, target: Any, **options: Any) -> None:
            nonlocal done
            if done == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target, **options)
            os.write(writer, f"{Path(target).relative_to(folder)}\n".encode())
            done += 1

        os.rename = telling  # type: ignore[assignment]
        try:
            run(residual, folder)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        files = said.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, files


def test_killed_at_any_stage_it_goes_on_and_ends_the_same(base, tmp_path):
    residual = asked(base, negatives=NegativesDraws(refresh=True, at_once=8))
    ended, files = in_a_process_of_its_own(residual, tmp_path / "whole", dies_at=-1)
    assert ended == 0
    whole = kept(tmp_path / "whole")
    for stage in ("negatives/epoch-0/", "warm-up/checkpoints/", "energy/checkpoints/", "negatives/epoch-1/"):
        places = [place for place, name in enumerate(files) if name.startswith(stage)]
        folder = tmp_path / stage.replace("/", "-")
        ended, so_far = in_a_process_of_its_own(residual, folder, dies_at=places[len(places) // 2])
        assert ended == signal.SIGKILL
        assert so_far == files[: places[len(places) // 2]]
        run(residual, folder)
        assert kept(folder) == whole, f"killed in {stage}"


@pytest.mark.parametrize("energy", [BIT, UNIT], ids=["bit", "unit"])
def test_what_was_trained_is_what_is_loaded(base, tmp_path, energy):
    residual = asked(base, energy)
    made = run(residual, tmp_path / "run")
    read = load_residual(tmp_path / "run")
    x, context = made.chunks.test
    assert read.chunks.test.x.tokens.tolist() == x.tokens.tolist()
    with torch.no_grad():
        assert made.energy(x, context).tolist() == read.energy(x, context).tolist()
    assert any(value != 0 for value in made.energy.head.weight.flatten().tolist())
    best = Checkpoints(tmp_path / "run" / "energy" / "checkpoints").best()
    assert best is not None
    torch.testing.assert_close(dict(made.energy.state_dict()), best.weights["energy"])


def test_unit_begins_with_the_bases_weights_and_leaves_the_base_alone(base, tmp_path):
    made = run(asked(base, UNIT), tmp_path / "run")
    before = Checkpoints(base / "checkpoints").best()
    assert before is not None
    torch.testing.assert_close(dict(made.p.base.state_dict()), before.weights["model"])  # type: ignore[attr-defined]
    assert isinstance(made.energy.encoder, Causal)
    first = Checkpoints(tmp_path / "run" / "energy" / "checkpoints")
    own = made.energy.encoder.backbone.state_dict()
    assert all(name.removeprefix("backbone.") in own for name in before.weights["model"] if "backbone" in name)
    moved = [not torch.equal(value, before.weights["model"][f"backbone.{name}"]) for name, value in own.items()]
    assert any(moved)
    assert first.steps()


def test_a_warmed_up_encoder_is_the_energys(base, tmp_path):
    """Without an epoch of training the energy has the warmed-up weights, and with none of either its first ones."""
    cold = Chosen(kind="bit", options={**BIT.options, "warm_up": 0})
    slow = replace(FITTING, learning_rate=1e-30, weight_decay=0.0)
    warm = run(replace(asked(base), training=slow), tmp_path / "warm")
    fresh = run(replace(asked(base, cold), training=slow), tmp_path / "cold")
    best = Checkpoints(tmp_path / "warm" / "warm-up" / "checkpoints").best()
    assert best is not None
    assert isinstance(warm.energy.encoder, Bidirectional)
    own = dict(warm.energy.encoder.backbone.state_dict())
    wanted = {name.removeprefix("encoder."): value for name, value in best.weights["model"].items()}
    torch.testing.assert_close(own, {name: wanted[name] for name in own})
    assert not (tmp_path / "cold" / "warm-up").exists()
    assert isinstance(fresh.energy.encoder, Bidirectional)
    assert not torch.equal(warm.energy.encoder.backbone.inputs, fresh.energy.encoder.backbone.inputs)


def test_more_draws_than_are_used_at_a_time_are_kept_for_later_epochs(base, tmp_path):
    run(asked(base, UNIT, negatives=NegativesDraws(draws=2)), tmp_path / "run")
    assert (tmp_path / "run" / "negatives" / "train" / "header.json").exists()
    with pytest.raises(UserError, match=r"leave out negatives.draws"):
        run(asked(base, UNIT, negatives=NegativesDraws(draws=2, refresh=True)), tmp_path / "both")


def test_the_evaluation_is_gone_on_with_and_agrees_with_itself(base, tmp_path):
    made = run(asked(base, UNIT), tmp_path / "run")
    how = Measuring(prefixes=4, draws=30, last_rows=2, last_candidates=None)
    first = made.evaluate(how, seed=1)
    (tmp_path / "run" / "evaluation" / "4-30-1" / "energies" / "part-000000.safetensors").unlink()
    again = load_residual(tmp_path / "run").evaluate(how, seed=1)
    assert to_json(again.to_dict()) == to_json(first.to_dict())
    found = first.perplexity
    assert len(found.log_z) == 4
    # The base's perplexity is that of its own log-probabilities.
    x, context = first_rows(made)
    with torch.no_grad():
        nats = -made.base.q.log_prob(x, context).double().sum() / x.lengths.sum()
    assert found.base == pytest.approx(float(nats.exp()), rel=1e-5)
    assert found.low <= found.value <= found.high
    assert first.last is not None
    assert first.last.rest == 0.0
    assert [one.data for one in first.continued] == [made.base.spell([], x.prefix(row)) for row in range(4)]
    assert set(first.unique) == {"data", "base", "joint"}
    # What the base and the joint model say is among the draws for that prefix, the base's being the first of them.
    place, seed = tmp_path / "run" / "evaluation" / "4-30-1" / "draws", folded(1, "evaluation/draws")
    pool = draw_negatives(place, made.base.q, context, 30, seed=seed)
    for row, one in enumerate(first.continued):
        drawn = pool.fetch(torch.tensor([row]))
        texts = [made.base.spell([], drawn.prefix(number)) for number in range(30)]
        assert one.base == texts[0]
        assert one.joint in texts


def first_rows(made):
    return made.chunks.test.spread(4)


def test_what_is_not_trained_is_not_loaded(base, tmp_path):
    with pytest.raises(UserError, match=r"There is no run in .*: give a folder that `ebar residual train` made"):
        load_residual(tmp_path)
    with pytest.raises(UserError, match="holds no run of `ebar residual train`"):
        load_residual(base)


class Lengthy(torch.nn.Module):
    """So much for each token, which is learnt."""

    def __init__(self, *, vocabulary: int, scale: float = 1.0):
        super().__init__()
        self.scale, self.costs = scale, torch.nn.Embedding(vocabulary, 1)

    def forward(self, x: Sequences, context: Context | None = None) -> torch.Tensor:
        return self.scale * torch.where(x.mask(), self.costs(x.tokens).squeeze(2), 0.0).sum(1)


def test_an_energy_from_outside_is_trained_measured_and_loaded_by_its_name(base, tmp_path, monkeypatch):
    monkeypatch.setitem(ENERGIES, "lengthy", Lengthy)
    made = run(asked(base, Chosen(kind="lengthy", options={"scale": 0.5})), tmp_path / "run")
    assert made.energy.scale == 0.5
    found = made.evaluate(Measuring(prefixes=3, draws=20, last_rows=1), seed=0).perplexity
    assert found.low <= found.value <= found.high
    x, context = made.chunks.test
    with torch.no_grad():
        assert load_residual(tmp_path / "run").energy(x, context).tolist() == made.energy(x, context).tolist()


def test_the_times_of_a_run_are_those_of_its_stages(base, tmp_path):
    run(asked(base), tmp_path / "run").evaluate(Measuring(prefixes=2, draws=10, last_rows=0), seed=0)
    assert list(stage_seconds(tmp_path / "run")) == [
        "negatives/train", "negatives/validation", "warm-up", "energy", "evaluation/2-10-0/draws",
        "evaluation/2-10-0/energies",
    ]  # fmt: skip
