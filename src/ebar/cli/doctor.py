"""`ebar doctor`: what is installed, what is missing and how to get it.

What is installed, what is missing and how to get it.

Example:
    ebar doctor --json
"""

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata

from ebar.config.reader import Answer, Manual, read

PURPOSES = {
    "core": "models, automata, samplers, estimators, training",
    "report": "plots and report pages",
    "sweep": "draws and recipes on all cores of one machine, and sweeps",
    "log": "TensorBoard beside the metrics file",
    "hf": "pretrained models and their tokenisers",
    "data": "data sets by name",
    "metrics": "BLEU, ROUGE, METEOR",
    "cluster": "recipes on several machines",
    "web": "the playground",
    "grammar": "context-free grammars and JSON schemas as rules of texts",
}


MANUAL = Manual.of(__doc__)


def main(words: Sequence[str]) -> int:
    """Look around, change nothing."""
    arguments = read(words, MANUAL, Answer)
    found = findings()
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        _show(found)
    return 0 if not found["extras"]["core"]["missing"] else 1


def findings() -> dict[str, dict[str, dict[str, object]]]:
    """Everything `doctor` knows, as plain data."""
    extras: dict[str, dict[str, object]] = {}
    wanted = _requirements()
    for extra, purpose in PURPOSES.items():
        versions = {package: _version(package) for package in wanted[extra]}
        missing = [package for package, version in versions.items() if version is None]
        get = None if not missing else "pip install ebar" if extra == "core" else f"pip install 'ebar[{extra}]'"
        extras[extra] = {"purpose": purpose, "installed": versions, "missing": missing, "get": get}
    folders: dict[str, object] = {}
    for variable in ("EBAR_DATA", "EBAR_ORACLES"):
        folder = os.environ.get(variable)
        folders[variable] = "not set" if folder is None else folder if os.path.isdir(folder) else f"{folder}: no folder"
    return {
        "machine": {
            "ebar": {"version": _version("ebar")},
            "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
            "system": {"platform": platform.platform(), "cores": os.cpu_count(), "accelerator": _accelerator()},
            "disk": {"free_gigabytes": round(shutil.disk_usage(".").free / 1e9, 1)},
            "folders": folders,
            "wordnet": {"METEOR": _meteor() or "installed"},
        },
        "extras": extras,
    }


def _requirements() -> dict[str, list[str]]:
    """The packages each extra asks for, as the installed metadata says."""
    wanted: dict[str, list[str]] = {extra: [] for extra in PURPOSES}
    for line in metadata.requires("ebar") or []:
        package = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        name = extra.group(1) if extra else "core"
        if package and name in wanted:
            wanted[name].append(package.group())
    return wanted


def _meteor() -> str | None:
    """What METEOR lacks: words have synonyms in WordNet, which no package of Python brings along."""
    if _version("torch") is None:
        return "unknown without torch"
    from ebar.evaluation.translation import missing_for_meteor

    return missing_for_meteor()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _accelerator() -> str:
    if _version("torch") is None:
        return "unknown without torch"
    import torch

    return f"CUDA, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "none"


def _show(found: dict[str, dict[str, dict[str, object]]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for part, values in found["machine"].items():
        console.print(f"[bold]{part}[/]: " + escape(", ".join(f"{name} {value}" for name, value in values.items())))
    table = Table("extra", "what for", "state", "how to get it")
    for extra, values in found["extras"].items():
        missing = values["missing"]
        state = f"[yellow]without {', '.join(missing)}[/]" if isinstance(missing, list) and missing else "complete"
        table.add_row(extra, str(values["purpose"]), state, escape(str(values["get"] or "")))
    console.print(table)
