"""Where in a text its features are: spans to mark."""

from collections.abc import Sequence

import torch

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression
from ebar.data.tokenisers import Alphabet
from ebar.features.counts import NgramCount
from ebar.features.feature import Feature
from ebar.features.functions import Predicate
from ebar.features.regular import Expression, Motif, StartsWith
from ebar.report.page import Span
from ebar.types import Sequences


def title_of(feature: Feature) -> str:
    """What is marked: the thing itself, whether its presence or its absence is the feature."""
    return f"starts with {feature.prefix}" if isinstance(feature, StartsWith) else feature.name.removeprefix("no ")


def spans_in(line: str, features: Sequence[Feature], alphabet: Alphabet) -> list[Span]:
    """Non-overlapping spans, each with its feature's number; of two at a place the shorter is marked."""
    found = [(number, span) for number, feature in enumerate(features) for span in occurrences(line, feature, alphabet)]
    owners = [-1] * len(line)
    for number, (start, stop) in sorted(found, key=lambda one: (one[1][0] - one[1][1], -one[0])):
        owners[start:stop] = [number] * (stop - start)
    spans: list[Span] = []
    start = 0
    for place in range(1, len(line) + 1):
        if place == len(line) or owners[place] != owners[start]:
            if owners[start] >= 0:
                spans.append((start, place, owners[start]))
            start = place
    return spans


def occurrences(line: str, feature: Feature, alphabet: Alphabet) -> list[tuple[int, int]]:
    """Every place of a motif, a prefix, an n-gram or an expression; the whole line where a function of it holds."""
    if isinstance(feature, Motif):
        return _places(line, feature.motif)
    if isinstance(feature, NgramCount):
        return _places(line, feature.ngram)
    if isinstance(feature, StartsWith):
        return [(0, len(feature.prefix))] if line.startswith(feature.prefix) else []
    if isinstance(feature, Expression):
        dfa = compile_expression(feature.expression, alphabet.symbols, anywhere=False)
        return _matches(alphabet.encode(line), dfa, whole=feature.whole)
    if isinstance(feature, Predicate):
        tokens = torch.tensor([alphabet.encode(line)], dtype=torch.long).reshape(1, len(line))
        holds = feature(Sequences(tokens, torch.tensor([len(line)])))
        return [(0, len(line))] if line and float(holds[0]) else []
    return []


def _places(line: str, part: str) -> list[tuple[int, int]]:
    return [(at, at + len(part)) for at in range(len(line)) if line.startswith(part, at)]


def _matches(tokens: list[int], dfa: Dfa, *, whole: bool) -> list[tuple[int, int]]:
    """From left to right the longest matches that do not overlap."""
    table, accepting = dfa.table.tolist(), dfa.accepting.tolist()
    found, start = [], 0
    while start < len(tokens):
        state, stop = dfa.start, start
        for place in range(start, len(tokens)):
            state = table[state][tokens[place]]
            if accepting[state]:
                stop = place + 1
        if stop > start and (not whole or stop == len(tokens)):
            found.append((start, stop))
        if whole:
            break
        start = max(stop, start + 1)
    return found
