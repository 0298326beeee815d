"""The layers of the design hold: each may import from those above it, siblings joined by | may not."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ebar"

# Each line may import from the lines above. Within a line, names in different sets may not import each other.
LAYERS: list[list[set[str]]] = [
    [
        {
            "bounds",
            "devices",
            "errors",
            "hugging_face",
            "modes",
            "progress",
            "shapes",
            "shards",
            "store",
            "tables",
            "together",
            "types",
            "maths",
        }
    ],
    [{"automata"}],
    [{"data"}, {"features"}, {"backbones"}, {"heads"}],
    [{"energies"}, {"models"}],
    [{"samplers"}, {"estimators"}, {"objectives"}],
    [{"training"}, {"evaluation"}, {"report"}],
    [{"journeys"}],
    [{"testing"}],
    [{"config", "build"}],
    [{"recipes"}],
    [{"cli", "serve"}],
]
PLACE = {name: (depth, names) for depth, line in enumerate(LAYERS) for names in line for name in names}


def allowed(importer: str, imported: str) -> bool:
    depth, together = PLACE[importer]
    return imported in together or PLACE[imported][0] < depth


def imports(path: Path) -> set[str]:
    """Top-level parts of ebar that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "ebar" else []
            modules += [node.module or ""]
        found |= {module.split(".")[1] for module in modules if module.startswith("ebar.")}
    return found - {"__version__"}


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_the_layers_above_it(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in PLACE, f"{own} has no place in the layers"
    wrong = {name for name in imports(path) if not allowed(own, name)}
    assert not wrong, f"{own} may not import {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("samplers", "estimators", False),
        ("models", "samplers", False),
        ("cli", "types", True),
        ("energies", "features", True),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(importer: str, imported: str, expected: bool) -> None:
    assert allowed(importer, imported) is expected


def test_nothing_is_ever_unpickled() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.split(".")[0] for alias in node.names} | {getattr(node, "module", None) or ""}
                assert not names & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}, path
            if isinstance(node, ast.Attribute) and node.attr in {"load", "save"}:
                assert not (isinstance(node.value, ast.Name) and node.value.id == "torch"), path
