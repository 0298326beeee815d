"""Who may ask, and how much: the page behind a guard, on this machine only unless told otherwise."""

import atexit
import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ebar.errors import UserError
from ebar.serve.playground import Playground

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LARGEST = 64 * 1024  # bytes of a request
# The page has no files: nothing can be sent to be kept, and nothing of the disk is given out.
CLOSED = ("/upload", "/file=", "/file/", "/proxy=", "/stream", "/deep_link", "/vibe", "/monitoring")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; form-action 'self'"
)


class Refused(Exception):  # noqa: N818 — an answer, not a fault
    """A request that is not answered, and why."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """An ASGI application in front of another: names, size and kind of each request; no page elsewhere is loaded.

    A page of another site may make its own name mean this machine (DNS rebinding); its requests then carry that name as
    Host, and are refused. Those of a foreign page under this machine's own name carry a foreign Origin.
    """

    def __init__(self, app: Any, *, host: str, names: Iterable[str] = (), largest: int = LARGEST):
        self.app, self.largest = app, largest
        self.open = not is_loopback(host)
        self.names = {"localhost", host.lower(), *(name.lower() for name in names)}

    def knows(self, host: str) -> bool:
        """Whether a Host, with or without a port, is a name of this machine."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.open  # an address is no name that could be made to mean another machine

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
        try:
            if scope["type"] != "http":
                raise Refused(403, "Only plain requests are answered here.")
            self._check(scope["path"], headers)
            body = _counted(receive, self.largest)
            await self.app(scope, body, _with_policy(send))
        except Refused as refused:
            await _answer(send, refused)

    def _check(self, path: str, headers: dict[bytes, str]) -> None:
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if not self.knows(host):
            raise Refused(403, f"This playground does not answer for {host[:80]!r}: call it by its own address.")
        if origin is not None and not self.knows(urlsplit(origin).netloc if "//" in origin else ""):
            raise Refused(403, "This playground does not answer pages of other sites.")
        if any(part in path for part in CLOSED):
            raise Refused(404, "There is nothing here.")
        size = headers.get(b"content-length", "0")
        if not size.isascii() or not size.isdigit():
            raise Refused(400, "The length of this request is no number.")
        if int(size) > self.largest:
            raise Refused(413, f"This request is too large: at most {self.largest:,} bytes are read.")


def is_loopback(host: str) -> bool:
    """Whether an address or name is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _counted(receive: Receive, largest: int) -> Receive:
    """A body without a length is counted as it comes."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > largest:
            raise Refused(413, f"This request is too large: at most {largest:,} bytes are read.")
        return message

    return counted


def _with_policy(send: Send) -> Send:
    """The browser is told to load nothing from elsewhere."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [
                (b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
            ]  # fmt: skip
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return sent


async def _answer(send: Send, refused: Refused) -> None:
    body = refused.reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def application(playground: Playground, *, host: str = "127.0.0.1", names: Sequence[str] = ()) -> Guard:
    """The page behind its guard, for any ASGI server."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before it is imported: it asks the network for its version
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    folder = tempfile.mkdtemp(prefix="ebar-serve-")  # gradio makes one as it is imported, and leaves it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.setdefault("GRADIO_TEMP_DIR", folder)
    import gradio
    from fastapi import FastAPI

    from ebar.serve.page import HEAD, STYLE, build_page, theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gradio.mount_gradio_app(
        app, build_page(playground), path="/", server_name=host, footer_links=[], run_history=False, ssr_mode=False,
        show_error=False, max_file_size=1, enable_monitoring=False, pwa=False, mcp_server=False, theme=theme(),
        css=STYLE, head=HEAD, app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
    )  # fmt: skip
    return Guard(app, host=host, names=names)


def listening(host: str, port: int) -> socket.socket:
    """A socket that is taken before anything is built."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
    except OSError as error:
        raise UserError(
            f"Nothing can listen on {host} port {port} ({error.strerror}): choose another --port or --host."
        ) from None


def serve(playground: Playground, *, host: str, port: int, names: Sequence[str], ready: Callable[[str], object]) -> int:
    """Until interrupted; `ready` is told the address."""
    import uvicorn

    own = listening(host, port)
    app = application(playground, host=host, names=names)
    shown = f"[{host}]" if ":" in host else host
    ready(f"http://{shown}:{own.getsockname()[1]}")
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, limit_concurrency=256, lifespan="on",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    try:
        uvicorn.Server(settings).run(sockets=[own])
    finally:
        own.close()
    return 0
