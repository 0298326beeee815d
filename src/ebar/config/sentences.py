"""What a parser of options or of YAML complains of, as one plain sentence that says where and what to do."""

import difflib
import re
from collections.abc import Sequence

import yaml

# What PyYAML says, and what it mostly means.
YAML_TROUBLES = {
    "'\\t'": "a tab stands where blanks must: indent with blanks",
    "mapping values are not allowed": "there is a colon too many, or the line is indented too far: put a text that "
    "holds a colon in quotes",
    "expected <block end>": "it is not indented as the lines around it: indent options of one group alike",
    "could not find expected ':'": "an option has no value: write `name: value`",
    "expected ',' or": "a bracket, a brace or a comma is missing: close what was opened",
    "found unexpected end of stream": "a quote is not closed: close it",
    "while scanning a quoted scalar": "a quote is not closed: close it",
}
TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "tuple": "a list",
         "list": "a list", "Mapping": "a group of options like '{hidden: 64}'", "Path": "a file or folder"}  # fmt: skip
NOT_EXPECTED = re.compile(
    r"'(\S+)' does not accept option '([^']+)'|[Kk]ey [\"']?([\w.]+)[\"']? is not expected|Option '([^']+)' is not acc"
)
WRONG_TYPE = re.compile(r'Parser key "([\w.]+)"(?: element \d+)?: (.*)', re.DOTALL)
GIVEN = re.compile(r"(?:Got value|Given value): (.*)$", re.DOTALL)


def yaml_sentence(name: str, error: Exception) -> str:
    """Of a configuration that cannot be read: its file, the line, and what is wrong there."""
    if isinstance(error, FileNotFoundError):
        return f"There is no configuration {name}: give a YAML file that exists."
    if isinstance(error, OSError):
        return f"The configuration {name} cannot be read ({error.strerror}): give a YAML file."
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"The configuration {name} is no text that can be read as YAML: save it as UTF-8."
    mark = error.problem_mark or error.context_mark
    line = "" if mark is None else f", line {mark.line + 1}"
    said = " ".join(f"{error.context or ''} {error.problem or ''}".split())
    known = next((words for part, words in YAML_TROUBLES.items() if part in said), f"it is no YAML ({said})")
    return f"{name}{line}: {known}."


def line_of(text: str, key: str) -> int | None:
    """The line of a YAML text on which an option stands, `group.option`; None where it has none."""
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for part in key.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        found = [(name, value) for name, value in pairs if name.value == part]
        if not found:
            return None
        name, node = found[-1]
        line = int(name.start_mark.line) + 1
    return line


def place_of(key: str, files: Sequence[tuple[str, str]]) -> str:
    """The file and line that an option was given in, before a sentence about it; nothing for one given as a flag."""
    for name, text in files:
        if (line := line_of(text, key)) is not None:
            return f"{name}, line {line}: "
    return ""


def sentence_of(message: str, command: str, known: Sequence[str], files: Sequence[tuple[str, str]] = ()) -> str:
    """jsonargparse's message as one sentence of our own."""
    said = re.sub(r"\s+", " ", message).strip().rstrip(".")
    if unknown := NOT_EXPECTED.search(said):
        group, option, *whole = unknown.groups()
        key = next(filter(None, whole), f"{group}.{option}")
        return f"{place_of(key, files)}There is no option {key!r}: {nearest('--' + key, known)}"
    if wrong := WRONG_TYPE.match(said):
        key, why = wrong.groups()
        value = GIVEN.search(why)
        if "Unable to load config" in why:
            member = next((name for name in known if name.startswith(f"--{key}.")), f"--{key}.NAME")
            return f"{key} is a group of options: give them one by one, such as {member}."
        wanted = _wanted(why)
        if wanted and value:
            return f"{place_of(key, files)}{key} must be {wanted}, not {value[1].strip()!r}."
    if missing := re.search(r"arguments are required: (.*)", said):
        names = missing[1].split(", ")
        told = " and ".join(f"--{name}" if f"--{name}" in known else name.upper() for name in names)
        return f"`ebar {command}` needs {told}: give it, or see `ebar help {command}`."
    if extra := re.search(r"unrecognized arguments: (.*)", said):
        return f"Nothing is known of {extra[1]!r}: leave it out, or put quotes around a text with blanks."
    if alone := re.search(r"argument (\S+): expected", said):
        return f"{alone[1]} needs a value: give one after it."
    return f"{said}."


def nearest(wanted: str, known: Sequence[str]) -> str:
    """The options that an unknown one may mean."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    if "." not in wanted:  # an option of a group, without the group
        near = [name for name in known if name.endswith(f".{wanted.removeprefix('--')}")] or near
    if near:
        return f"did you mean {' or '.join(near[:3])}?"
    siblings = [name for name in known if name.startswith(wanted.partition(".")[0] + ".")] if "." in wanted else []
    listed = sorted(siblings or (name for name in known if "." not in name and name.startswith("--")))
    rest = "" if len(listed) <= 12 else ", …"
    return f"the options are {', '.join(listed[:12])}{rest}."


def _wanted(why: str) -> str | None:
    """A type as words."""
    if literal := re.search(r"Literal\[([^\]]*)\]", why):
        *rest, last = [name.strip().strip("'\"") for name in literal[1].split(",")]
        return f"{', '.join(rest)} or {last}" if rest else last
    names = re.findall(r"Expected a <class '(?:[\w.]*\.)?(\w+)'>", why)
    found = [TYPES[name] for name in names if name in TYPES]
    return " or ".join(dict.fromkeys(found)) or None
