"""The page in a real browser: one server, several users. `test_browser` runs it in a process of its own."""

import hashlib
import json
import math
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from ebar.cli import main
from ebar.serve.catalogue import Catalogue, Opened, Place, Suggested
from ebar.serve.limits import Limits
from ebar.serve.playground import Playground
from tests.serve.models import InMemory, Slow, coin, opened, residual

PATIENCE = 600_000.0  # milliseconds until a browser gives up: no measure of speed


class Mixed:
    """Models in memory, and a trained run in a folder."""

    def __init__(self, memory: InMemory, folder: Catalogue):
        self.memory, self.folder = memory, folder

    def places(self) -> dict[str, Place]:
        return {**self.folder.places(), **self.memory.places()}

    def open(self, name: str) -> Opened:
        return self.memory.open(name) if name in self.memory.models else self.folder.open(name)

    def suggested(self, name: str) -> Suggested | None:
        return None


class Served(NamedTuple):
    address: str
    playground: Playground
    slow: Slow
    runs: Path
    browser: Any


@contextmanager
def served(runs: Path) -> Iterator[Served]:
    """One server in this process, and one browser."""
    import uvicorn
    from playwright.sync_api import sync_playwright

    from ebar.serve.server import application, listening

    words = "train --name motif --data.motif 101 --data.length 4 --data.size 20 --data.test_size 5 --backbone.layers 1"
    assert (
        main([*words.split(), "--backbone.hidden", "4", "--training.epochs", "1", "--runs", str(runs), "--json"]) == 0
    )
    slow, energy = Slow(12), opened(coin(3))
    memory = InMemory(
        coin=opened(coin(3)), slow=opened(slow),
        energy=Opened(model=energy.model, reading=energy.reading, residual=residual(3)),
    )  # fmt: skip
    playground = Playground(Mixed(memory, Catalogue(runs=runs)), Limits(seconds=86400.0, waiting=1))
    own = listening("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application(playground), log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [own]}, daemon=True)
    thread.start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield Served(f"http://127.0.0.1:{own.getsockname()[1]}", playground, slow, runs, browser)
        browser.close()
    slow.gate.set()
    server.should_exit = True
    thread.join()
    own.close()


def stopped(served: Served) -> bool:
    """Whether the one request under way, if any, was told to stop."""
    return all(allowance.stopped for _, allowance in served.playground._running)


class User:
    """One who looks at the page."""

    def __init__(self, served: Served, **how: Any):
        self.page = served.browser.new_context(**how).new_page()
        self.page.set_default_timeout(PATIENCE)
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(served.address)
        self.page.wait_for_selector("#compute")

    def fill(self, name: str, text: str) -> None:
        self.page.fill(f"#{name} :is(textarea, input)", text)

    def pick(self, name: str) -> None:
        self.page.click("#model input")
        self.page.get_by_role("option", name=name, exact=True).click()
        self.page.wait_for_selector(f"#about >> text={'lstm' if name == 'motif' else f'The model {name}.'}")

    def more(self, **numbers: int) -> None:
        if not self.page.is_visible("#draws input"):
            self.page.click("text=How much to draw")
        for name, number in numbers.items():
            self.fill(name, str(number))

    def press(self, name: str) -> None:
        self.page.click(f"#{name}")

    def status(self, text: str) -> None:
        self.page.wait_for_selector(f"#status >> text={text}")

    def text(self, name: str) -> str:
        return str(self.page.inner_text(f"#{name}"))


def check_a_constraint_a_slider_colours_and_errors(served: Served) -> None:
    me = User(served)
    me.pick("coin")
    me.more(length=3, draws=50)
    me.fill("constraints", "motif:aa=0.5")
    me.press("compute")
    me.status("Done.")
    assert f"{math.log(1.25):.3f} exact" in me.text("summary")  # Z = 5/8 + 3/8·5/3
    assert "0.51 exact" in me.text("summary")  # λ = log 5/3
    me.page.fill("#slider input[type=number]", "0")
    me.page.keyboard.press("Tab")
    me.page.wait_for_selector("#curve >> text=At λ = 0.00 the mean is 0.375")
    assert me.page.locator("#candidates .token.up").count() > 0
    me.fill("text", "baa")
    me.press("colour")
    me.page.wait_for_selector("#coloured .pair")
    assert me.page.locator("#coloured .token.up").count() >= 1
    # What was typed wrongly is told in one sentence, and the results stay.
    me.fill("constraints", "predicate:/tmp/mine.py:f=1")
    me.press("compute")
    me.page.wait_for_selector("#status .error")
    assert "is none of word, expression, whole, motif, starts_with" in me.text("status")
    assert "Traceback" not in me.page.content()
    me.more(draws=10**7)
    me.fill("constraints", "motif:aa=1")
    me.press("compute")
    me.status("Draws: a number from 50 to 2,000 is needed here")
    assert {address.split("/")[2] for address in me.asked if address.startswith("http")} == {
        served.address.removeprefix("http://")
    }
    me.page.context.close()


def check_two_users_a_run_and_an_energy(served: Served) -> None:
    def digest() -> dict[str, str]:
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in served.runs.rglob("*") if path.is_file()
        }  # fmt: skip

    before = digest()
    one, other = User(served), User(served)
    one.pick("motif")
    one.more(length=4, draws=50)
    one.fill("prompt", "1")
    one.fill("constraints", "motif:1=1")
    other.pick("energy")
    other.more(draws=60)
    one.press("compute")
    other.press("compute")
    one.status("Done.")
    other.status("Done.")
    assert "motif 1" in one.text("summary")
    assert "those of low energy preferred" in other.text("summary")
    assert "0.667" in other.text("words")  # p(a)
    other.fill("text", "abb")
    other.press("colour")
    other.page.wait_for_selector("#coloured .pair")
    assert other.page.locator("#coloured .pair").count() == 3
    assert digest() == before
    one.page.context.close()
    other.page.context.close()


def check_stop_stops_computing(served: Served) -> None:
    me = User(served)
    me.pick("slow")
    me.more(length=12, draws=500)
    me.press("compute")
    served.slow.began.wait()
    steps = served.slow.steps
    me.press("stop")
    while not stopped(served):
        me.page.wait_for_timeout(50)
    served.slow.gate.set()
    me.status("Stopped.")
    assert served.slow.steps == steps  # the one under way was the last
    assert served.playground.busy == 0
    me.page.context.close()


def check_closing_the_page_stops_computing(served: Served) -> None:
    served.slow.close_gate()
    me, other = User(served), User(served)
    me.pick("slow")
    me.more(length=12, draws=500)
    me.press("compute")
    served.slow.began.wait()
    steps = served.slow.steps
    me.page.context.close()
    while not stopped(served):
        other.page.wait_for_timeout(50)
    served.slow.gate.set()
    while served.playground.busy:
        other.page.wait_for_timeout(50)
    assert served.slow.steps == steps
    other.page.context.close()


def check_a_full_line_is_told_and_a_place_in_it_can_be_given_up(served: Served) -> None:
    served.slow.close_gate()
    users = [User(served) for _ in range(4)]  # two are computed, one waits, one is refused
    for place, user in enumerate(users):
        user.pick("slow")
        user.more(length=12, draws=50)
        user.press("compute")
        while served.playground.busy < min(place + 1, 3):
            user.page.wait_for_timeout(50)
    users[2].status("waiting, 1 before this one")
    users[3].status("The line is full (1 waiting): try again in a minute.")
    users[2].press("stop")
    users[2].status("Stopped.")
    users[3].press("compute")
    users[3].status("waiting, 1 before this one")
    served.slow.gate.set()
    for user in (users[0], users[1], users[3]):
        user.status("Done.")
    for user in users:
        user.page.context.close()


def check_a_language_and_its_automaton_on_a_narrow_dark_screen(served: Served) -> None:
    me = User(served, viewport={"width": 380, "height": 800}, color_scheme="dark")
    me.page.get_by_role("tab", name="A language").click()
    me.fill("prefix", "100")
    me.press("describe")
    me.page.wait_for_selector("svg.automaton")
    assert me.page.locator("svg.automaton circle.at").count() == 1
    assert "21,848" in me.text("language")
    assert me.page.evaluate("document.documentElement.scrollWidth") <= 380
    me.fill("prefix", "9")
    me.press("describe")
    me.page.wait_for_selector("#language >> text=no symbol of the alphabet")
    me.page.context.close()


def check_results_fit_a_narrow_screen(served: Served) -> None:
    me = User(served, viewport={"width": 380, "height": 800})
    me.pick("coin")
    me.more(length=3, draws=50)
    me.fill("constraints", "motif:aa=0.5\nmotif:bbb=0.25")
    me.press("compute")
    me.status("Done.")
    tables = "[...document.querySelectorAll('#results .wide')]"
    assert me.page.evaluate(f"{tables}.length") == 4  # log Z, moments, next tokens, candidates
    assert me.page.evaluate(f"{tables}.map(one => one.scrollWidth - one.clientWidth)") == [0] * 4
    assert me.page.evaluate("document.documentElement.scrollWidth") <= 380
    me.page.context.close()


def check_another_host_and_a_large_request_are_refused(served: Served) -> None:
    port = int(served.address.rpartition(":")[2])

    def status(method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", port)
        connection.request(method, path, body, {name.title(): value for name, value in headers.items()})
        found = connection.getresponse().status
        connection.close()
        return found

    assert status("GET", "/") == 200
    assert status("GET", "/", host="evil.example") == 403
    assert status("GET", "/config", host="evil.example") == 403
    assert status("POST", "/gradio_api/queue/join", b"x" * 100_000) == 413
    assert status("POST", "/gradio_api/upload", b"") == 404
    assert status("GET", "/gradio_api/file=/etc/passwd") == 404


def failures() -> dict[str, str]:
    """What went wrong, by the name of the check."""
    checks: list[Callable[[Served], None]] = [
        check_a_constraint_a_slider_colours_and_errors,
        check_two_users_a_run_and_an_energy,
        check_stop_stops_computing,
        check_closing_the_page_stops_computing,
        check_a_full_line_is_told_and_a_place_in_it_can_be_given_up,
        check_a_language_and_its_automaton_on_a_narrow_dark_screen,
        check_results_fit_a_narrow_screen,
        check_another_host_and_a_large_request_are_refused,
    ]
    found = {}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as here:
        for check in checks:
            try:
                check(here)
            except Exception:
                found[check.__name__] = traceback.format_exc()
    return found


if __name__ == "__main__":
    print(json.dumps(failures()))
