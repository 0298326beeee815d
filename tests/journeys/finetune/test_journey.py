"""Fine-tuning: every task is learnt, nothing else is touched, and several models are what the mean of them is."""

import math
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Generator, nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.data.labelled import Example, LabelledCorpus
from ebar.data.tokenisers import Words
from ebar.errors import UserError
from ebar.journeys.finetune.ensemble import ensemble
from ebar.journeys.finetune.journey import Finetuned, finetune, new_model
from ebar.models.construction import assemble
from ebar.models.task.encoders import task_encoder
from ebar.objectives.tasks import Classification, TaskBatch
from ebar.training.batches import Batches
from ebar.training.course import Training
from ebar.training.loop import fit
from ebar.training.optimisers import Adam, Constant, Sgd
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.train import History
from ebar.types import Space
from tests.journeys.finetune.killed import classified, ranked
from tests.journeys.finetune.made_up import DATA, QUICK, network

FIGURES = {
    "classification": "accuracy",
    "regression": "pearson",
    "span": "f1",
    "ranking": "ndcg@20",
    "choice": "accuracy",
}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finetuned]:
    """A model of each task, from scratch."""
    found = {}
    for task in DATA:
        data = DATA[task](tmp_path_factory.mktemp(task)).read()
        torch.manual_seed(0)
        found[task] = finetune(network(data), data, dropout=0.0, **QUICK)
    return found


@pytest.mark.parametrize("task", DATA)
def test_every_task_is_learnt_from_scratch(task, learnt):
    tuned = learnt[task]
    figures = tuned.evaluate()
    assert figures[FIGURES[task]].value > 0.9
    losses = [loss for _, loss in tuned.history.curve("validation.loss")]
    assert min(losses) < losses[0] / 2
    assert tuned.result is not None
    assert tuned.result.best.value == min(losses)
    if task == "choice":
        assert {"accuracy", "accuracy.high", "accuracy.middle", "error"} == set(figures)
    if task == "span":
        assert figures["exact_match_unanswerable"].value > 0.9


def test_predictions_are_of_the_form_of_the_task(learnt):
    found = learnt
    [good, bad] = found["classification"].predict(["the film was great", "a poor plot"])
    assert (good.value, bad.value) == ("positive", "negative")
    assert sum(good.probabilities.values()) == pytest.approx(1)
    assert good.probability == good.probabilities["positive"]
    low, high = (one.value for one in found["regression"].predict(["the film", "good film good"]))
    assert float(low) < 0.3 < 0.7 < float(high)
    passage = "the plot is carl of a film"
    [answer, none] = found["span"].predict([(passage, "who"), ("the film was a plot", "who")])
    assert (answer.value, none.value) == ("carl", "")
    worse, better = (one.value for one in found["ranking"].predict([("was", "the of a"), ("was", "good fine a")]))
    assert float(worse) < float(better)
    chosen = found["choice"].predict(
        [("the film", "was", "bad", "great"), ("a plot of", "was", "fine", "poor", "awful")]
    )
    assert [one.value for one in chosen] == ["great", "fine"]
    assert list(chosen[0].probabilities) == ["bad", "great"]
    assert sum(chosen[0].probabilities.values()) == pytest.approx(1)
    assert found["choice"].predict([]) == []


class Untouched(dict):  # type: ignore[type-arg]
    """Parts of which the test part may not be asked for."""

    def __getitem__(self, name):
        assert name != "test", "the test part was looked at"
        return super().__getitem__(name)


def test_the_test_part_is_not_looked_at_and_the_network_stays_as_it_is():
    data = classified()
    data = replace(data, parts=Untouched(data.parts), written=Untouched(data.written))
    given = network(data, hidden=8)
    before = {name: value.clone() for name, value in given.state_dict().items()}
    tuned = finetune(given, data, seed=0, training=Training(epochs=2, batch_size=8))
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert not torch.equal(tuned.model.state_dict()["encoder.backbone.embedding"], before["embedding"])
    assert not tuned.model.training
    with pytest.raises(AssertionError, match="looked at"):
        tuned.evaluate()


def test_one_task_is_a_plain_loop_over_its_examples():
    """The same weights as from the loop, the objective and the optimiser themselves."""
    data = classified()
    generator = seeded(5)
    given = network(data, hidden=8)
    state = torch.get_rng_state()
    tuned = finetune(
        given, data, seed=5, generator=generator, dropout=0.0, schedule=Constant(), optimiser=Sgd(learning_rate=0.3),
        training=Training(epochs=2, batch_size=8, clip=None),
    )  # fmt: skip
    torch.set_rng_state(state)
    model = new_model(task_encoder(given), {"task": data}, head="summary", dropout=0.0, frozen=False)
    player = Player(module=model, optimiser=Sgd(learning_rate=0.3).build(model.parameters()))

    class OfTask:
        def at(self, epoch, start):
            for labelled in Batches(data=data.parts["train"], batch_size=8, seed=5).at(epoch, start):
                yield TaskBatch(labelled, torch.zeros(len(labelled.group), dtype=torch.long))

    objective = Classification(model=model)  # type: ignore[arg-type]
    for step in fit(objective, OfTask(), {"model": player}, generator=Generator()):
        if step.number == 8:
            break
    assert tuned.result is not None
    assert tuned.result.best.step == 8  # otherwise these would be other weights
    for name, value in tuned.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_a_batch_in_parts_is_the_whole_batch():
    data = {"one": classified(), "two": ranked()}
    found = []
    for accumulate in (1, 4):
        torch.manual_seed(0)
        tuned = finetune(
            network(data["one"], hidden=8).double(), data, seed=1, dropout=0.0, optimiser=Sgd(learning_rate=0.1),
            training=Training(epochs=2, batch_size=8, accumulate=accumulate),
        )  # fmt: skip
        found.append(tuned.model.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name])


def test_several_tasks_share_the_network_and_have_figures_by_name():
    data = {"one": classified(), "two": ranked()}
    tuned = finetune(network(data["one"], hidden=8), data, seed=1, training=Training(epochs=1, batch_size=8))
    assert {"one.accuracy", "one.error", "one.matthews", "two.ndcg@20", "two.err@20"} == set(tuned.evaluate())
    assert {"validation.loss", "validation.one.loss", "validation.two.error"} <= set(tuned.history[-1])
    assert tuned.predict(["the good film"], task="one")[0].value in ("True", "False")
    with pytest.raises(UserError, match="say which by task=, one of one, two"):
        tuned.predict(["the good film"])


def test_a_frozen_network_does_not_learn_and_its_head_does():
    data = classified()
    given = network(data, hidden=8)
    tuned = finetune(given, data, frozen=True, seed=1, training=Training(epochs=2, batch_size=8))
    for name, value in given.state_dict().items():
        assert torch.equal(tuned.model.state_dict()[f"encoder.backbone.{name}"], value)
    losses = [loss for _, loss in tuned.history.curve("validation.loss")]
    assert losses[1] != losses[0]


def test_layers_learn_at_rates_that_fall_towards_the_input():
    """One step of plain gradient descent, with decay ½ and without: layer by layer the ratio of the moves."""
    data, moves = classified(8), []
    for decay in (1.0, 0.5):
        torch.manual_seed(0)
        given = network(data, hidden=8, layers=2).double()
        tuned = finetune(
            given, data, seed=1, dropout=0.0, layer_decay=decay, optimiser=Sgd(learning_rate=0.5), schedule=Constant(),
            training=Training(epochs=1, batch_size=8, clip=None),
        )  # fmt: skip
        before, after = given.state_dict(), tuned.model.get_submodule("encoder.backbone").state_dict()
        moves.append({name: after[name] - before[name] for name in before})
    for name, factor in [("embedding", 0.25), ("layers.0.attention", 0.5), ("layers.1.attention", 1.0)]:
        own = [key for key in moves[0] if key.startswith(name)]
        assert own
        for key in own:
            torch.testing.assert_close(moves[1][key], factor * moves[0][key])


def test_kernel_pooling_learns_which_likeness_counts():
    """A document with the query's own word is the relevant one: the kernel at 1 tells."""
    words = ["good", "bad", "the", "film", "plot", "was"]
    made = []
    for query in range(36):
        wanted, others = words[query % 6], [words[(query + 1 + k) % 6] for k in range(5)]
        for label, text in ((1.0, [wanted, *others[:2]]), (0.0, others[2:])):
            made.append(Example("made up", wanted, " ".join(text), label=label, unit=str(query)))
    encoding = ranked().encoding
    data = LabelledCorpus.of({"train": made[:24], "validation": made[24:48], "test": made[48:]}, encoding)
    torch.manual_seed(0)
    tuned = finetune(
        network(data, hidden=16), data, head="kernel_pooling", seed=0, optimiser=Adam(learning_rate=0.3),
        schedule=Constant(), training=Training(epochs=15, batch_size=8, patience=15),
    )  # fmt: skip
    assert tuned.evaluate()["ndcg@20"].value == 1.0
    with pytest.raises(UserError, match="Kernel pooling ranks documents"):
        finetune(network(data), classified(), head="kernel_pooling")


class Pretrained(NamedTuple):
    """As a run of pretraining is opened."""

    model: nn.Module
    data: LabelledCorpus


def test_a_run_of_other_tokens_or_of_another_vocabulary_is_refused():
    data = classified()
    model = assemble(Space(data.vocabulary, 8), "xlnet", {"layers": 1, "hidden": 8, "heads": 2})
    pretrained = Pretrained(model, data)
    finetune(pretrained, data, seed=0, training=Training(epochs=1))
    other = data.with_tokeniser(Words.train(["other words of no use to any of these good bad films here at all"]))
    with pytest.raises(UserError, match="not in the tokens of the pretrained model"):
        finetune(pretrained, other)
    with pytest.raises(UserError, match=r"The network knows 30 tokens and the data have \d+: make it for"):
        finetune(BidirectionalTransformer(30, layers=1, hidden=8, heads=2), data)


def test_a_finished_run_is_read_back_and_another_configuration_is_refused(tmp_path):
    data = classified()
    options = {"seed": 1, "folder": tmp_path, "training": Training(epochs=1, batch_size=8)}
    first = finetune(network(data, hidden=8), data, **options)
    again = finetune(network(data, hidden=8), data, **options)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    with pytest.raises(UserError, match="what differs: layer_decay"):
        finetune(network(data, hidden=8), data, layer_decay=0.9, **options)


def test_what_cannot_be_done_is_said_in_a_sentence():
    data = classified()
    with pytest.raises(UserError, match="There is no held-out figure called 'accuracy'"):
        finetune(network(data), data, monitor="accuracy", seed=0, training=Training(epochs=1))
    with pytest.raises(UserError, match="no batch_tokens"):
        finetune(network(data), data, training=Training(batch_tokens=100))
    with pytest.raises(UserError, match="no task to learn"):
        finetune(network(data), {})


class Sure(nn.Module):
    """The same scores for every text."""

    def __init__(self, *scores: float):
        super().__init__()
        self.fixed = nn.Parameter(torch.tensor(scores, dtype=torch.float64))

    def scores(self, inputs, task):
        return self.fixed.detach().expand(len(inputs.tokens), 1, -1)


def member(data: LabelledCorpus, *scores: float) -> Finetuned:
    return Finetuned(model=Sure(*scores), tasks={"task": data}, history=History())


def test_an_ensemble_averages_probabilities_not_their_logarithms():
    """(0.9, 0.1) and (0.2, 0.8): 0.55 and 0.45; averaged logarithms would give √0.18 : √0.08 = 0.6 : 0.4."""
    data = classified()
    both = ensemble([member(data, math.log(9), 0.0), member(data, math.log(0.25), 0.0)])
    [found] = both.predict(["the good film"])
    assert found.value == "False"
    assert dict(found.probabilities) == pytest.approx({"False": 0.55, "True": 0.45})
    share = float((data.test.labels == 0).double().mean())
    assert both.evaluate()["accuracy"].value == pytest.approx(share)
    scores = ensemble([member(ranked(), 1.0), member(ranked(), 4.0)])
    assert scores.predict([("was", "the film")])[0].value == pytest.approx(2.5)


def test_an_ensemble_is_of_the_same_tasks_in_the_same_tokens():
    data = classified()
    with pytest.raises(UserError, match="needs one"):
        ensemble([])
    with pytest.raises(UserError, match="in the same tokens"):
        ensemble([member(data, 0.0, 1.0), member(ranked(), 1.0)])
    other = replace(member(data, 0.0, 1.0), tasks={"other": data})
    with pytest.raises(UserError, match="of the same tasks"):
        ensemble([member(data, 0.0, 1.0), other])
