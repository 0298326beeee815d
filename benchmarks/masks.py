"""Which tokens may come next: from an expression to masks over GPT-2's 50,257 tokens, against outlines-core and others.

Two ways, each from the text of an expression, with nothing kept from before: (a) for all states, as looking ahead
needs them; (b) for the states along a text of up to 50 tokens, made when they are reached, a mask at each step. The
vocabulary's trie, and the others' own form of the vocabulary, are made beforehand and timed apart. outlines-core makes
all states in both. xgrammar and llguidance, which make masks along a text, stand beside it.

Time is of the processor, in one thread, the best of 5; memory is what the process has grown by. `full` and `worst` are
the largest ratios to outlines-core over the six expressions, of (a) and of (b). `[0-9]` is written out, since `\\d` is
more than ten characters elsewhere, and `.` takes line breaks everywhere.

    EBAR_DATA=FOLDER python benchmarks/masks.py --json     # FOLDER has gpt2-bpe/encoder.json.xz

What is not installed (outlines-core 0.2.14, xgrammar 0.2.8, llguidance 1.9.1) is left out, and it is said.
"""

import argparse
import gc
import json
import lzma
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ebar.automata.expressions import compile_text
from ebar.automata.lift import OnDemand, byte_level, lift
from ebar.automata.trie import Trie
from ebar.features.rules import llguidance_tokeniser

WORDS = [
    "castle", "dragon", "rabbit", "forest", "river", "mountain", "garden", "kitchen", "window", "teacher", "doctor",
    "soldier", "sailor", "engine", "bridge", "tower", "market", "village", "island", "harbour", "captain", "winter",
    "summer", "autumn", "spring", "morning", "evening", "shadow", "silver", "golden", "purple", "orange", "yellow",
    "letter", "story", "number", "question", "answer", "picture", "mirror", "candle", "blanket", "basket", "bottle",
    "hammer", "ladder", "button", "pocket",
]  # fmt: skip
BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
TALE = (
    "Once upon a time there was a girl who lived in a small house at the end of a long road, and every day she went "
    "out to see the castle on the hill, where, as she knew, nobody had been in years."
)
TOKENS = 50  # of a text that is followed
MEGABYTE = 2**20


class Case(NamedTuple):
    """An expression, `{any}` standing for any character, and a text that begins as one that matches does."""

    expression: str
    text: str


CASES = {
    "date": Case("[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", "2024-05-17"),
    "ipv4": Case(rf"({BYTE}\.){{3}}{BYTE}", "192.168.17.204"),
    "email": Case(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", "jane.doe+lists@example.org"),
    "two_words": Case("{any}*(castle|dragon){any}*", TALE),
    "48_words": Case(f"{{any}}*({'|'.join(WORDS)}){{any}}*", TALE),
    "length": Case("{any}{100,200}", TALE),
}


class Library(Protocol):
    """Something that makes masks; its constructor makes ready what concerns the vocabulary alone."""

    def __init__(self, spellings: list[bytes | None], end: int): ...

    def every_state(self, expression: str) -> Any:
        """Whatever holds the masks of all states."""
        ...

    def along(self, expression: str, tokens: list[int]) -> list[int]:
        """A mask before each token: how many tokens the last ones allow, as far as it is cheap to say."""
        ...


class Ours:
    """ebar."""

    def __init__(self, spellings: list[bytes | None], end: int):
        self.trie = Trie.of(spellings)

    def every_state(self, expression: str) -> Any:
        return lift(compile_text(expression.replace("{any}", ".")), self.trie)

    def along(self, expression: str, tokens: list[int]) -> list[int]:
        automaton = OnDemand(compile_text(expression.replace("{any}", ".")), self.trie)
        state, masks = automaton.start, []
        for token in tokens:
            masks.append(automaton.allowed(state))
            state = int(automaton.row(state)[token])
        return [int(mask.sum()) for mask in masks[-1:]]


class OutlinesCore:
    """outlines-core."""

    def __init__(self, spellings: list[bytes | None], end: int):
        from outlines_core import Guide, Index, Vocabulary

        found: dict[bytes, list[int]] = {}
        for token, spelling in enumerate(spellings):
            if spelling is not None:
                found.setdefault(spelling, []).append(token)
        self.vocabulary, self.index, self.guide = Vocabulary(end, found), Index, Guide
        self.mask = np.zeros(-(-len(spellings) // 32), dtype=np.int32)

    def every_state(self, expression: str) -> Any:
        return self.index(expression.replace("{any}", "(?s:.)"), self.vocabulary)

    def along(self, expression: str, tokens: list[int]) -> list[int]:
        guide = self.guide(self.every_state(expression))
        for token in tokens:
            guide.write_mask_into(self.mask.ctypes.data, len(self.mask), 4)
            guide.advance(token, return_tokens=False)
        return [int(np.unpackbits(self.mask.view(np.uint8)).sum())]


class Xgrammar:
    """xgrammar."""

    def __init__(self, spellings: list[bytes | None], end: int):
        import xgrammar

        encoded = [b"" if spelling is None else spelling for spelling in spellings]
        information = xgrammar.TokenizerInfo(encoded, vocab_size=len(encoded), stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(information, max_threads=1, cache_enabled=False)
        self.matcher, self.mask = xgrammar.GrammarMatcher, xgrammar.allocate_token_bitmask(1, len(encoded))

    def every_state(self, expression: str) -> Any:
        return self.compiler.compile_regex(expression.replace("{any}", r"[\s\S]"))

    def along(self, expression: str, tokens: list[int]) -> list[int]:
        matcher = self.matcher(self.every_state(expression))
        for token in tokens:
            matcher.fill_next_token_bitmask(self.mask)
            assert matcher.accept_token(token)
        return [int(np.unpackbits(self.mask.numpy().view(np.uint8)).sum())]


class Llguidance:
    """llguidance, which makes every mask when it is asked for."""

    def __init__(self, spellings: list[bytes | None], end: int):
        import llguidance

        self.tokeniser, self.matcher = llguidance_tokeniser(spellings, end), llguidance.LLMatcher

    def every_state(self, expression: str) -> Any:
        return None

    def along(self, expression: str, tokens: list[int]) -> list[int]:
        grammar = self.matcher.grammar_from_regex(expression.replace("{any}", "(?s:.)"))
        matcher = self.matcher(self.tokeniser, grammar)
        mask = b""
        for token in tokens:
            mask = matcher.compute_bitmask()
            assert matcher.consume_token(token), matcher.get_error()
        return [int(np.unpackbits(np.frombuffer(mask, dtype=np.uint8)).sum())]


LIBRARIES: dict[str, type[Library]] = {
    "ebar": Ours, "outlines_core": OutlinesCore, "xgrammar": Xgrammar, "llguidance": Llguidance,
}  # fmt: skip
WITHOUT_STATES = ("llguidance",)


def best(do: Callable[[], Any], times: int) -> float:
    """Seconds of the processor."""
    found = []
    for _ in range(times):
        gc.collect()
        gc.disable()
        begun = time.process_time()
        kept = do()
        found.append(time.process_time() - begun)
        gc.enable()
        del kept
    return min(found)


def grown(do: Callable[[], Any]) -> float:
    """Megabytes that a child of this process holds more when it has done something."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        before = _resident()
        kept = do()
        os.write(writing, json.dumps((_resident() - before) / MEGABYTE).encode())
        del kept
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as lines:
        return float(lines.read() or "nan")


def _resident() -> int:
    """Bytes of its own: not those of libraries, which come in as they are used."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def split(text: str, spellings: list[bytes | None]) -> list[int]:
    """Tokens that spell it, each the longest that fits."""
    number = {spelling: token for token, spelling in enumerate(spellings) if spelling}
    rest = text.encode()
    found: list[int] = []
    while rest and len(found) < TOKENS:
        size = next(size for size in range(len(rest), 0, -1) if rest[:size] in number)
        found.append(number[rest[:size]])
        rest = rest[size:]
    return found


def measure(spellings: list[bytes | None], end: int, times: int) -> dict[str, Any]:
    """Milliseconds and megabytes of every library on every case, and the ratios of ours to outlines-core's."""
    found: dict[str, dict[str, Any]] = {}
    for name, kind in LIBRARIES.items():
        begun = time.process_time()
        try:
            library = kind(spellings, end)
        except ImportError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
            continue
        figures: dict[str, Any] = {"vocabulary_ms": 1000 * (time.process_time() - begun)}
        for case, (expression, text) in CASES.items():
            tokens = split(text, spellings)
            figures[case] = {"tokens": len(tokens), "allowed": library.along(expression, tokens)[-1]}
            figures[case]["along_ms"] = 1000 * best(lambda: library.along(expression, tokens), times)  # noqa: B023
            if name not in WITHOUT_STATES:
                figures[case]["every_ms"] = 1000 * best(lambda: library.every_state(expression), times)  # noqa: B023
                figures[case]["every_mb"] = grown(lambda: library.every_state(expression))  # noqa: B023
            print(f"{name:14} {case:10} {_shown(figures[case])}", file=sys.stderr)
        found[name] = figures
    return {**_ratios(found), "libraries": found}


def _shown(figures: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in figures.items())


def _ratios(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    if "outlines_core" not in found:
        return {}
    ours, theirs = found["ebar"], found["outlines_core"]
    along = {case: ours[case]["along_ms"] / theirs[case]["along_ms"] for case in CASES}
    every = {case: ours[case]["every_ms"] / theirs[case]["every_ms"] for case in CASES}
    each = {f"{name}_{case}": ratios[case] for name, ratios in (("along", along), ("every", every)) for case in CASES}
    return {"worst": max(along.values()), "full": max(every.values()), **each}


def main() -> int:
    """Read the vocabulary and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--prepare", action="store_true", help="nothing to prepare: no trained model is needed")
    parser.add_argument("--times", type=int, default=5, help="of which the best counts")
    arguments = parser.parse_args()
    path = Path(os.environ.get("EBAR_DATA", ".")) / "gpt2-bpe" / "encoder.json.xz"
    if arguments.prepare:
        return 0
    if not path.exists():
        print(f"left out: there is no {path}, GPT-2's vocabulary; EBAR_DATA names the folder of data", file=sys.stderr)
        return 0
    numbers = json.loads(lzma.decompress(path.read_bytes()))
    *tokens, special = sorted(numbers, key=numbers.__getitem__)
    figures = measure([*byte_level(tokens), None], numbers[special], arguments.times)
    if arguments.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        if name != "libraries":
            print(f"{name:20} {value:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
