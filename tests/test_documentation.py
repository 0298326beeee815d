"""What the documentation shows is what happens: every snippet runs, every command is accepted, every name exists.

In a page, every ```python block runs, all of them in one namespace, from an empty folder.

- `expression  # → value` is checked: numbers to 5e-7, everything else as text.
- A block whose first line is `# NAME.py` or `# NAME.yaml` is that file, for the commands of the page.
- `$ ebar …` in a plain block is run. What stands below it is its output; `ebar: …` there means exit code 2.
"""

import ast
import hashlib
import importlib
import math
import re
import shlex
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

import ebar
from ebar.cli import COMMANDS as COMMAND_TABLE
from ebar.cli import main
from ebar.config import reader
from ebar.errors import UserError
from ebar.journeys.gam.settings import Distillation
from ebar.recipes.spine import samplers
from ebar.samplers import SAMPLERS
from tests.example_files import write_example_files
from tests.test_layers import LAYERS
from tools import configuration, journeys

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARROW = "# → "
WRITTEN = "python.md"  # whose lines test_what_a_user_writes runs
TUTORIALS = "tutorials"  # whose notebooks test_tutorials runs


class Command(NamedTuple):
    page: Path
    words: list[str]
    output: list[str]  # what the page shows of it, if anything

    def __str__(self) -> str:
        return f"{self.page.stem}: {shlex.join(self.words)}"


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind.strip() == language]


def commands(page: Path) -> list[Command]:
    found: list[Command] = []
    for text in blocks(page, ""):
        shown: list[str] | None = None
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                shown = []
                if line.startswith("$ ebar "):
                    found.append(Command(page, shlex.split(line, comments=True)[2:], shown))
            elif shown is not None:
                shown.append(line.rstrip())
    return found


def named(page: Path) -> dict[str, str]:
    """The files a page shows."""
    texts = [*blocks(page, "python"), *blocks(page, "yaml")]
    return {found[1]: text for text in texts if (found := re.match(r"# (\w+\.(?:py|yaml))\n", text))}


def run(text: str, namespace: dict[str, Any]) -> int:
    """Run a block statement by statement; gives how many values were checked."""
    lines, checked = text.splitlines(), 0
    for statement in ast.parse(text).body:
        line = lines[(statement.end_lineno or 1) - 1]
        if not isinstance(statement, ast.Expr) or ARROW not in line:
            assert ARROW not in line, f"only an expression has a value: {line}"
            exec(compile(ast.Module([statement], []), "snippet", "exec"), namespace)
            continue
        value = eval(compile(ast.Expression(statement.value), "snippet", "eval"), namespace)
        assert same(value, line.partition(ARROW)[2].strip()), f"{line}\nis {value!r}"
        checked += 1
    return checked


def same(value: Any, shown: str) -> bool:
    if isinstance(value, list):
        parts = ast.literal_eval(shown)
        return len(parts) == len(value) and all(same(one, str(part)) for one, part in zip(value, parts, strict=True))
    if isinstance(value, float) and math.isfinite(value):
        return abs(value - float(shown)) <= 5e-7
    return str(value) == shown


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name != WRITTEN and page.parent.name != TUTORIALS],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_snippet_runs_and_gives_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_example_files(tmp_path)
    if page.name == "README.md":
        # Its journey is that of python.md, which test_what_a_user_writes runs: here r and π learn from little.
        assert (journey := "gam = ebar.gam(r.model, features, data)") in blocks(page, "python")[0]
        assert journey in blocks(ROOT / "docs" / WRITTEN, "python")[0]
        monkeypatch.setattr(ebar, "gam", partial(ebar.gam, distillation=Distillation(size=300, validation=100)))
        monkeypatch.setattr(ebar, "train", partial(ebar.train, training=ebar.Training(epochs=10)))
    namespace: dict[str, Any] = {"__name__": "snippet"}
    with patch.dict(SAMPLERS):  # to which a page may add its own
        assert sum(run(text, namespace) for text in blocks(page, "python")) == sum(
            text.count(ARROW) for text in blocks(page, "python")
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the commands ask for, a small trained run and data among it."""
    home = tmp_path_factory.mktemp("documentation")
    for page in PAGES:
        for name, text in named(page).items():
            (home / name).write_text(text)
    write_example_files(home)
    for name, more in OF_FILES.items():
        located = [str(home / word) if (home / word).is_file() else word for word in more]
        words = ["train", "--runs", str(home / "runs"), "--name", name, *located, "--backbone.heads", "2"]
        assert main([*words, *SMALL["train"][4:], "--json"]) == 0
    words = ["pretrain", "--runs", str(home / "runs"), "--name", "novels", "--data.train", str(home / "book.txt")]
    short = ["--data.length", "40", "--data.reuse", "16", "--backbone.heads", "2", "--training.batch_size", "4"]
    assert main([*words, *short, *SMALL["pretrain"], "--json"]) == 0
    words = ["residual", "train", "--runs", str(home / "runs"), "--name", "unit", "--base", str(home / "runs" / "text")]
    assert main([*words, *SMALL["residual"], "--json"]) == 0
    words = ["pretrain", "--runs", str(home / "runs"), "--name", "book", "--data.train", str(home / "book.txt")]
    words += ["--data.length", "32", "--data.reuse", "16", "--backbone.heads", "2", "--training.batch_size", "4"]
    assert main([*words, *SMALL["pretrain"], "--json"]) == 0
    words = ["finetune", "--runs", str(home / "runs"), "--name", "reviews", "--data.train", str(home / "reviews.tsv")]
    assert main([*words, "--from", str(home / "runs" / "book"), *SMALL["finetune"], "--json"]) == 0
    words = ["game", "train", "--runs", str(home / "runs"), "--name", "biased", "--data.mixture", "biased_gaussians"]
    assert main([*words, *SMALL["game"], "--json"]) == 0
    words = ["train", "--runs", str(home / "runs"), "--name", "motif", "--data.motif", "1011", "--data.length", "14"]
    assert main([*words, *SMALL["train"], "--json"]) == 0
    words = [
        "gam",
        "--runs",
        str(home / "runs"),
        "--data.motif",
        "1011",
        "--data.length",
        "8",
        "--features",
        "motif:1011",
    ]
    assert main([*words, *SMALL["gam"], "--json"]) == 0
    shutil.copytree(home / "runs" / "gam", home / "runs" / "mine")  # what README calls it
    return home


# Runs on files, for the commands that use one.
OF_FILES = {
    "text": ["--data.kind", "text", "--data.train", "book.txt", "--data.length", "16",
             "--backbone.kind", "transformer"],
    "de-en": ["--data.kind", "parallel", "--data.train", "pairs.tsv", "--backbone.kind", "encoder_decoder"],
}  # fmt: skip
# What makes a command quick, its meaning left as it is.
SMALL = {
    "train": ["--data.size", "20", "--data.test_size", "20", "--backbone.layers", "1", "--backbone.hidden", "4",
              "--training.epochs", "1"],
    "pretrain": ["--backbone.layers", "1", "--backbone.hidden", "4", "--training.epochs", "1"],
    "finetune": ["--training.epochs", "1"],
    "predict": [],
    "gam": ["--data.size", "20", "--data.test_size", "20", "--backbone.layers", "1", "--backbone.hidden", "4",
            "--base.epochs", "1", "--distillation.size", "20", "--distillation.validation", "20",
            "--continuation.epochs", "1", "--refinement.epochs", "1", "--matching.draws", "1000", "--checks", "500"],
    "game": ["--data.size", "100", "--training.batch_size", "50", "--training.epochs", "1"],
    "classify": ["--data.validation_size", "40", "--classifier.widths", "[8]", "--generator.widths", "[8]",
                 "--training.epochs", "1", "--training.batch_size", "20", "--training.samples", "20"],
    "infill": ["--orders", "4", "--pieces", "2"],
    "sample": ["--n", "20"],
    "distil": ["--n", "20"],
    "estimate": ["--n", "60"],
    "evaluate": [],
    "dynamic": ["--tokens", "60"],
    "decode": [],
    "residual": ["--energy.kind", "unit", "--data.prefix", "8", "--data.continuation", "4", "--training.epochs", "1",
                 "--evaluation.prefixes", "0"],
    "reproduce": ["--workers", "1", "--output", "results", "--work", "work"],
}  # fmt: skip


def quick(words: list[str]) -> list[str]:
    whole = {"--help", "--version", "language", "doctor", "diversity", "rate", "list", "show", "compare", "export"}
    if words[0] in whole or words == ["reproduce"]:
        return words
    if words[0] in {"residual", "game"} and words[1] != "train":
        return words
    more = SMALL[words[0]]
    if words[0] == "residual":
        return [*words, *more, "--runs", "trained-residual"]
    if words[0] in {"train", "gam", "pretrain", "finetune", "game", "classify"}:
        own = "--data.kind" in words
        # Pages use the same name for different runs, so each run has a folder of its own.
        place = hashlib.sha256(shlex.join(words).encode()).hexdigest()[:8]
        more = [*(more[4:] if own else more), "--runs", f"trained-{place}", "--json"]
    return [*words, *more]


# A command that several pages show is run once, with the output that one of them may show.
COMMANDS = {(*command.words, bool(command.output)): command for page in PAGES for command in commands(page)}
COMMANDS = {key: command for key, command in COMMANDS.items() if command.output or (*key[:-1], True) not in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=str)
def test_every_command_is_accepted_and_prints_what_the_page_says(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for leftover in folder.glob("distilled.txt*"):
        leftover.unlink()
    monkeypatch.setitem(samplers.SIZES, "demo", [5])
    monkeypatch.setitem(samplers.SEEDS, "demo", 2)
    refused = bool(command.output) and command.output[0].startswith("ebar: ")
    code = main(command.words if refused else quick(command.words))
    printed = capsys.readouterr()
    assert code == (2 if refused else 0), printed.err
    if command.output:
        told = printed.err if refused else printed.out
        assert [line.rstrip() for line in told.splitlines()] == command.output


def test_a_run_of_any_command_is_opened_by_what_it_is(folder: Path) -> None:
    kinds = {"motif": "Trained", "text": "Trained", "de-en": "Trained", "unit": "Residual", "gam": "Gam"}
    assert {name: type(ebar.load(folder / "runs" / name)).__name__ for name in kinds} == kinds
    opened = ebar.load(folder / "runs" / "gam")
    assert ebar.moments(ebar.draw(ebar.Importance(), opened.p, 50), [ebar.Motif("1011")])[0][0].value >= 0


def test_every_function_and_test_that_the_papers_page_names_exists():
    text = (ROOT / "docs" / "papers.md").read_text()
    tests = re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)
    assert tests
    for path, name in tests:
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    functions = re.findall(r"`(ebar\.[\w.]+)`", text)
    assert functions
    for function in functions:
        assert found(function) is not None, function


def found(dotted: str) -> Any:
    """What a dotted name means: a module, and attributes of it."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part, None)
        return value
    return None


def test_every_sampler_and_feature_of_the_tables_is_documented():
    from ebar.features import FEATURES
    from ebar.recipes import RECIPES

    tables: dict[str, Iterable[str]] = {
        "concepts/samplers.md": SAMPLERS,
        "concepts/models.md": FEATURES,
        "recipes.md": RECIPES,
    }
    for page, names in tables.items():
        text = (ROOT / "docs" / page).read_text()
        assert [name for name in names if f"\n| `{name}` |" not in text] == [], page
    text = (ROOT / "docs" / "command_line.md").read_text()
    assert [name for name in COMMAND_TABLE if " " not in name and f"| [`{name}`](#{name})" not in text] == []
    assert [kind for kind in FEATURES if kind != "accepted" and f"`{kind}:" not in text] == []


def test_no_page_speaks_of_papers_by_numbers_of_ours():
    for page in PAGES:
        assert not re.search(r"\bdocuments? 00\d", page.read_text(), re.IGNORECASE), page


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = [page.relative_to(ROOT / "docs") for page in PAGES[1:]]
    assert [page for page in pages if page.parts[0] != "results" and f": {page}\n" not in f"{navigation}\n"] == []


def test_every_key_of_every_command_is_in_the_reference():
    written, made = (ROOT / "docs" / "configuration.md").read_text(), configuration.page()
    differ = [line for line in [*written.splitlines(), *made.splitlines()] if (line in written) != (line in made)]
    assert differ[:5] == [], "run `make pages`"
    assert len(written) == len(made), "run `make pages`"


def test_the_ten_journeys_are_commands_that_are_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As far as their options go, at both sizes; `make release-test` runs them."""
    monkeypatch.chdir(tmp_path)
    assert [journey.number for journey in journeys.journeys()] == list(range(1, 11))
    read = reader._read
    asked: list[str] = []

    def only_read(words: Any, files: Any, manual: Any, *others: Any) -> Any:
        read(words, files, manual, *others)
        asked.append(manual.command)
        raise UserError("that is all")

    monkeypatch.setattr(reader, "_read", only_read)
    lines = [command for size in ("small", "real") for one in journeys.journeys(size) for command in one.commands]
    typed = [shlex.split(line)[1:] for line in lines if line.startswith("ebar ")]
    assert len(typed) > 40
    for words in typed:
        assert main(words) == 2
    assert len(asked) == len(typed)


def test_the_readme_begins_with_a_few_lines_of_code():
    first = blocks(ROOT / "README.md", "python")[0]
    assert len(first.strip().splitlines()) <= 10


def test_contributing_has_the_layers_and_the_benchmarks_as_they_are():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    shown = [
        [set(names.split(", ")) for names in line.split(" | ")]
        for line in FENCE.findall(text)[0][1].strip().splitlines()
    ]
    assert [sorted(map(sorted, line)) for line in shown] == [sorted(map(sorted, line)) for line in LAYERS]
    names = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if not path.stem.startswith("mutants")]
    assert [name for name in names if f"`{name}`" not in text] == []
    assert [name for name in TABLES if f"`{name}`" not in text] == []


TABLES = ["SAMPLERS", "FEATURES", "BACKBONES", "HEADS", "ENERGIES", "OBJECTIVES", "TOKENISERS", "DATA", "RECIPES",
                  "COMMANDS"]  # fmt: skip


def test_a_wrong_value_or_a_wrong_command_would_be_noticed():
    assert run("x = 1\nx + 0.5  # → 1.5", {}) == 1
    with pytest.raises(AssertionError, match="is 3"):
        run("1 + 2  # → 4", {})
    assert not same([1.0, [2.0]], "[1.0, [2.1]]")
    assert not same(float("inf"), "1.0")
    assert found("ebar.models.tilted.Titled") is None
