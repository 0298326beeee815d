"""`ebar serve`: a playground in the browser, for the runs of a folder and for pretrained models.

A page on this machine: pick a run or a model, type a prompt and constraints, and see the model's next words beside
those of the constrained one, draws with their weights, log Z and moments with intervals; and languages of which
everything is known exactly. It listens on this machine only, unless --host says otherwise, loads nothing from elsewhere
and writes nothing. Stop it with Ctrl-C.

Example:
    ebar serve
    ebar serve --runs elsewhere/runs --models HuggingFaceTB/SmolLM2-135M stories260K.bin --port 8000
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from ebar.bounds import Bound, Location
from ebar.config.reader import Manual, list_option, read
from ebar.errors import UserError
from ebar.serve.limits import Limits

MANUAL = Manual.of(__doc__)
Port = Annotated[int, Bound("from 0 to 65535", lambda value: 0 <= value <= 65535)]


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What is shown, and to whom."""

    runs: Path = Path("runs")
    """Folder of all runs."""
    models: tuple[Location, ...] = list_option(
        "FOLDER", lambda: "pretrained models besides: folders, hub names, .gguf or llama2.c .bin files"
    )
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: Port = 7860
    """Of the page; 0: any that is free."""
    names: tuple[str, ...] = list_option("NAME", lambda: "by which browsers may call this machine besides its address")
    limits: Limits = field(default_factory=Limits)


def main(words: Sequence[str]) -> int:
    """Serve until interrupted."""
    config = read(words, MANUAL, ServeConfig)
    if find_spec("gradio") is None:
        raise UserError("The playground needs gradio: pip install 'ebar[web]'.")
    from ebar.serve.catalogue import Catalogue
    from ebar.serve.playground import Playground
    from ebar.serve.server import serve

    os.environ.pop("EBAR_CACHE", None)  # what a page asks for is not kept on disk
    catalogue = Catalogue(runs=config.runs, models=config.models)
    if not catalogue.places():
        sys.stderr.write(f"{config.runs} has no run that can be shown here: only languages can be looked at.\n")
    return serve(
        Playground(catalogue, config.limits), host=config.host, port=config.port, names=config.names,
        ready=lambda address: sys.stdout.write(f"{address} (Ctrl-C ends it)\n") and sys.stdout.flush(),
    )  # fmt: skip
