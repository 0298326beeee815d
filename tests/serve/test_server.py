"""Who is answered: names, origins, sizes. No page is needed for it."""

import asyncio
from typing import Any

import pytest

from ebar.errors import UserError
from ebar.serve.server import Guard, is_loopback, listening


async def _page(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a page"})


def asked(
    headers: dict[str, str], *, path: str = "/", body: tuple[bytes, ...] = (b"",), kind: str = "http", **guard: Any
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of the answer."""
    own = Guard(_page, **{"host": "127.0.0.1", **guard})
    parts = [
        {"type": "http.request", "body": part, "more_body": place < len(body) - 1} for place, part in enumerate(body)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(own({"type": kind, "path": path, "headers": raw}, receive, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, sent[1]["body"].decode()


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LOCALHOST:80", "[::1]:7860", "127.0.0.2"])
def test_this_machine_is_answered(host):
    status, headers, body = asked({"host": host, "origin": f"http://{host}"})
    assert (status, body) == (200, "a page")
    assert "default-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "", "10.0.0.7", "a:b:c"]
)
def test_another_name_or_address_is_refused(host):
    status, _, body = asked({"host": host})
    assert status == 403
    assert "call it by its own address" in body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1.evil.example"])
def test_pages_of_other_sites_are_refused(origin):
    assert asked({"host": "localhost", "origin": origin})[0] == 403


def test_told_to_listen_elsewhere_it_answers_for_addresses_and_names_that_were_given():
    elsewhere: dict[str, Any] = {"host": "0.0.0.0", "names": ("lab.example",)}  # of the guard
    assert Guard(_page, **elsewhere).knows("192.168.1.5:7860")
    assert Guard(_page, **elsewhere).knows("lab.example")
    assert not Guard(_page, **elsewhere).knows("evil.example")  # a name can be made to mean any machine
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "lab")] == [True] * 3 + [
        False
    ] * 2


def test_a_large_request_is_refused_with_or_without_its_length():
    own = {"host": "localhost"}
    assert asked({**own, "content-length": str(10**9)})[0] == 413
    assert asked(own, body=(b"x" * 40_000, b"x" * 40_000))[0] == 413
    assert asked(own, body=(b"x" * 4_000, b"x"))[0] == 200
    assert asked({**own, "content-length": "many"})[0] == 400


@pytest.mark.parametrize(
    "path", ["/gradio_api/upload", "/upload", "/gradio_api/file=/etc/passwd", "/gradio_api/proxy=http://a"]
)
def test_files_are_neither_taken_nor_given(path):
    assert asked({"host": "localhost"}, path=path)[0] == 404


def test_a_port_in_use_is_told_in_a_sentence():
    with listening("127.0.0.1", 0) as taken, pytest.raises(UserError, match="choose another --port"):
        listening("127.0.0.1", taken.getsockname()[1])
