"""Mistakes a user makes, one row each: what was typed, and words of the sentence that says how to go on.

Each ends in one sentence that names the way out, with exit code 2 and no traceback; what is there stays as it is.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from ebar.cli import main
from ebar.config import gam, game, residual
from ebar.config.reader import read, to_yaml
from tests.cli.test_commands import contents

TRAIN = "train --name new --data.motif 11"
TEXT = "train --name new --data.kind text --data.train text.txt"
LINES = "train --name new --data.kind lines --data.train"
SAMPLE = "sample runs/tiny --n 5"

MISTAKES: list[tuple[str, str, str]] = [
    # Commands and options.
    ("trian", "did you mean train", ""),
    ("help sampel", "did you mean sample", ""),
    ("residual trian", "choose one of train, evaluate", ""),
    (f"{TRAIN} --epochs 3", "did you mean --training.epochs", ""),
    ("train --name new --data.train text.txt", "give --data.kind as well", "lines"),
    (f"{TRAIN} --data.tokeniser bpe", "give --data.kind as well", "text"),
    (f"{TRAIN} --training.epochs three", "training.epochs must be a whole number, not 'three'", ""),
    (f"{TRAIN} --training.epochs 0", "training.epochs must be 1 or more", ""),
    (f"{TRAIN} --precision float16", "precision must be float32 or float64", ""),
    (f"{TRAIN} --backbone lstm", "give them one by one, such as --backbone.kind", ""),
    (f"{TRAIN} --backbone.kind lsmt", "choose one of", "lstm"),
    ("train --name new --data.motif", "--data.motif needs a value", ""),
    (f"{TRAIN} --optimiser.learning_rate -1", "learning_rate must be 0 or more", ""),
    (f"{TRAIN} --device cuda", "give --device cpu, or auto", ""),
    (f"{TRAIN} --device gpu", "choose one of auto, cpu, cuda", ""),
    ("sample", "needs RUN", "ebar help sample"),
    ("sample runs/tiny runs/letters", "leave it out", "runs/letters"),
    ("export runs/tiny --to onnx", "to must be hf or safetensors", ""),
    # Configurations.
    (f"{TRAIN} --config nothere.yaml", "give a YAML file that exists", ""),
    (f"{TRAIN} --config broken.yaml", "broken.yaml, line 3", "indent options of one group alike"),
    (f"{TRAIN} --config tabs.yaml", "tabs.yaml, line 2", "indent with blanks"),
    (f"{TRAIN} --config colon.yaml", "colon.yaml, line 1", "in quotes"),
    (f"{TRAIN} --config unknown.yaml", "unknown.yaml, line 2", "did you mean --data.length"),
    (f"{TRAIN} --config typed.yaml", "typed.yaml, line 2", "must be a whole number, not 'many'"),
    (f"{TRAIN} --config list.yaml", "list.yaml must be a group of options", ""),
    # Data.
    ("train --name new --data.kind txt", "choose one of", "lines"),
    (TEXT.replace("text.txt", "nothere.txt"), "There is no file nothere.txt", "check"),
    (TEXT.replace("text.txt", "."), "cannot be read", "give a file"),
    (TEXT.replace("text.txt", "empty.txt"), "empty.txt is empty", "give"),
    ("train --name new --data.kind text", "give either data.train or data.dataset", ""),
    (f"{TEXT} --data.length 100000", "too few for one window", "smaller data.length"),
    (f"{TEXT} --data.tokeniser wordpiece", "choose one of bpe, bytes", ""),
    (f"{TEXT} --training.maximal_length 9", "leave out training.maximal_length", ""),
    (f"{LINES} latin.txt", "latin.txt, line 2: byte 1 is not UTF-8", "save it"),
    (f"{LINES} dna.txt --data.alphabet ACG", "line 1: 'T' at position 3 is not in the alphabet", "ACG"),
    (f"{LINES} lines.txt --data.fixed_length", "lines.txt, line 1", "leave out fixed_length"),
    ("train --name new --data.kind parallel --data.train text.txt", "line 1 has no tab", "a tab and its translation"),
    ("train --name new --data.kind parallel --data.train text.txt --data.train_target dna.txt", "as many", "30 lines"),
    ("train --name new --data.kind images --data.train text.txt", "give one, an .npz archive", ""),
    ("train --name new --data.motif 12", "not in the alphabet '01': use its symbols", ""),
    (f"{TRAIN} --data.length 1", "give a larger length", ""),
    ("train --name new --data.expression '(0'", "position 0", "never closed"),
    ("language --motif 11 --length 4 --presence 2", "between 0 and 1", ""),
    ("train --name new --data.motif 11 --data.size 1000000000000", "There is not enough memory", "ask for less"),
    ("train --name new --data.motif 11 --data.length 1000000000000", "is too large a language", "shorten one"),
    ("train --name new --data.kind images --data.train broken.npz", "readable .npz archive of numbers", "numpy.savez"),
    (f"{TEXT} --data.tokeniser bpe --data.vocabulary 80", "80 tokens are too few", "give a larger vocabulary"),
    # Models.
    ("train --name new --data.motif 11 --backbone.hidden 1000000000", "memory for this backbone, lstm", "make it"),
    (f"{TEXT} --backbone.kind transformer --backbone.hidden 10 --backbone.heads 3", "a multiple of heads", ""),
    (f"{TEXT} --backbone.kind encoder_decoder", "choose another, or data of kind parallel", ""),
    (f"{TRAIN} --backbone.kind gated_pixelcnn", "choose another, or data of kind images", ""),
    (f"{TEXT} --training.start runs/tiny", "do not fit this model", "the same data, tokeniser, backbone"),
    # A name that is taken, and folders of another kind.
    ("train --name ../new --data.motif 11", "must be the name of one folder", ""),
    ("train --name tiny --data.motif 11 --backbone.hidden 9", "what differs: backbone.hidden", "--replace_config"),
    ("gam --name tiny --data.motif 11 --features motif:11", "another kind", "choose another name"),
    ("sample runs/nothere", "`ebar list runs` shows those there are", ""),
    ("sample runs", "give one of them, such as runs/", ""),
    ("sample runs/gam", "runs/gam is a GAM: its model is runs/gam/round-1/pi", "give that one"),
    ("evaluate runs/game", "runs/game is a game", "ebar game"),
    ("decode runs/residual", "runs/residual is a residual model", "ebar residual"),
    ("residual generate runs/tiny --prompt a", "runs/tiny is a trained model", "ebar evaluate runs/tiny"),
    ("control sample runs/letters", "runs/letters is a trained model", "ebar evaluate runs/letters"),
    ("predict runs/tiny --input text.txt", "runs/tiny is a trained model", "ebar finetune"),
    ("infill runs/tiny 'a ___ b'", "pretrain an xlnet", ""),
    ("residual train --name new --base runs/gam", "is a GAM: its model is", "give that one"),
    ("residual train --name new --base runs/tiny", "train one on text", ""),
    ("compare runs/tiny runs/gam", "runs/gam is a GAM", "give that one"),
    ("compare runs/tiny runs/letters", "compare runs whose test items are the same", ""),
    ("export runs/tiny --to hf", "as safetensors", ""),
    ("list nothere", "nothere has no runs", "give"),
    ("show runs/nothere", "runs/nothere cannot be shown: there is no such folder", "ebar list"),
    ("show runs", "no run, or the folder of several", "ebar list"),
    ("compare runs/tiny nothere", "nothere cannot be opened: there is no such folder", "ebar list"),
    ("sample runs/moved", "without its data, and there is no", "put the file there"),
    (f"{TRAIN} --seed 99999999999999999999", "seed must be from 0 to 9223372036854775807", ""),
    (f"{LINES} one.txt", "one.txt has only 1 of the 5 lines that are needed", "give more"),
    ("evaluate text.txt", "which is a file", "give the folder of a run"),
    ("show text.txt", "it is a file", "give the folder of a run"),
    ("compare text.txt runs/tiny", "it is a file", "give the folder of a run"),
    ("export runs/tiny --to safetensors --output text.txt", "holds something else", "choose a folder"),
    ("train --name new --data.motif 11 --runs text.txt", "Could not save text.txt/new", "choose another folder"),
    ("control fit --name new --model text.txt --features word:a=1", "is no model", "give its folder"),
    ("game rank runs/tiny", "runs/tiny is a trained model", "ebar evaluate runs/tiny"),
    # GAM.
    ("gam --name new --data.motif 11", "give --features", ""),
    ("gam --name new --data.motif 11 --features motif", "needs an argument", "motif:"),
    ("gam --name new --data.motif 11 --features motif:11=0.5", "leave out =0.5", ""),
    ("gam --name new --data.motif 11 --ft 111", "7 bits", ""),
    # Drawing.
    ("sample runs/tiny --n ten", "n must be a whole number, not 'ten'", ""),
    (f"{SAMPLE} --temperature 0", "temperature must be above 0", ""),
    (f"{SAMPLE} --top_p 1.5", "top_p must lie above 0 and not above 1", ""),
    (f"{SAMPLE} --tilt motif:11", "must end in =COEFFICIENT, as in motif:101=2.5", ""),
    (f"{SAMPLE} --tilt motif:11=inf", "write '!motif:11=-inf'", ""),
    (f"{SAMPLE} --tilt moti:11=1", "choose one of", "motif"),
    (f"{SAMPLE} --tilt motif:22=1", "not in the alphabet '01'", ""),
    (f"{SAMPLE} --tilt predicate:mine.py=1", "is given as FILE.py:FUNCTION", ""),
    (f"{SAMPLE} --tilt predicate:nothere.py:f=1", "There is no Python file nothere.py", ""),
    (f"{SAMPLE} --tilt predicate:mine.py:g=1", "has no function 'g'", "fifth"),
    ("sample runs/letters --tilt predicate:mine.py:fifth=1 --sampler.kind smc", "energy of a prefix", 'twist "none"'),
    (f"{SAMPLE} --tilt score:mine.py:nothing=1", "is nan on", "let the function give a number"),
    (f"{SAMPLE} --sampler.kind smc", "--sampler is for a tilted model: give --tilt too", ""),
    (f"{SAMPLE} --proposal look_ahead", "give --tilt too, or leave it out", ""),
    (f"{SAMPLE} --maximal_length 1000", "between 1 and the model's 11", ""),
    (f"{SAMPLE} --prompt 2", "is not in the alphabet '01'", ""),
    (f"{SAMPLE} --prompt 01010101010101", "give a shorter one", ""),
    (f"{SAMPLE} --output sheet.png", "write `> FILE` after the command", ""),
    ("sample runs/pixels --prompt a", "leave out --prompt, or give --complete", ""),
    ("sample runs/pixels --complete 2", "give --output", ""),
    ("sample runs/pixels --output sheet.jpg", "give --output sheet.png", ""),
    ("sample runs/numbers", "ebar decode runs/numbers --input FILE", ""),
    ("decode runs/tiny --method beam --temperature 0.5", "choose --method sample or energy", ""),
    ("decode runs/tiny --best 9", "make --width larger", ""),
    ("decode runs/tiny --method sample --width 3", "leave it out, or choose --method beam", "--width"),
    ("sample runs/letters --prompts runs", "runs cannot be read", "give a file that can"),
    ("decode runs/numbers --input latin.txt", "latin.txt, line 2: byte 1 is not UTF-8", "save it"),
    ("distil runs/tiny --tilt motif:11=1 --output text.txt", "is no distillation", "choose another name"),
    ("estimate runs/tiny", "give --tilt", ""),
    ("estimate runs/tiny --tilt motif:11=1 --divergence kll", "choose one of", "kl"),
    ("distil runs/tiny --output new.txt", "give --tilt, or use ebar sample", ""),
    ("distil runs/tiny --tilt motif:11=1", "give --output", ""),
    # Measuring.
    ("evaluate runs/letters --feature motif:ab", "does nothing for text: leave it out", "--feature"),
    ("evaluate runs/letters --n 5", "--n is for whole sequences", "leave it out"),
    ("evaluate runs/tiny --n 1e12", "n must be a whole number", ""),
    ("evaluate runs/tiny --n 1000000000000", "There is not enough memory for this", "ask for less"),
    ("evaluate runs/tiny --width 3", "does nothing for whole sequences: leave it out", "--width"),
    ("evaluate runs/tiny --segment 3", "does nothing for whole sequences", "leave it out"),
    ("evaluate runs/tiny --feature motif:2", "not in the alphabet '01'", ""),
    ("diversity empty.txt", "empty.txt is empty", "needs"),
    ("diversity nothere.txt", "There is no file nothere.txt", "check"),
    # Other journeys.
    ("sweep nothere.yaml --over optimiser.learning_rate=1..2", "There is no configuration nothere.yaml", "give a YAML"),
    ("sweep colon.yaml --over optimiser.learning_rate=1..2", "colon.yaml, line 1", "in quotes"),
    ("control fit --name new --model runs/letters --features word:a=2", "must end in =MOMENT", "word:dragon=1"),
    ("serve --port 99999", "port must be from 0 to 65535", ""),
    ("rate read nothere.json --ratings text.txt", "cannot be read as a key", "give the file"),
    ("control fit --name new --model bare --features word:a=1", "has no tokenizer", "save_pretrained"),
    ("control fit --name new --features word:a=1", "give --model", ""),
    ("game train --name new --data.mixture spirls", "choose one of biased_gaussians", "spirals"),
    ("finetune --name new", "give either data.train or data.dataset", ""),
    ("classify --name new --data.train images.npz", "needs --data.test", ""),
    ("reproduce earm/table99", "did you mean earm/table", ""),
]
WAY_OUT = re.compile(
    r"give|choose|leave|use |make|write|put |did you mean|must|needs|shows|close|indent|check|save|train |pretrain|"
    r"compare|with `|relax|shorten|ask for|can, and|is given as|where each|never closed|as safetensors"
)


@pytest.fixture(scope="session")
def home(trained: Path, continues: Path, pixels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it: files, four trained runs, and folders of other kinds as far as they are looked at."""
    folder = tmp_path_factory.mktemp("mistakes")
    files = {
        "text.txt": "abcab cabab\n" * 30, "dna.txt": "ACGT\n" * 10, "lines.txt": "ab\nabc\nab\n" * 4, "empty.txt": "",
        "pairs.tsv": "eins\tone\nzwei\ttwo\n" * 20, "broken.yaml": "data:\n  kind: text\n train: a\n",
        "tabs.yaml": "data:\n\tkind: text\n", "colon.yaml": "name: a: b\n", "list.yaml": "- a\n",
        "unknown.yaml": "data:\n  lenght: 3\n", "typed.yaml": "training:\n  epochs: many\n",
        "one.txt": "ACGT\n", "broken.npz": "PK nothing",
        "mine.py": "def fifth(text):\n    return text[4] == '1'\n\n\n"
        "def nothing(texts):\n    return [float('nan')] * len(texts)\n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "latin.txt").write_bytes(b"01\n\xff\n")
    for name, run in {"tiny": trained, "letters": continues, "pixels": pixels}.items():
        shutil.copytree(run, folder / "runs" / name)
    shutil.copytree(continues, folder / "runs" / "moved")
    moved = folder / "runs" / "moved" / "config.yaml"
    moved.write_text(re.sub(r"( +train: ).*", r"\1/nowhere/book.txt", moved.read_text()))
    small = ["--backbone.layers", "1", "--training.epochs", "1", "--json", "--runs", str(folder / "runs")]
    pairs = ["--data.kind", "parallel", "--data.train", str(folder / "pairs.tsv"), "--data.tokeniser", "words"]
    pairs += ["--backbone.hidden", "4", "--backbone.heads", "1", "--backbone.encoder_layers", "1"]
    assert main(["train", "--name", "numbers", *pairs, *small]) == 0
    made = {
        "gam": read(["--data.motif", "11", "--features", "motif:11"], gam.MANUAL, gam.GamConfig),
        "game": read(["--data.mixture", "spirals"], game.MANUAL, game.GameConfig),
        "residual": read(["--base", str(continues)], residual.MANUAL, residual.ResidualConfig),
    }
    for name, tree in made.items():
        (folder / "runs" / name).mkdir()
        (folder / "runs" / name / "config.yaml").write_text(to_yaml(tree))
        (folder / "runs" / name / "results.json").write_text("{}")
    (folder / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "bare" / name).write_text("{}")
    return folder


@pytest.fixture(scope="session")
def before(home: Path) -> dict[str, bytes]:
    return contents(home)


@pytest.mark.parametrize(("typed", "words", "more"), MISTAKES, ids=[typed for typed, *_ in MISTAKES])
def test_a_mistake_is_one_sentence_that_names_the_way_out(
    typed: str, words: str, more: str, home: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "--model bare" in typed:
        pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
    monkeypatch.chdir(home)
    assert main(shlex.split(typed)) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    [sentence] = [line for line in error.splitlines() if line.startswith("ebar: ")]
    assert error.splitlines()[-1] == sentence
    assert words in sentence
    assert more in sentence
    assert sentence[-1] in ".?"
    assert len(sentence) <= 300
    assert not re.search(r"[a-z)]\. [A-Z]", sentence), "one sentence"
    assert WAY_OUT.search(sentence.lower())
    after = contents(home)
    assert {name: after.get(name) for name in before} == before


def test_there_are_more_than_sixty_and_each_is_another() -> None:
    assert len({typed for typed, *_ in MISTAKES}) == len(MISTAKES) > 60
