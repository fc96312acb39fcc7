"""Stands between a client and an HTTP server, and does to chosen requests what a bad network does.

Relies on a rule that a test gives: it sees each request and names its fate. All else is passed on as it came,
so that signatures hold. Never listens beyond loopback.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

CHANGING: Final = frozenset({"PUT", "POST", "DELETE", "PATCH"})
AT_ONCE: Final = struct.pack("ii", 1, 0)
"""A connection that is closed with this lingering is reset, so that its client sees an error."""
HELD_BACK: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
"""What holds between two neighbours alone, and is told anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: its number among all, and among those that change something; both count from 0."""

    number: int
    change: int | None
    method: str
    path: str
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.method} {urlsplit(self.path).path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a request; as it stands it is passed on, and answered.

    It may first wait `seconds`. Then an `answer` may take the place of the server's: a status, and a body in
    the server's language. A request that is not `passed_on` never reaches the server; one that is not
    `answered` ends with a connection that is reset.
    """

    seconds: float = 0.0
    passed_on: bool = True
    answered: bool = True
    answer: int | None = None
    body: bytes = b""
    lands: bool = False
    """Whether a request that is not passed on is kept, and reaches the server once it `land`s."""


PASSED: Final = Fate()
ANSWER_LOST: Final = Fate(answered=False)
REQUEST_LOST: Final = Fate(passed_on=False, answered=False)
REQUEST_LATE: Final = Fate(passed_on=False, answered=False, lands=True)


def refused(status: int, code: str = "") -> Fate:
    """Return the fate of a request that the server refuses, with S3's code for it."""
    body = f"<Error><Code>{code}</Code><Message>told by the tests</Message></Error>" if code else ""
    return Fate(passed_on=False, answer=status, body=body.encode())


def answered_wrongly(status: int, code: str = "") -> Fate:
    """Return the fate of a request that is done, and refused all the same."""
    return Fate(answer=status, body=refused(status, code).body)


Rule = Callable[[Asked], Fate]
Answer = tuple[int, list[tuple[str, str]], bytes]
TOLD: Final = [("Content-Type", "application/xml"), ("ETag", '"told"')]
"""The headers of an answer that is not the server's."""
NOTHING: Final[Answer] = (0, [], b"")


@dataclass
class FaultProxy:
    """Passes requests on to an endpoint, as a context manager; `rule` says what becomes of each."""

    to: str
    rule: Rule = lambda asked: PASSED
    asked: list[Asked] = field(default_factory=list)
    flying: list[Callable[[], object]] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    """What the proxy itself speaks TLS by; the server behind it speaks none."""

    def __post_init__(self) -> None:
        self._lock, self._changes = threading.Lock(), 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def endpoint(self) -> str:
        """Return the address that stands for the server's; it has its path."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._server.server_port}{urlsplit(self.to).path}"

    @property
    def changes(self) -> int:
        """Return how many requests came that change something."""
        return self._changes

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def land(self) -> int:
        """Pass on what is kept, and return how many requests that were."""
        flying, self.flying = self.flying, []
        for each in flying:
            each()
        return len(flying)

    def fate(self, method: str, path: str, headers: Mapping[str, str]) -> Fate:
        """Count a request, and return its fate."""
        with self._lock:
            change = self._changes if method in CHANGING else None
            self._changes += change is not None
            asked = Asked(number=len(self.asked), change=change, method=method, path=path, headers=headers)
            self.asked.append(asked)
        return self.rule(asked)


def _onward(headers: Message) -> list[tuple[str, str]]:
    """Return the headers that the server sees."""
    return [(name, value) for name, value in headers.items() if name.lower() not in HELD_BACK]


def _ask(to: str, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
    """Pass a request on, and return the server's answer."""
    server = urlsplit(to)
    connection = HTTPConnection(server.hostname or "", server.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if body or method in CHANGING:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    except (OSError, HTTPException) as failed:
        return 502, [], str(failed).encode()
    finally:
        connection.close()


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    """Return what handles the requests of a proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms between head and body
        wbufsize = -1

        def _handle(self) -> None:
            body = self._body()
            fate = proxy.fate(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
            if fate.seconds:
                time.sleep(fate.seconds)
            ask = partial(_ask, proxy.to, self.command, self.path, _onward(self.headers), body)
            status, headers, answer = ask() if fate.passed_on else NOTHING
            if fate.lands:
                proxy.flying.append(ask)
            if not fate.answered:
                self._reset()
            elif fate.answer:
                self._answer(fate.answer, TOLD, fate.body)
            else:
                self._answer(status, headers, answer)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _handle

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            size = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    size = value
            with suppress(OSError):  # the client may have gone
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in HELD_BACK:
                        self.send_header(name, value)
                if status not in (204, 304):
                    self.send_header("Content-Length", size)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def handle(self) -> None:
            with suppress(OSError):  # a client that breaks off
                super().handle()

    return Handler
