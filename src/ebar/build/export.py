"""Any run folder, exported as what it is."""

from pathlib import Path

from safetensors.torch import load_file

from ebar.build.control import open_control
from ebar.build.summaries import RunSummary, readable_run, summarise
from ebar.build.train import load_trained
from ebar.data.built_tokeniser import SOURCE_TOKENISER, TOKENISER
from ebar.errors import UserError
from ebar.journeys.export import WEIGHTS, Exported, To, check_place, export, written_folder
from ebar.journeys.finetune.journey import ENCODER
from ebar.journeys.train import SHAPE
from ebar.models.truncated import Truncated
from ebar.store.names import CONFIG
from ebar.training.run import Checkpoints, packed

BESIDE = (CONFIG, TOKENISER, SOURCE_TOKENISER, SHAPE, ENCODER)  # what tells of the weights


def export_run(folder: Path | str, *, to: To = "hf", output: Path | str | None = None) -> Exported:
    """The best weights of a run, in RUN/hf or RUN/safetensors unless another folder is given.

    A run of `ebar train` or `ebar pretrain` as `export` has it; a controlled model as its tuned one. As safetensors,
    every run that was trained: a file for each network, with its configuration and tokeniser beside it.
    """
    folder = Path(folder)
    place = folder / to if output is None else Path(output)
    run = readable_run(folder, "exported", "export")
    if run.kind in ("control", "control tune"):
        return _tuned(run, to, place)
    if to == "safetensors":
        return _weights(run, place)
    if run.kind not in ("train", "pretrain"):
        raise UserError(
            f"{folder} was made by `ebar {run.kind}`, and no causal language model of transformers is like it: give "
            "--to safetensors, or a run of `ebar train`, `ebar pretrain` or `ebar control tune`."
        )
    check_place(place)
    return export(load_trained(folder), place)


def _weights(run: RunSummary, place: Path) -> Exported:
    """Each player's, as the best checkpoint has them."""
    check_place(place)
    inside = run.folder / "energy" if run.kind == "residual" else run.folder
    best = Checkpoints(inside / "checkpoints").best()
    if best is None:
        raise UserError(f"{run.folder} has no checkpoint yet: train it first.")
    files = {f"{name}.safetensors": packed(weights) for name, weights in best.weights.items() if weights}
    beside = {name: (run.folder / name).read_bytes() for name in BESIDE if (run.folder / name).exists()}
    written_folder(place, {**files, **beside})
    return Exported(place, "safetensors", tokenizer=TOKENISER in beside)


def _tuned(run: RunSummary, to: To, place: Path) -> Exported:
    """π, as `ebar control tune` has saved it: a model of transformers, or the weights of one of ebar's."""
    fit = run.folder if run.kind == "control" else run.folder.parent
    saved = (run.folder / "tune" if run.kind == "control" else run.folder) / "model"
    if not (saved / WEIGHTS).exists():
        raise UserError(f"{fit} has no model of its own yet: `ebar control tune {fit}` makes one, from start to end.")
    check_place(place)
    if to == "safetensors":
        written_folder(place, {WEIGHTS: (saved / WEIGHTS).read_bytes()})
        return Exported(place, to, tokenizer=False)
    if (saved / "config.json").exists():
        written_folder(place, {path.name: path.read_bytes() for path in saved.iterdir() if path.is_file()})
        return Exported(place, to, tokenizer=(saved / "tokenizer.json").exists())
    model = open_control(fit).model
    model.load_state_dict(load_file(str(saved / WEIGHTS)))
    base = load_trained(Path(str(summarise(fit).tree["model"])))
    whole = model.model if isinstance(model, Truncated) else model  # texts shorter than the run's own: the same logits
    return export(whole, place, tokeniser=base.data.tokeniser)
