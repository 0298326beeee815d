"""What cannot be asked of `ebar control`: each ends in one sentence that says why, and exit code 2."""

import json
import tracemalloc
from pathlib import Path

import pytest
from torch import Generator

from ebar.build.control import read_prompts
from ebar.cli import main
from ebar.journeys.control.prompts import reservoir
from ebar.recipes.control.tables import write_toy

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")

FEW = "--length 4 --draws 50 --surrogate_draws 20 --rows 50"
NEVER = "--features ends_with:aaaaaaaaaaaa=1"  # twelve letters, and there are four tokens
AT_ONCE = "--features expression:ab=1 expression:b=0"
LONG = "--prompt " + "b" * 60  # the model reads 32 tokens
RULED = "grammar --model toy --length 6 --draws 40"
REWARDED = "reward --model toy --length 6 --draws 40 --reward rewards.py"
NOTHING = "No sequence of the model's space satisfies the energy's hard constraints: relax them."
CUT_OFF = (
    "None of the 40 texts was whole within 6 tokens: allow longer ones, draw more, or give a grammar whose texts end."
)
ROWS = [
    (f"check toy {FEW} {NEVER}", NOTHING),
    (f"fit --model toy {FEW} --checks 50 {NEVER}", NOTHING),
    (f"fit --model toy {FEW} --checks 50 {AT_ONCE}", NOTHING),
    (f"fit --model toy {FEW} --checks 50 {NEVER[:-2]}=0.5", "give more --draws, or a commoner word."),
    (f"prompts --model toy {FEW} --prompts short.txt {NEVER}", NOTHING),
    (f"{RULED} --expression é", CUT_OFF),
    (f"{RULED} --expression a{{40}}", CUT_OFF),
    (f"{RULED} --grammar endless.lark", CUT_OFF),
    (f"{RULED} --grammar circular.lark", "nothing may stand at its beginning."),
    (f"{RULED} --json_schema nothing.json", "Unsatisfiable schema: minimum (5) is greater than maximum (3)."),
    (f"{REWARDED}:nan", "let the function give a number."),
    (f"{REWARDED}:one_nan", "let the function give a number."),
    (f"{REWARDED}:infinite", "let the function give a number, or −inf for what must not be."),
    (f"{REWARDED}:forbidding", "All of the 40 draws have a reward of −inf: draw more, or forbid less."),
    (f"{REWARDED}:failing", "raised ValueError: no on 40 texts."),
    (f"{REWARDED}:few", "of 40 texts must have shape [40], not [1]."),
    (f"check toy {FEW} --features expression:a=1 {LONG}", "can read 32, so make one of them shorter."),
    (f"fit --model toy {FEW} --checks 50 --features expression:a=1 {LONG}", "so make one of them shorter."),
    (f"prompts --model toy {FEW} --prompts long.txt --features expression:a=1", "shorten it, or let less come."),
    (f"{RULED} --expression a {LONG}", "can read 32, so make one of them shorter."),
    (f"{REWARDED}:even {LONG}", "can read 32, so make one of them shorter."),
    (f"{RULED.replace('6', '600')} --expression a*", "can read 32, so make one of them shorter."),
]
REWARDS = """
import math

def nan(texts): return [math.nan for _ in texts]
def one_nan(texts): return [math.nan if at == 3 else 0.0 for at, _ in enumerate(texts)]
def infinite(texts): return [math.inf for _ in texts]
def forbidding(texts): return [-math.inf for _ in texts]
def failing(texts): raise ValueError("no")
def few(texts): return [0.0]
def even(texts): return [0.0 for _ in texts]
def without_a(texts): return [-math.inf if "a" in text else 0.0 for text in texts]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_toy(folder / "toy")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "endless.lark").write_text('start: "a" start')
    (folder / "circular.lark").write_text("start: start")
    (folder / "nothing.json").write_text('{"type": "integer", "minimum": 5, "maximum": 3}')
    (folder / "short.txt").write_text("a\nab\n")
    (folder / "long.txt").write_text("a\n" + "b" * 60 + "\n")
    return folder


@pytest.mark.parametrize(("words", "sentence"), ROWS, ids=[words[:60] for words, _ in ROWS])
def test_it_is_one_sentence(
    words: str, sentence: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--grammar" in words or "--json_schema" in words:
        pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    monkeypatch.chdir(home)
    assert main(["control", *words.split()]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("drawing: ")]
    assert len(said) == 1
    assert said[0].endswith(sentence)


def test_a_reward_of_minus_infinity_is_a_hard_constraint(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    assert main(["control", *f"{REWARDED}:without_a --n 20 --json true".split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["figures"]["log_z"]["value"] < 0
    assert found["texts"]
    assert not any("a" in text for text in found["texts"])


def test_prompts_of_a_long_file_are_not_held(tmp_path: Path) -> None:
    """100,000 of them, 13 bytes each in the file and five times that in memory; held are the sample and a buffer."""
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"prompt {number:05d}\n" for number in range(100_000)))
    tracemalloc.start()
    try:
        sample = reservoir(read_prompts(path), 100, Generator().manual_seed(0))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(set(sample)) == 100
    assert held < 300_000
