"""Two runs of AWD-LSTM: until the averages no longer improve, then from the best of them, in a run of its own."""

import torch

import ebar
from ebar.objectives import ActivationRegularised
from ebar.training.stopping import no_longer_improves


def test_fine_tuning_starts_from_the_best_averages_and_leaves_the_first_run_alone(tmp_path):
    data = ebar.language(motif="101", length=6, size=40, seed=0)
    torch.manual_seed(0)
    sizes = {"layers": 2, "hidden": 6, "embedding": 4}
    model = ebar.awd_lstm(data, **sizes)
    training = ebar.Training(epochs=8, batch_size=10, patience=100)
    first = ebar.train(
        model, data, training=training, optimiser=ebar.TriggeredAsgd(learning_rate=5.0, evaluations=1),
        objective=ActivationRegularised(model=model), seed=0, folder=tmp_path / "first",
    )  # fmt: skip
    kept = {path: path.read_bytes() for path in sorted((tmp_path / "first").rglob("*")) if path.is_file()}
    again = ebar.awd_lstm(data, **sizes)
    more = ebar.Training(epochs=30, batch_size=10, patience=100, patience_excluding=2, start=tmp_path / "first")
    tuned = ebar.train(
        again, data, training=more, optimiser=ebar.Asgd(learning_rate=5.0, weight_decay=1.2e-6), seed=1,
        folder=tmp_path / "second",
    )  # fmt: skip
    assert {path: path.read_bytes() for path in sorted((tmp_path / "first").rglob("*")) if path.is_file()} == kept
    assert tuned.result is not None
    assert first.result is not None
    losses = [loss for _, loss in tuned.history.curve("validation.loss")]
    assert list(tuned.result.best.history) == losses
    stops = [no_longer_improves(losses[: n + 1], 2) for n in range(len(losses))]
    assert stops[:-1] == [False] * (len(losses) - 1)
    assert tuned.result.reason == ("patience" if stops[-1] else "epochs")
