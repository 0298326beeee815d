"""Results as HTML. Every word that a user or a model wrote is escaped."""

import math
from collections.abc import Sequence
from html import escape

from ebar.serve.cloud import Knob, NextWord
from ebar.serve.drawing import automaton_svg, curve_svg, states_svg
from ebar.serve.found import Found, Moment, Part, Progress
from ebar.serve.languages import DRAWN, Described
from ebar.types import Estimate

DEEPEST = 4.0  # nats of the strongest colour
REACH, POINTS = 4.0, 17  # of the slider on either side, and points of its curve


def sentence(text: str, kind: str = "note") -> str:
    """A line of status or an error."""
    return f'<p class="{kind}" role="{"alert" if kind == "error" else "status"}">{escape(text)}</p>'


def progress(step: Progress) -> str:
    """What is being done."""
    if not step.total:
        return sentence(f"{step.words} …")
    share = step.done / step.total
    bar = f'<span class="bar"><span style="width:{share:.0%}"></span></span>'
    return f'<p class="note" role="status">{escape(step.words)}: {step.done:,} of {step.total:,} {bar}</p>'


def estimate(one: Estimate, digits: int = 3) -> str:
    """A number with its interval, and a sign of doubt with the reason."""
    if one.is_exact:
        return f"{number(one.value, digits)} <small>exact</small>"
    doubt = "" if one.warning is None else f' <abbr title="{escape(one.warning)}">⚠</abbr>'
    interval = f"[{number(one.low, digits)}, {number(one.high, digits)}]"
    return f"{number(one.value, digits)} <small>{interval}</small>{doubt}"


def summary(found: Found) -> str:
    """What p is, log Z, effective draws and moments."""
    rows = [
        (
            "log Z, nats",
            estimate(found.log_z),
            "under hard constraints alone, exp of it is the share of q’s texts that satisfy them",
        )
    ]
    if found.effective is not None:
        rows.append((
            "effective draws per draw", estimate(found.effective.per_draw),
            f"1 would be as good as draws from p itself; {escape(found.effective.counts)} draws"
        ))  # fmt: skip
    body = "".join(f"<tr><th>{name}</th><td>{value}</td><td class='why'>{why}</td></tr>" for name, value, why in rows)
    parts = [f"<p>{escape(found.what)}</p><div class='wide'><table>{body}</table></div>"]
    if found.moments:
        parts.append(_moments(found.moments))
    parts += [sentence(note, "doubt" if "exact" not in note else "note") for note in found.notes]
    if (doubts := _doubts(found)) is not None:
        parts.append(sentence(f"⚠ {doubts}", "doubt"))
    return "".join(parts)


def _doubts(found: Found) -> str | None:
    """The reasons behind the signs, each said once."""
    figures = [found.log_z, *(one.p for one in found.moments)]
    if found.effective is not None:
        figures.append(found.effective.per_draw)
    said = dict.fromkeys(part for one in figures if one.warning for part in one.warning.split("; "))
    return ". ".join(one[:1].upper() + one[1:] for one in said) + "." if said else None


def _moments(moments: Sequence[Moment]) -> str:
    rows = []
    for one in moments:
        wanted = "–" if one.wanted is None else f"{one.wanted:g}"
        if one.coefficient is not None:
            coefficient = estimate(one.coefficient, 2)
        else:
            coefficient = {1.0: "must be", 0.0: "must not be"}.get(one.wanted if one.wanted is not None else -1, "–")
        rows.append((escape(one.name), wanted, coefficient, estimate(one.q), estimate(one.p)))
    return _stacked("moments", ("feature", "wanted", "λ", "mean under q", "mean under p"), rows)


def _stacked(kind: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that a narrow screen shows row by row: the first cell above the others, each with its column's name."""
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td data-name='{name}'>{cell}</td>" for name, cell in zip(names, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<div class='wide'><table class='stacked {kind}'><thead><tr>{head}</tr></thead>{body}</table></div>"


def words(found: Found) -> str:
    """q's and p's next words side by side."""
    most = max([1e-9, *(word.q for word in found.words), *(min(word.p.value, 1.0) for word in found.words)])
    rows = "".join(_word(word, most) for word in found.words)
    about = f"p’s are {escape(found.words_from)}." if found.words_from != "exact" else "Both are exact."
    return (
        "<div class='wide'><table class='words'><thead><tr><th>next</th><th>q</th><th>p</th></tr></thead>"
        f"{rows}</table></div><p class='note'>{about}</p>"
    )


def _word(word: NextWord, most: float) -> str:
    def cell(kind: str, share: float, shown: str) -> str:
        width = 0.0 if math.isnan(share) else 100 * min(share / most, 1.0)
        return f'<td><span class="mass {kind}"><span style="width:{width:.1f}%"></span></span>{shown}</td>'

    name = f"<code>{_next(word.text)}</code>" if word.token >= 0 else "<i>all others</i>"
    return f"<tr><td>{name}</td>{cell('q', word.q, f'{word.q:.3f}')}{cell('p', word.p.value, estimate(word.p))}</tr>"


def candidates(found: Found) -> str:
    """Texts with log q, E and weight, the heaviest first; coloured where that takes no draws."""
    rows = [
        (coloured(one.parts), number(one.log_q, 1), number(one.energy, 2), f"{one.share:.4f}")
        for one in found.candidates
    ]
    of = "texts that there are" if found.cloud.exact else "draws"
    return (
        f"{_stacked('candidates', ('text', 'log q', 'E', 'weight'), rows)}"
        f"<p class='note'>The {len(found.candidates)} heaviest of {len(found.cloud.texts):,} {of}; the weight is a "
        "share of the weight of all.</p>"
    )


def coloured(parts: Sequence[Part]) -> str:
    """Tokens, blue where they raise what p prefers and orange where they lower it; the number is in the title."""
    return "".join(_token(part) for part in parts) or "<i>nothing</i>"


def _token(part: Part) -> str:
    if part.value == 0:
        return visible(part.text)
    if math.isnan(part.value):
        return f'<span class="token" title="not known">{visible(part.text)}</span>'
    depth = min(abs(part.value) / DEEPEST, 1.0) ** 0.6
    kind, title = ("up", f"{part.value:+.3f} nats") if part.value > 0 else ("down", f"{part.value:+.3f} nats")
    return f'<span class="token {kind}" style="--depth:{depth:.2f}" title="{title}">{visible(part.text)}</span>'


def legend(found: Found) -> str:
    """What the colours of a text are."""
    if found.parts is None:
        return sentence("There is nothing to colour by: no automaton follows what is wanted.")
    scale = "".join(
        _token(Part(f" {value:+g} ", value)) for value in (-DEEPEST, -DEEPEST / 4, DEEPEST / 4, DEEPEST)
    )  # fmt: skip
    return (
        f"<p class='note'>The colour is {escape(found.parts_mean)}, in nats: {scale}. Point at a token to read it.</p>"
    )


def text(parts: Sequence[Part], found: Found) -> str:
    """One text with all its numbers."""
    total = math.fsum(part.value for part in parts if math.isfinite(part.value))
    cells = "".join(f"<span class='pair'>{_token(part)}<small>{_told(part.value)}</small></span>" for part in parts)
    said = f"Together {number(total, 2)} nats; below 0.05 no number is shown."
    return f"<div class='pairs'>{cells}</div><p class='note'>{said}</p>"


def _told(value: float) -> str:
    """The number below a token; one that hardly matters is left out."""
    return "?" if math.isnan(value) else "" if abs(value) < 0.05 else number(value, 1)


def curve(found: Found, knob: int, coefficient: float) -> str:
    """The moment at the chosen λ, in words and on its curve."""
    own: Knob = found.knobs[knob]
    low, high = reach(own)
    places = [low + (high - low) * step / (POINTS - 1) for step in range(POINTS)]
    here = found.cloud.moment(own, coefficient)
    wanted = next((one.wanted for one in found.moments if one.name == own.name), None)
    drawn = curve_svg(
        places, [found.cloud.moment(own, place) for place in places], at=coefficient, here=here, wanted=wanted,
        label=f"mean of {own.name}",
    )  # fmt: skip
    doubt = "" if here.warning is None else sentence(f"⚠ {here.warning}.", "doubt")
    found_at = f" (λ = {own.at:.2f} is that of p)" if math.isfinite(own.at) else ""
    return f"<p>At λ = {coefficient:.2f} the mean is {estimate(here)}{found_at}.</p>{drawn}{doubt}"


def reach(knob: Knob) -> tuple[float, float]:
    """The ends of a slider: on both sides of p's own λ, 0 among them."""
    return min(0.0, knob.at) - REACH / 2, max(0.0, knob.at) + REACH / 2


def language(found: Described) -> str:
    """Automaton, next symbols, states by place, figures: all exact."""
    alphabet = found.language.alphabet
    most = max(max(one.noise, one.language) for one in found.following)
    rows = "".join(
        f"<tr><td><code>{escape(one.symbol)}</code></td>{_mass('q', one.noise, most)}"
        f"{_mass('p', one.language, most)}</tr>"
        for one in found.following
    )
    after = f"after <code>{escape(found.prefix)}</code>" if found.prefix else "at the beginning"
    states = found.automaton.states
    if states <= DRAWN:
        picture = automaton_svg(found.automaton, alphabet, at=found.state)
    else:
        picture = sentence(f"It has {states} states, too many to draw.")
    figures = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{_figure(value)}</td></tr>"
        for name, value in found.figures.items()
    )
    places = states_svg(found.reached) if states <= 2 * DRAWN else ""
    return (
        "<h3>The automaton</h3><p class='note'>It reads a string symbol by symbol. A double circle: the property "
        f"holds if the string ends there. Filled: where it stands {after}.</p>{picture}"
        f"<h3>Next symbol, {after}</h3><div class='wide'><table class='words'><thead><tr><th>next</th><th>noise</th>"
        f"<th>language</th></tr></thead>{rows}</table></div>"
        "<h3>Where it stands after each symbol</h3><p class='note'>How likely each state is: the darker, the likelier; "
        f"point at a field to read it.</p>{places}"
        f"<h3>Exact figures</h3><p class='note'>Entropies are in nats.</p>"
        f"<div class='wide'><table>{figures}</table></div>"
    )


def _figure(value: float | int | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6f}"


def _mass(kind: str, share: float, most: float) -> str:
    width = 100 * share / max(most, 1e-9)
    return f'<td><span class="mass {kind}"><span style="width:{width:.1f}%"></span></span>{share:.4f}</td>'


def visible(text: str) -> str:
    """Escaped, with line breaks and blanks at the ends that can be seen."""
    shown = escape(text).replace("\n", "⏎").replace("\t", "⇥")
    return shown.replace(" ", "·") if not text.strip(" ") else shown


def _next(text: str) -> str:
    """A token by itself, the blank before it shown as a dot."""
    blank = len(text) - len(text.lstrip(" "))
    return f"<i>{'·' * blank}</i>{visible(text[blank:])}" if blank else visible(text)


def number(value: float, digits: int) -> str:
    """With a proper minus sign; what is no number in words."""
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")  # −0.0 + 0.0 is 0.0: no sign of what is none
