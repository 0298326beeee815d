"""The command line of a benchmark that needs nothing prepared: figures as lines, or as one JSON object."""

import argparse
import json
from collections.abc import Callable, Mapping


def run(description: str | None, measure: Callable[[], Mapping[str, float]]) -> None:
    """Print the figures, as one JSON object on the last line where asked."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--prepare", action="store_true", help="nothing to prepare: no trained model is needed")
    arguments = parser.parse_args()
    if arguments.prepare:
        return
    figures = measure()
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:45} {value:.4g}")
