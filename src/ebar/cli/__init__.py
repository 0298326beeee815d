"""The command line. Nothing heavy is imported until a command is chosen, so `ebar --help` answers at once."""

import importlib
import os
import sys
from collections.abc import Sequence

from ebar.errors import UserError

# One file per command in this folder, with `main(arguments) -> int`.
COMMANDS = {
    "language": "define a language exactly: counts, entropy, samples, comparison",
    "train": "fit an autoregressive model to a language or to your own data",
    "gam": "from a little data and a hunch about features to a better model",
    "residual": "a discriminator as part of a language model: train, evaluate, generate, explain",
    "control": "make features of a pretrained model's text come true: fit, sample, tune",
    "sample": "draw from a trained model, or from the model tilted by an energy",
    "decode": "translate or continue lines: beam search, greedy, sampling, energy resampling",
    "distil": "draws of a tilted model, to a file to train on; stopped at any instant, it goes on",
    "evaluate": "cross-entropy and feature frequencies of a trained model, with intervals",
    "estimate": "log Z, moments and divergences of a tilted model, with intervals",
    "reproduce": "run a published table or figure again, at scale demo, cpu or paper",
    "doctor": "what is installed, what is missing and how to get it",
}

USAGE = """usage: ebar COMMAND [OPTIONS]

Sequence models that carry an energy: train, sample and measure them.

commands:
{commands}

`ebar COMMAND --help` shows a command's options and an example.
options: --help, --version

example: ebar language --motif 10001011111000 --length 30
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done. 2: something the user can mend, told in one sentence. 130: interrupted, state saved."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in {"-h", "--help"}:
        listing = "\n".join(f"  {name:<10} {purpose}" for name, purpose in COMMANDS.items())
        sys.stdout.write(USAGE.format(commands=listing))
        return 0
    if words[0] == "--version":
        from ebar import __version__

        sys.stdout.write(f"ebar {__version__}\n")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise UserError(f"There is no command {words[0]!r}: choose one of {', '.join(COMMANDS)}.")
        command = importlib.import_module(f"ebar.cli.{words[0]}")
        return int(command.main(words[1:]))
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":  # of several processes, one tells
            sys.stderr.write(f"ebar: {' '.join(str(error).split())}\n")
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        sys.stderr.write("ebar: There is not enough memory for this: ask for less at a time, or for a smaller model.\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("ebar: interrupted.\n")
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`ebar sample | head`): not an error of ours.
        sys.stderr.close()
        return 0


def entry() -> None:
    """What the `ebar` script calls."""
    import warnings

    # A warning is a sentence for the user, without the line of our code it came from.
    warnings.showwarning = lambda message, *_, **__: print(f"ebar: warning: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(main())
