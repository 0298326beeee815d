"""The command line. Nothing heavy is imported until a command is chosen, so `ebar --help` answers at once."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from ebar.errors import UserError
from ebar.tables import Table, import_plug_ins


class Command:
    """A command of this folder, imported when it is run: `main(words) -> int` in the file of its name.

    Of one that has parts there are words about them all, and each is a function of that file: `ebar residual train` is
    `train` in `residual.py`. Another `place` is named, `FILE.FUNCTION`.
    """

    def __init__(self, help: str, *, about: str = "", example: str = "", place: str = ""):
        self.__doc__ = help
        self.place = place
        self.about = about
        self.example = example

    def load(self, name: str) -> Callable[[Sequence[str]], int]:
        """What runs it."""
        file, _, function = (self.place or name.replace(" ", ".")).partition(".")
        found: Callable[[Sequence[str]], int] = getattr(importlib.import_module(f"ebar.cli.{file}"), function or "main")
        return found


# A line here, and a file of that name, is a command. From outside: `COMMANDS["mine"] = main`.
COMMANDS: Table[Command | Callable[[Sequence[str]], int]] = Table(
    "command",
    {
        "help": Command("what a command is for, its options and an example"),
        "list": Command("the runs of a folder: kind, data, step, best figure, finished or not", place="list_runs"),
        "show": Command("what a run is, its curves as a page, and what can be done with it next", place="show_run"),
        "language": Command("define a language exactly: counts, entropy, samples, comparison"),
        "train": Command("fit an autoregressive model to a language or to your own data"),
        "pack": Command("the tokens of a text larger than memory, on disk: by many processes, resumable"),
        "sweep": Command("many runs with other values of some options, weak ones given up: the best one's command"),
        "pretrain": Command("fit an XLNet to your own text: tokens predicted in any order, to be fine-tuned"),
        "finetune": Command("teach a pretrained network a labelled task: classes, numbers, answers, rankings, choices"),
        "predict": Command("what a fine-tuned run says of new texts, one per line of a file"),
        "classify": Command("learn to classify images from few labels, beside a generator of bad samples"),
        "infill": Command("words for the gaps of a text, with log-probabilities and intervals over orders"),
        "gam": Command("from a little data and a hunch about features to a better model"),
        "residual": Command(
            "a discriminator as part of a language model: train, evaluate, generate, explain",
            about="""P(x|C) = q(x|C)·exp(−E(x, C)): a language model q that you have, any of Hugging Face's or one of
ebar's, and an energy E that has learnt to tell q's continuations x of prefixes C from those that people wrote.""",
            example="ebar residual train --name mine --base runs/text --energy.kind unit --data.prefix 60 "
            "--data.continuation 20",
        ),
        "residual train": Command("an energy on a base, by telling text from the base's own continuations"),
        "residual evaluate": Command("perplexity interval beside the base, log Z of each prefix, energies, n-grams"),
        "residual generate": Command("continue a prompt with the joint model: text, energies, weights, diagnostics"),
        "residual explain": Command("the likeliest next words under the base and under the joint model"),
        "control": Command(
            "make features of a pretrained model's text come true: check, fit, prompts, sample, tune, reward",
            about="P(x) = q(x)·exp⟨λ, φ(x)⟩: constraints φ on the text of any causal language model q, GDC's way.",
            example="""\
ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
  ebar control sample runs/rabbits --n 5
  ebar control tune runs/rabbits --steps 300 --learning_rate 0.001""",
        ),
        "control check": Command("how far constraints bend a model, in one table, before anything is fitted"),
        "control fit": Command("find how much each feature must count, and check it on fresh draws"),
        "control prompts": Command("constraints on what follows each prompt of a file, in bounded memory"),
        "control sample": Command("draw text of the controlled model, with weights"),
        "control tune": Command("make a model of its own of it, by policy gradient or from its texts"),
        "control reward": Command(
            "what a reward of texts can come to, and how far from the model; best-of-n beside",
            place="control_texts.towards",
        ),
        "control grammar": Command(
            "texts that obey a grammar, a JSON schema or an expression, with weights", place="control_texts.within"
        ),
        "game": Command(
            "a generator and an energy trained against each other, on points or images: train, sample, rank",
            about="""A generator draws, an energy tells its draws from the data; with an entropy in the generator's cost
the energy keeps the density of the data, −α·log p (calibrated energy GAN), where without one it becomes flat.""",
            example="""\
ebar game train --name biased --data.mixture biased_gaussians --entropy.weight 0.15 --costs.margin 10
  ebar game sample runs/biased --n 5
  ebar game rank runs/biased --n 10""",
        ),
        "game train": Command("train both players; a game that fails is halted, its last good state kept"),
        "game sample": Command("draws of the generator: points as text, images as a PNG sheet"),
        "game rank": Command("data by energy, the likeliest first"),
        "sample": Command("draw from a trained model, or from the model tilted by an energy"),
        "decode": Command("translate or continue lines: beam search, greedy, sampling, energy resampling"),
        "distil": Command(
            "draws of a tilted model, to a file to train on; stopped at any instant, it goes on", place="tilted.to_file"
        ),
        "evaluate": Command("cross-entropy and feature frequencies of a trained model, with intervals"),
        "dynamic": Command("the perplexity of a text for a model that goes on learning from it, with intervals"),
        "compare": Command("two runs on the same test items, paired, with intervals; per byte where tokens differ"),
        "export": Command("the best weights of a run, for transformers or as safetensors"),
        "push": Command("a finished run, to the hub of Hugging Face", place="hub.push"),
        "pull": Command("a run that `ebar push` put on the hub of Hugging Face", place="hub.pull"),
        "estimate": Command(
            "log Z, moments and divergences of a tilted model, with intervals", place="tilted.figures_of"
        ),
        "diversity": Command("how alike the lines of a file are: distinct n-grams, self-BLEU"),
        "rate": Command(
            "which of two texts people find better, without knowing whose they are: make, read",
            about="A page of blinded pairs to send to raters, and the sign test of the files that they send back.",
            example="""ebar rate make --prompts prompts.txt --ours joint.txt --theirs base.txt --output pairs.html
  ebar rate read pairs.key.json --ratings ratings-*.json""",
        ),
        "rate make": Command("the page, and the key that tells which text is whose"),
        "rate read": Command("how often ours was preferred, from the ratings and the key", place="rate.ratings"),
        "reproduce": Command("run a published table or figure again, at scale demo, cpu or paper"),
        "serve": Command("a playground in the browser: words of a model and of its energy, side by side"),
        "doctor": Command("what is installed, what is missing and how to get it"),
    },
)

USAGE = """usage: ebar COMMAND [OPTIONS]

Sequence models that carry an energy: train, sample and measure them.

commands:
{listing}

`ebar help COMMAND` shows a command's options and an example.
options: --help, --version
EBAR_PLUGINS=MODULE,… imports modules first, which add samplers, features, commands … of your own to the tables.

example: ebar language --motif 10001011111000 --length 30
"""

PARTS = """usage: ebar {name} PART [OPTIONS]

{about}

parts:
{listing}

`ebar {name} PART --help` shows a part's options and an example.

example:
  {example}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done. 2: an error the user can correct, in one sentence. 130: interrupted, state saved."""
    try:
        return dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":  # of several processes, one prints it
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


def dispatch(words: Sequence[str]) -> int:
    """Run a command; errors are the caller's."""
    import_plug_ins()
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE.format(listing=_listing("")))
        return 0
    if words[0] == "--version":
        from ebar import __version__

        sys.stdout.write(f"ebar {__version__}\n")
        return 0
    name, rest = words[0], list(words[1:])
    entry = command_named(name)
    if parts := _listing(f"{name} "):
        if not rest or rest[0] in ("-h", "--help"):
            assert isinstance(entry, Command)
            sys.stdout.write(PARTS.format(name=name, about=entry.about, listing=parts, example=entry.example))
            if rest:
                raise SystemExit(0)  # as every parser's help does
            return 0
        name, rest = f"{name} {rest[0]}", rest[1:]
        if name not in COMMANDS:
            options = [other.partition(" ")[2] for other in COMMANDS if other.startswith(f"{words[0]} ")]
            raise UserError(f"There is no part {words[1]!r} of `ebar {words[0]}`: choose one of {', '.join(options)}.")
        entry = COMMANDS[name]
    if isinstance(entry, Command):
        entry = entry.load(name)
    return int(entry(rest))


def command_named(name: str) -> Command | Callable[[Sequence[str]], int]:
    """A command of the table, without parts; an unknown name is an error that tells the nearest."""
    if name in COMMANDS:
        return COMMANDS[name]
    import difflib

    near = difflib.get_close_matches(name, [known for known in COMMANDS if " " not in known], n=2)
    meant = f"did you mean {' or '.join(near)}" if near else "`ebar --help` lists them"
    raise UserError(f"There is no command called {name!r}: {meant}{'?' if near else '.'}")


def _listing(before: str) -> str:
    """The commands whose names begin so, without their parts, and what each is for."""
    names = [name for name in COMMANDS if name.startswith(before) and " " not in name.removeprefix(before)]
    width = max((len(name) - len(before) for name in names), default=0)
    return "\n".join(f"  {name.removeprefix(before):<{width}}  {COMMANDS.help(name)}" for name in names)


def entry() -> None:
    """What the `ebar` script calls."""
    import warnings

    # A warning is a sentence for the user, without the line of our code it came from.
    warnings.showwarning = lambda message, *_, **__: print(f"ebar: warning: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(main())
