"""`ebar finetune`, `ebar predict`, and `ebar evaluate` of what they make."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import ebar
from ebar.build.finetune import scores_by, start_from
from ebar.cli import main
from ebar.journeys.finetune.journey import Finetuned
from tests.cli.test_commands import answer, complaint
from tests.journeys.finetune.made_up import classification, ranking, regression, span
from tests.journeys.finetune.made_up import network as new_network

QUICK = ["--backbone.layers", "1", "--backbone.hidden", "16", "--backbone.heads", "2", "--training.epochs", "2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled files, a pretrained run, and one fine-tuned from it."""
    folder = tmp_path_factory.mktemp("home")
    for make in (classification, span, ranking):
        make(folder)
    lines = [line.split("\t")[0] for line in (folder / "reviews.tsv").read_text().splitlines()]
    (folder / "book.txt").write_text("\n\n".join(f"{'. '.join(lines[at : at + 6])}." for at in range(0, 120, 6)))
    (folder / "new.txt").write_text("the film was great\na poor plot\n")
    words = [
        "pretrain", "--runs", str(folder / "runs"), "--name", "book", "--data.train", str(folder / "book.txt"),
        "--data.vocabulary", "300", "--data.length", "32", "--data.reuse", "16", "--training.batch_size", "4",
        "--json", *QUICK,
    ]  # fmt: skip
    assert main(words) == 0
    assert main([*finetune(folder, "tuned"), "--from", str(folder / "runs" / "book"), "--layer_decay", "0.8"]) == 0
    return folder


def finetune(home: Path, name: str, train: str = "reviews.tsv") -> list[str]:
    return [
        "finetune", "--runs", str(home / "runs"), "--name", name, "--data.train", str(home / train),
        "--training.epochs", "2", "--data.length", "24",
    ]  # fmt: skip


def test_a_pretrained_run_is_fine_tuned_evaluated_and_opened_even_where_it_is_gone(home, capsys, tmp_path):
    shutil.copytree(home / "runs" / "tuned", tmp_path / "tuned")  # the pretrained run is beside the other one
    config = yaml.safe_load((tmp_path / "tuned" / "config.yaml").read_text())
    assert config["pretrained"] == str(home / "runs" / "book")
    config["pretrained"] = str(tmp_path / "gone")
    (tmp_path / "tuned" / "config.yaml").write_text(yaml.safe_dump(config))
    found = answer(capsys, "evaluate", str(tmp_path / "tuned"))
    assert {"accuracy", "error", "matthews"} == set(found)
    assert found["accuracy"]["low"] <= found["accuracy"]["value"] <= found["accuracy"]["high"]
    assert "accuracy" in json.loads((tmp_path / "tuned" / "results.json").read_text())["evaluation"]
    opened = ebar.load(tmp_path / "tuned")
    assert isinstance(opened, Finetuned)
    assert opened.evaluate()["accuracy"].value == found["accuracy"]["value"]


def test_a_fine_tuned_run_is_a_reward(home, capsys):
    pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
    from ebar.recipes.control.tables import write_toy

    run = home / "runs" / "tuned"
    words = ["control", "reward", "--model", str(write_toy(home / "toy")), "--length", "6", "--draws", "40", "--n", "2"]
    figures = answer(capsys, *words, "--reward", f"{run}:positive", "--beta", "0.1")["figures"]
    assert 0 < figures["model: expected reward"]["value"] < figures["p: expected reward"]["value"] < 1
    texts = ["the film was great", "a poor plot", ""]
    opened = ebar.load(run)
    assert scores_by(opened, "positive")(texts) == [one.probabilities["positive"] for one in opened.predict(texts)]
    for wrong in (str(run), f"{run}:glad"):
        said = complaint(capsys, *words, "--reward", wrong)
        assert f"needs one of its labels, as in {run}:negative: it has negative, positive." in said


def test_numbers_are_rewards_and_orders_of_documents_are_not(tmp_path):
    made = []
    for make in (regression, ranking):
        corpus = make(tmp_path).read()
        made.append(ebar.finetune(new_network(corpus), corpus, training=ebar.Training(epochs=1), seed=0))
    numbers, orders = made
    assert scores_by(numbers)(["one", "two"]) == [one.value for one in numbers.predict(["one", "two"])]
    with pytest.raises(ebar.UserError, match="has no labels: leave out 'glad'"):
        scores_by(numbers, "glad")
    with pytest.raises(ebar.UserError, match="a number for each text, and this is a run of ranking"):
        scores_by(orders)


def test_fine_tuning_begins_with_the_pretrained_weights_and_its_tokens(home):
    start, trained = start_from(str(home / "runs" / "book"), "cpu"), ebar.load(home / "runs" / "book")
    for name, value in trained.model.backbone.state_dict().items():
        assert torch.equal(start.model.backbone.state_dict()[name], value)  # type: ignore[union-attr]
    opened = ebar.load(home / "runs" / "tuned")
    assert opened.data.tokeniser.to_json() == trained.data.tokeniser.to_json()
    assert opened.data.vocabulary == trained.model.backbone.vocabulary


def test_a_run_made_in_python_is_opened_too(home, tmp_path):
    pretrained = ebar.load(home / "runs" / "book")
    data = ebar.read_labelled(home / "reviews.tsv", length=24)
    with pytest.raises(ebar.UserError, match="not in the tokens of the pretrained model"):
        ebar.finetune(pretrained, data)
    data = data.with_tokeniser(pretrained.data.tokeniser)
    tuned = ebar.finetune(pretrained, data, folder=tmp_path, seed=1, training=ebar.Training(epochs=1))
    opened = ebar.load(tmp_path)
    for name, value in tuned.model.state_dict().items():
        assert torch.equal(opened.model.state_dict()[name], value)
    assert opened.evaluate() == tuned.evaluate()


def test_the_same_command_again_reads_the_run_back_and_another_is_refused(home, capsys):
    words = [*finetune(home, "tuned"), "--from", str(home / "runs" / "book"), "--layer_decay"]
    first = answer(capsys, *words, "0.8")
    assert (first["status"], first["epoch"]) == ("finished", 2)
    assert "what differs: layer_decay" in complaint(capsys, *words, "0.5")


def test_predictions_of_a_file(home, capsys):
    run = str(home / "runs" / "tuned")
    assert main(["predict", run, "--input", str(home / "new.txt")]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    found = answer(capsys, "predict", run, "--input", str(home / "new.txt"))["predictions"]
    assert [line[0] for line in lines] == [one["value"] for one in found]
    assert [float(line[1]) for line in lines] == pytest.approx([one["probability"] for one in found], abs=1e-4)
    assert all(sum(one["probabilities"].values()) == pytest.approx(1) for one in found)


def test_from_scratch_in_any_network_for_any_task(home, capsys):
    more = ["--training.batch_size", "64", "--backbone.layers", "1", "--backbone.hidden", "8", "--backbone.heads", "2"]
    words = [*finetune(home, "spans", "questions.jsonl"), "--data.task", "span", *more]
    assert answer(capsys, *words, "--backbone.kind", "bidirectional")["status"] == "finished"
    assert {"exact_match", "f1"} <= set(answer(capsys, "evaluate", str(home / "runs" / "spans")))
    words = [*finetune(home, "ranks", "ranked.jsonl"), "--data.task", "ranking", "--head", "kernel_pooling", *more]
    assert answer(capsys, *words)["status"] == "finished"
    assert {"ndcg@20", "err@20"} == set(answer(capsys, "evaluate", str(home / "runs" / "ranks")))
    (home / "pairs.txt").write_text("was\tgood film\nwas\tthe plot\n")
    found = answer(capsys, "predict", str(home / "runs" / "ranks"), "--input", str(home / "pairs.txt"))["predictions"]
    assert [set(one) for one in found] == [{"value"}, {"value"}]


def test_several_tasks_from_a_run_that_was_fine_tuned_itself(home, capsys):
    (home / "ranks.yaml").write_text(f"train: {home / 'ranked.jsonl'}\ntask: ranking\nlength: 24\n")
    words = [*finetune(home, "several"), "--from", str(home / "runs" / "tuned"), "--also", str(home / "ranks.yaml")]
    assert answer(capsys, *words, "--mixing", "square_root")["status"] == "finished"
    run = str(home / "runs" / "several")
    assert {"task.accuracy", "ranks.ndcg@20"} <= set(answer(capsys, "evaluate", run))
    assert len(answer(capsys, "predict", run, "--input", str(home / "new.txt"), "--task", "task")["predictions"]) == 2
    assert "say which by task=, one of task, ranks" in complaint(
        capsys, "predict", run, "--input", str(home / "new.txt")
    )


def test_an_encoder_of_transformers_is_fine_tuned(home, capsys):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", "good", "bad"]
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    sizes = {"vocab_size": len(pieces), "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
    bert = transformers.BertModel(transformers.BertConfig(**sizes, intermediate_size=16, max_position_embeddings=32))
    xlnet = transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(vocab_size=len(pieces), d_model=8, n_layer=2, n_head=2, d_inner=16)
    )
    for name, network in (("bert", bert), ("xlnet", xlnet)):
        network.save_pretrained(home / name)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(home / name)
        words = [*finetune(home, f"of-{name}"), "--from", str(home / name), "--layer_decay", "0.9"]
        assert answer(capsys, *words)["status"] == "finished"
        assert "accuracy" in answer(capsys, "evaluate", str(home / "runs" / f"of-{name}"))
    assert (home / "runs" / "of-xlnet" / "encoder.json").exists()


def test_mistakes_are_told_in_a_sentence(home, capsys, continues):
    new, book = str(home / "new.txt"), str(home / "runs" / "book")
    words = [*finetune(home, "wrong"), "--from", book]
    assert "leave out --backbone, or leave out --from" in complaint(capsys, *words, "--backbone.layers", "2")
    assert "start from a run of `ebar pretrain`" in complaint(
        capsys, *finetune(home, "wrong"), "--from", str(continues)
    )
    assert "at most 1, not 2" in complaint(capsys, *words, "--layer_decay", "2")
    assert "Kernel pooling ranks documents" in complaint(capsys, *words, "--head", "kernel_pooling")
    assert "no held-out figure called 'f1'" in complaint(capsys, *words, "--monitor", "f1")
    assert "give either data.train" in complaint(capsys, "finetune", "--name", "wrong")
    assert "give --input" in complaint(capsys, "predict", str(home / "runs" / "tuned"))
    assert "holds no run of `ebar finetune`" in complaint(capsys, "predict", book, "--input", new)
    assert "no run in" in complaint(capsys, "predict", str(home / "nowhere"), "--input", new)
    (home / "list.yaml").write_text("- train\n")
    assert "must hold data options" in complaint(capsys, *words, "--also", str(home / "list.yaml"))
    (home / "bad.yaml").write_text("trian: x\n")
    assert "trian" in complaint(capsys, *words, "--also", str(home / "bad.yaml"))
