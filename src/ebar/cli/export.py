"""`ebar export`: the best weights of a run, for transformers or as safetensors.

The best weights of a run, for transformers (hf) or as safetensors. A Transformer of ebar's with a softmax becomes a
GPT-2 with the same logits, which AutoModelForCausalLM and AutoTokenizer read with no code but their own: the beginning
of a text is its last token, positions are a table. An XLNet becomes an XLNet; the tuned model of `ebar control` is what
it was. Other networks can be exported as safetensors, with their configuration and tokeniser beside them.

Example:
    ebar export runs/text --to hf
    ebar export runs/motif --to safetensors --output weights
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.build.export import export_run
from ebar.cli.show import show_json
from ebar.config.reader import Answer, Manual, argument, read
from ebar.journeys.export import To

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Answer):
    """What, and where to."""

    run: Path = argument()
    """Folder of a trained run."""
    to: To = "hf"
    """For whom."""
    output: Path | None = None
    """Folder to write, new or empty; by default RUN/hf or RUN/safetensors."""


def main(words: Sequence[str]) -> int:
    """Write it, and say what is in it."""
    config = read(words, MANUAL, ExportConfig)
    done = export_run(config.run, to=config.to, output=config.output)
    if config.json:
        show_json(done._asdict())
        return 0
    if done.difference is not None:
        sys.stdout.write(f"logits differ by at most {done.difference:.1e} from those of the run\n")
    if done.to == "hf" and not done.tokenizer:
        sys.stdout.write("without tokenizer files: transformers has none like the tokeniser of this run\n")
    sys.stdout.write(f"{done.folder}\n")
    return 0
