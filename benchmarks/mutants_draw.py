"""Which mutants: those of a table, and those drawn by lot with Cosmic Ray's operators.

A mutant is known by its file, the function it is in, and the lines before and after, so that it is the same mutant when
lines above it move. The lot is cast by hashing the seed with that identity: when the code changes, mutants of lines
that stayed are drawn again.
"""

import ast
import difflib
import hashlib
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("maths", "samplers", "estimators", "objectives", "training/moment_matching", "evaluation")
ARITHMETIC, BITS = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"), ("BitOr", "BitAnd", "BitXor")
ORDERS = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
OPERATORS = (
    *(f"ReplaceBinaryOperator_{a}_{b}" for kind in (ARITHMETIC, BITS) for a in kind for b in kind if a != b),
    *(f"ReplaceComparisonOperator_{a}_{b}" for a in ORDERS for b in ORDERS if a != b),
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("USub", "Not", "Invert")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
SHOWN_ONLY = ("bar", "advance", "warn")  # calls that show something and compute nothing
AT_ONCE = (
    "BATCH",
    "BLOCK",
    "STEP",
    "batch",
    "batch_size",
    "rows_at_once",
)  # bounds on memory: no number depends on them
FunctionLike = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One changed place."""

    group: str  # "chosen" or "random"
    file: str  # below src/ebar
    function: str | None  # the outermost one that holds the whole change; None for what runs at import
    line: int
    before: str
    after: str
    why: str
    source: str  # the whole file, changed

    @property
    def identity(self) -> str:
        words = "\n".join((self.file, self.function or "", self.before, self.after))
        return hashlib.sha256(words.encode()).hexdigest()[:12]


def files(root: Path) -> list[Path]:
    """What is mutated."""
    folders = (root / "src" / "ebar" / folder for folder in FOLDERS)
    return sorted(path for folder in folders for path in folder.glob("*.py"))


def made(group: str, root: Path, path: Path, old: str, new: str, why: str) -> Mutant:
    """A mutant from a file's text before and after."""
    lines, changed = old.splitlines(), new.splitlines()
    blocks = [code for code in difflib.SequenceMatcher(None, lines, changed, False).get_opcodes() if code[0] != "equal"]
    first, last = blocks[0][1], max(blocks[-1][2], blocks[0][1] + 1)
    before = " ⏎ ".join(line.strip() for line in lines[first : blocks[-1][2]])
    after = " ⏎ ".join(line.strip() for line in changed[blocks[0][3] : blocks[-1][4]])
    name = enclosing(ast.parse(old), first + 1, last)
    file = str(path.relative_to(root / "src" / "ebar"))
    return Mutant(group, file, name, first + 1, before, after, why, new)


def enclosing(tree: ast.Module, first: int, last: int) -> str | None:
    """The qualified name of the outermost function whose body holds these lines."""

    def search(body: Iterable[ast.stmt], prefix: str) -> str | None:
        for node in body:
            if isinstance(node, FunctionLike) and node.body[0].lineno <= first and last <= (node.end_lineno or 0):
                return prefix + node.name
            if isinstance(node, ast.ClassDef) and (found := search(node.body, f"{prefix}{node.name}.")):
                return found
        return None

    return search(tree.body, "")


def chosen(root: Path, table: Path) -> tuple[list[Mutant], list[str]]:
    """The table's mutants, and a complaint for each whose text is not found exactly once."""
    found, stale = [], []
    for entry in tomllib.loads(table.read_text())["chosen"]:
        path = root / "src" / "ebar" / entry["file"]
        source = path.read_text() if path.exists() else ""
        if source.count(entry["before"]) != 1:
            stale.append(f"STALE: {entry['file']}: {entry['before']!r} is not there exactly once ({entry['why']})")
            continue
        changed = source.replace(entry["before"], entry["after"])
        compile(changed, str(path), "exec")
        found.append(made("chosen", root, path, source, changed, entry["why"]))
    return found, stale


def equivalents(table: Path) -> dict[tuple[str, str, str], str]:
    """Why some mutants cannot be told from the original, by file, line before and line after."""
    entries = tomllib.loads(table.read_text()).get("equivalent", [])
    return {(entry["file"], entry["before"], entry["after"]): entry["why"] for entry in entries}


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """Places drawn without replacement, all alike; at each, one of the operators that apply there."""
    ranked = sorted(position for path in files(root) for position in _positions(root, path, seed))
    found: dict[str, Mutant] = {}
    for position in ranked:
        if len(found) == count:
            break
        if mutant := _mutate(root, position, seed):
            found.setdefault(mutant.identity, mutant)
    return list(found.values())


@dataclass(frozen=True, order=True)
class _Position:
    lot: str
    path: Path
    alternatives: tuple[tuple[str, int], ...]  # operator and occurrence


def _lot(*words: object) -> str:
    return hashlib.sha256("\n".join(map(str, words)).encode()).hexdigest()


def _positions(root: Path, path: Path, seed: int) -> Iterator[_Position]:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    source = path.read_text()
    lines, tree = source.splitlines(), ast.parse(source)
    skipped = list(_skipped(tree, lines))
    nodes, provider = list(ast_nodes(get_ast(source))), OperatorProvider()
    at: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in OPERATORS:
        operator = provider[name]()
        places = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(places):
            if not any(low <= start < high for low, high in skipped):
                at.setdefault(start, []).append((name, occurrence))
    seen: dict[tuple[object, ...], int] = {}
    for (line, column), alternatives in sorted(at.items()):
        text = lines[line - 1]
        words = (
            path.relative_to(root),
            enclosing(tree, line, line),
            text.strip(),
            column - len(text) + len(text.lstrip()),
        )
        seen[words] = seen.get(words, -1) + 1
        yield _Position(_lot(seed, *words, seen[words]), path, tuple(alternatives))


def _mutate(root: Path, position: _Position, seed: int) -> Mutant | None:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    source, provider = position.path.read_text(), OperatorProvider()
    for name, occurrence in sorted(position.alternatives, key=lambda pair: _lot(seed, position.lot, *pair)):
        new = mutate_code(source, provider[name](), occurrence)
        try:
            if new is not None and ast.dump(ast.parse(new)) != ast.dump(ast.parse(source)):
                return made("random", root, position.path, source, new, name)
        except SyntaxError:
            continue
    return None


Span = tuple[tuple[int, int], tuple[int, int]]


def _skipped(tree: ast.Module, lines: list[str]) -> Iterator[Span]:
    """What says nothing about numbers: types, messages, decorators, progress, memory bounds, the strictness of zip."""

    def span(node: ast.expr | ast.stmt | ast.keyword) -> Span:
        ends = ((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0))
        # ast counts bytes, the tool characters.
        low, high = ((line, len(lines[line - 1].encode()[:column].decode())) for line, column in ends)
        return low, high

    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            yield span(node)
        elif isinstance(node, FunctionLike | ast.ClassDef):
            yield from (span(decorator) for decorator in node.decorator_list)
            if not isinstance(node, ast.ClassDef):
                # The signature but for its default values.
                defaults = sorted(span(value) for value in (*node.args.defaults, *node.args.kw_defaults) if value)
                starts = [(node.lineno, 0), *(end for _, end in defaults)]
                yield from zip(starts, [*(start for start, _ in defaults), span(node.body[0])[0]], strict=True)
                named = [*node.args.posonlyargs, *node.args.args][::-1]
                pairs = [
                    *zip(named, node.args.defaults[::-1], strict=False),
                    *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
                ]
                yield from (span(value) for argument, value in pairs if value and argument.arg in AT_ONCE)
        elif isinstance(node, ast.AnnAssign):
            yield span(node.annotation)
            if isinstance(node.target, ast.Name) and node.target.id in AT_ONCE:
                yield span(node)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            yield span(node)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in SHOWN_ONLY:
                yield span(node)
            elif name == "isinstance":
                yield span(node.args[1])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if (name[:1].isupper() and not name.isupper()) or name in AT_ONCE:  # an alias for a type, a bound
                yield span(node)


def with_tools(folder: Path) -> None:
    """Cosmic Ray lives beside the environment, not in it: only drawing needs it."""
    if folder.is_dir():
        sys.path.append(str(folder))
