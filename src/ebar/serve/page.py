"""The page: boxes to type in, and what `Playground` finds, shown by `render`."""

import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, no_type_check

import gradio as gr

from ebar.errors import UserError
from ebar.serve import render
from ebar.serve.allowance import StoppedError
from ebar.serve.found import Asked, Found, Progress
from ebar.serve.languages import describe
from ebar.serve.playground import Playground

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
HEAD = '<meta name="robots" content="noindex"><link rel="icon" href="data:,">'
Number = float | int | None  # a box may be empty
FLOOD = 100  # requests that gradio knows of at one time
EXAMPLES = "word:rabbit|bunny=1\nword:she|her=0.5"


def theme() -> gr.themes.Base:
    """Fonts of the system: none is fetched."""
    fonts = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
    return gr.themes.Base(
        primary_hue="blue",
        neutral_hue="slate",
        font=fonts,
        font_mono=("ui-monospace", "Menlo", "Consolas", "monospace"),
    )


def build_page(playground: Playground) -> gr.Blocks:
    """All of it. The playground itself says whose turn it is; only a flood of requests meets gradio's own queue."""
    page = gr.Blocks(title="ebar playground", analytics_enabled=False)
    with page:
        gr.HTML(
            "<h1>ebar playground</h1><p>A language model q, an energy E, and what becomes of it: "
            "<b>p(x) = q(x)·exp(−E(x)) / Z</b>. Every number that was estimated has its 95 % interval.</p>"
        )
        with gr.Tab("A model"):
            _model_tab(playground)
        with gr.Tab("A language"):
            _language_tab(playground)

        def left(request: gr.Request) -> None:
            playground.stop(_user(request))

        page.unload(left)
    page.queue(max_size=FLOOD, api_open=False, default_concurrency_limit=2)
    return page


def _user(request: gr.Request | None) -> str:
    return str(getattr(request, "session_hash", None) or "somebody")


def _said(error: Exception) -> str:
    """What went wrong, in one sentence; what nobody foresaw is told on the server's own terminal."""
    if isinstance(error, UserError):
        return render.sentence(" ".join(str(error).split()), "error")
    if isinstance(error, StoppedError):
        return render.sentence("Stopped.")
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return render.sentence("There is not enough memory for this: ask for fewer draws or shorter texts.", "error")
    sys.stderr.write("".join(traceback.format_exception(error)))
    return render.sentence("Something went wrong that was not foreseen; the terminal of ebar serve says what.", "error")


def _model_tab(playground: Playground) -> None:
    limits = playground.limits
    names = list(playground.catalogue.places())
    with gr.Row(elem_classes="columns"):
        with gr.Column(scale=2, min_width=300):
            name = gr.Dropdown(
                names, value=names[0] if names else None, label="Run or model", elem_id="model",
                info="A run of the folder, or a model that ebar serve was started with.",
            )  # fmt: skip
            about = gr.HTML(_about(playground, names[0] if names else None), elem_id="about")
            prompt = gr.Textbox(
                label="Prompt", lines=2, max_length=limits.characters, elem_id="prompt",
                info="What every text goes on from; may be empty.",
            )  # fmt: skip
            constraints = gr.Textbox(
                label="Constraints, one a line", lines=3, max_length=limits.characters, placeholder=EXAMPLES,
                elem_id="constraints",
                info="word:rabbit|bunny=1 means: in every text; =0.5: in half of them; =0: in none. Also expression:, "
                "whole:, motif:, starts_with:; ! in front means its absence.",
            )  # fmt: skip
            with gr.Accordion("How much to draw", open=False):
                draws = gr.Number(
                    value=min(500, limits.draws), label="Draws", info=f"50 to {limits.draws:,}", elem_id="draws",
                    precision=0,
                )  # fmt: skip
                length = gr.Number(
                    value=min(40, limits.length), label="Tokens of a text", info=f"1 to {limits.length}", precision=0,
                    elem_id="length",
                )  # fmt: skip
                seed = gr.Number(value=0, label="Seed", precision=0)
                reads = gr.Checkbox(label="Constraints read the prompt too", value=False)
            with gr.Row():
                go = gr.Button("Compute", variant="primary", elem_id="compute")
                stop = gr.Button("Stop", elem_id="stop")
            status = gr.HTML(render.sentence("Nothing is computed yet."), elem_id="status")
        with gr.Column(scale=3, min_width=300), gr.Column(visible=False, elem_id="results") as results:
            summary = gr.HTML(elem_id="summary")
            gr.HTML("<h3>The next token, under q and under p</h3>")
            words = gr.HTML(elem_id="words")
            with gr.Column(visible=False) as turning:
                gr.HTML("<h3>Turn λ, and see the mean that it gives</h3>")
                knob = gr.Dropdown([], label="Feature", elem_id="knob")
                slider = gr.Slider(-4, 4, value=0, step=0.05, label="λ", elem_id="slider")
                curve = gr.HTML(elem_id="curve")
            gr.HTML("<h3>Candidates</h3>")
            candidates = gr.HTML(elem_id="candidates")
            gr.HTML("<h3>The tokens of a text, coloured</h3>")
            legend = gr.HTML()
            text = gr.Textbox(label="Text", lines=2, max_length=limits.characters, elem_id="text")
            colour = gr.Button("Colour", elem_id="colour")
            coloured = gr.HTML(elem_id="coloured")
    outputs = [status, results, summary, words, turning, knob, slider, curve, candidates, legend, text, coloured]

    def turned(which: str | None, value: float | int, request: gr.Request) -> str:
        return _answer(lambda: _turned(playground.result(_user(request)), which, value))

    def chosen(which: str | None, request: gr.Request) -> tuple[Any, str]:
        found = playground.result(_user(request))
        own = found.knobs[_place(found, which)]
        return _slider(found, which), _turned(found, which, own.at)

    def colours(text: str | None, request: gr.Request) -> str:
        user = _user(request)
        return _answer(lambda: render.text(playground.parts(user, text or ""), playground.result(user)))

    def stopped(request: gr.Request) -> None:
        playground.stop(_user(request))

    def filled(name: str | None) -> list[Any]:
        try:
            own = playground.catalogue.suggested(name or "")
        except Exception as error:
            return [_said(error), gr.skip(), gr.skip(), gr.skip()]
        typed = [gr.skip()] * 3 if own is None else [own.prompt, "\n".join(own.constraints), own.length]
        return [_about(playground, name), *typed]

    private: Any = {"api_visibility": "private"}
    go.click(
        _computing(playground, len(outputs)), [name, prompt, constraints, draws, length, seed, reads], outputs,
        concurrency_limit=None, show_progress="hidden", **private,
    )  # fmt: skip
    stop.click(stopped, queue=False, **private)
    name.input(filled, [name], [about, prompt, constraints, length], **private)
    slider.input(turned, [knob, slider], [curve], show_progress="hidden", trigger_mode="always_last", **private)
    knob.input(chosen, [knob], [slider, curve], show_progress="hidden", **private)
    colour.click(colours, [text], [coloured], concurrency_limit=None, **private)


@no_type_check  # at run time: the page asks whether this is a generator, which it no longer is once it is checked
def _computing(playground: Playground, outputs: int) -> Callable[..., Iterator[list[Any]]]:
    """What Compute does: progress, then every output; an error leaves what is there."""

    def compute(
        name: str | None, prompt: str | None, constraints: str | None, draws: Number, length: Number, seed: Number,
        reads: bool, request: gr.Request,
    ) -> Iterator[list[Any]]:  # fmt: skip
        asked = Asked(
            name=name or "", prompt=prompt or "", constraints=constraints or "", reads_prompt=reads, length=length,
            draws=draws, seed=seed,
        )  # fmt: skip
        unchanged: list[Any] = [gr.skip()] * (outputs - 1)
        try:
            for step in playground.compute(_user(request), asked):
                yield [render.progress(step), *unchanged] if isinstance(step, Progress) else _shown(step)
        except Exception as error:
            yield [_said(error), *unchanged]

    return compute


def _answer(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:
        return _said(error)


def _about(playground: Playground, name: str | None) -> str:
    places = playground.catalogue.places()
    if name is None or name not in places:
        return render.sentence("There is no run or model to pick: train one, or give --models to ebar serve.")
    return render.sentence(places[name].about)


def _place(found: Found, which: str | None) -> int:
    names = [knob.name for knob in found.knobs]
    if which not in names:
        raise UserError("There is no such feature: press Compute again.")
    return names.index(which)


def _turned(found: Found, which: str | None, value: float | int) -> str:
    return render.curve(found, _place(found, which), float(value))


def _slider(found: Found, which: str | None) -> Any:
    own = found.knobs[_place(found, which)]
    low, high = render.reach(own)
    return gr.Slider(minimum=round(low, 2), maximum=round(high, 2), value=round(own.at, 2), step=0.05)


def _shown(found: Found) -> list[Any]:
    """Every output of the page."""
    first = found.knobs[0].name if found.knobs else None
    return [
        render.sentence("Done."),
        gr.Column(visible=True),
        render.summary(found),
        render.words(found),
        gr.Column(visible=bool(found.knobs)),
        gr.Dropdown(choices=[knob.name for knob in found.knobs], value=first),
        _slider(found, first) if first else gr.skip(),
        _turned(found, first, found.knobs[0].at) if first else "",
        render.candidates(found),
        render.legend(found),
        found.cloud.texts[int(found.cloud.shares.argmax())] if found.parts is not None else "",
        "",
    ]


def _language_tab(playground: Playground) -> None:
    limits = playground.limits
    with gr.Row(elem_classes="columns"):
        with gr.Column(scale=2, min_width=300):
            motif = gr.Textbox(
                value="10001", label="Motif", max_length=100, elem_id="motif", info="A string that occurs somewhere."
            )
            expression = gr.Textbox(
                label="Or an expression",
                max_length=200,
                elem_id="expression",
                info="It matches the whole string: (01|10){8} does.",
            )
            alphabet = gr.Textbox(value="01", label="Alphabet", max_length=12)
            size = gr.Number(value=16, label="Symbols of a string", info=f"1 to {limits.length}", precision=0)
            presence = gr.Number(value=1.0, label="Presence", info="The share of strings that have the property.")
            prefix = gr.Textbox(
                label="Prefix", max_length=limits.length, elem_id="prefix", info="What follows it is shown."
            )
            go = gr.Button("Describe", variant="primary", elem_id="describe")
        with gr.Column(scale=3, min_width=300):
            shown = gr.HTML(elem_id="language")

    def described(
        motif: str | None, expression: str | None, alphabet: str | None, size: Number, presence: Number,
        prefix: str | None,
    ) -> str:  # fmt: skip
        return _answer(
            lambda: render.language(
                describe(
                    motif=(motif or "").strip(),
                    expression=(expression or "").strip(),
                    alphabet=alphabet or "",
                    length=size,
                    presence=presence,
                    prefix=(prefix or "").strip(),
                    limits=limits,
                )
            )
        )

    inputs = [motif, expression, alphabet, size, presence, prefix]
    go.click(described, inputs, [shown], api_visibility="private")
