"""The tokens of a text, and what a proposal that looks ahead foresees of each."""

import math

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.samplers.guided import Guided
from ebar.serve.found import Part


def parts_ahead(ahead: Guided, reading: Reading, tokens: list[int]) -> list[Part]:
    """log h after each token less log h before it: over a whole x they sum to −E(x) − log h₀ where all is followed.

    h is what the look-ahead expects e⁻ᴱ to come to. −∞: after this token nothing that is wanted can come true.
    """
    states, tokens = ahead.states, tokens[: ahead.states.space.length]
    state, before, found = 0, float(ahead.log_ahead[0, 0]), []
    for place, token in enumerate(tokens):
        if token == reading.end:
            after = float(ahead.log_final[state])
        else:
            state = int(states.successor[state, int(states.class_of[token])])
            after = float(ahead.log_ahead[place + 1, state])
        value = after - before if before > -math.inf else 0.0
        found.append(Part(_spelt(reading, tokens, place), value))
        before = after
    return found


def encoded(reading: Reading, text: str) -> list[int]:
    """A text that goes on from the prompt, in the model's tokens; a tokeniser may put a blank of its own before it."""
    if reading.encode is None:
        raise UserError("Nothing is known of how this model's tokens encode a text.")
    ways = [reading.encode(text), reading.encode(text.removeprefix(" "))]
    return next((way for way in ways if reading.text(way) == text), ways[0])


def spellings(reading: Reading, vocabulary: int) -> list[str]:
    """Each token as text by itself."""
    spelt = reading.spellings or [None] * vocabulary
    return [
        "(end)" if token == reading.end else one.decode(errors="replace") if one else reading.text([token])
        for token, one in enumerate(spelt)
    ]


def _spelt(reading: Reading, tokens: list[int], place: int) -> str:
    """What a token adds to the text before it."""
    if tokens[place] == reading.end:
        return "[end]"
    before, after = reading.text(tokens[:place]), reading.text(tokens[: place + 1])
    return after[len(before) :] if after.startswith(before) else reading.text([tokens[place]])
