"""A loopback HTTP proxy that records requests, counts those in flight and makes faults.

It stands between a model client and a model server. What lies behind it is the address
of a server, or a function that answers. `rule` is asked first, for each request, and
may answer, hold or drop it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Self

LOOK_EVERY = 0.05
"""Seconds between two looks at whether a waiting client is still there."""

UPSTREAM_TIMEOUT = 300
"""Seconds that the server behind may take: the first request with new options may
compile something."""


@dataclass
class Exchange:
    """One request, and what became of it."""

    path: str
    headers: dict[str, str]
    text: str
    number: int
    status: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        decoded = json.loads(self.text or "{}")
        assert isinstance(decoded, dict)
        return decoded

    @property
    def prompts(self) -> list[str]:
        """The prompts in it: one of a chat request, all of a completion request."""
        if "messages" in self.body:
            return [str(self.body["messages"][-1]["content"])]
        prompt = self.body.get("prompt", [])
        return prompt if isinstance(prompt, list) else [prompt]


@dataclass(frozen=True)
class Answer:
    """An answer of our own. Several pieces are sent one by one, as a stream is."""

    status: int
    pieces: tuple[bytes, ...]
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Any, status: int = 200, **headers: str) -> Answer:
        """Return an answer whose body is JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("content-type", "application/json")
        return cls(status, (json.dumps(body).encode(),), named)


@dataclass(frozen=True)
class Hold:
    """No answer until the event is set, or the client has gone; then as usual."""

    until: threading.Event


@dataclass(frozen=True)
class Drop:
    """The connection is closed without an answer."""


Fault = Answer | Hold | Drop | None


class RecordingProxy:
    """A proxy on a port of its own; a context manager.

    Args:
        upstream: The address of a server, such as `http://127.0.0.1:8000`, or a
            function from a request to its answer.
        rule: Which requests get a fault.
    """

    def __init__(
        self,
        upstream: str | Callable[[Exchange], Answer],
        rule: Callable[[Exchange], Fault] | None = None,
    ) -> None:
        self.upstream = upstream
        self.rule: Callable[[Exchange], Fault] = rule or (lambda _exchange: None)
        self.exchanges: list[Exchange] = []
        self.in_flight = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_EVERY,), name="proxy"
        )
        self._closed = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up on everybody and stop, as a server that dies does."""
        if self._closed:
            return
        self._closed = True
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self.exchanges = []

    @contextlib.contextmanager
    def recorded(
        self, path: str, headers: dict[str, str], text: str
    ) -> Iterator[Exchange]:
        """Count one request in, and out again when it is answered or dropped."""
        with self._lock:
            exchange = Exchange(path, headers, text, len(self.exchanges))
            self.exchanges.append(exchange)
            self.in_flight += 1
        try:
            yield exchange
        finally:
            with self._lock:
                self.in_flight -= 1


class _Gone(Exception):  # noqa: N818 - no error: clients may hang up
    """The client has hung up."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 256
    proxy: RecordingProxy

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections that break are what this proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Or each small piece of a stream waits for the acknowledgement of the last one.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        proxy = self.server.proxy
        length = int(self.headers.get("content-length", 0))
        text = self.rfile.read(length).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        with proxy.recorded(self.path, headers, text) as exchange:
            try:
                self._answer(exchange)
            except (_Gone, OSError, http.client.HTTPException):
                # Who hangs up in the middle of an answer is hung up on.
                self.close_connection = True

    def _answer(self, exchange: Exchange) -> None:
        proxy = self.server.proxy
        fault = proxy.rule(exchange)
        if isinstance(fault, Drop):
            self.close_connection = True
            return
        if isinstance(fault, Hold):
            while not fault.until.wait(LOOK_EVERY):
                self._require_client()
            fault = None
        if fault is None and not isinstance(proxy.upstream, str):
            fault = proxy.upstream(exchange)
        if fault is None:
            self._forward(exchange)
        else:
            self._send(exchange, fault.status, fault.headers, iter(fault.pieces))

    def _forward(self, exchange: Exchange) -> None:
        address = urlsplit(str(self.server.proxy.upstream))
        upstream = http.client.HTTPConnection(
            str(address.hostname), address.port, timeout=UPSTREAM_TIMEOUT
        )
        with contextlib.closing(upstream):
            names = {"authorization", "content-type", "accept"} & set(exchange.headers)
            headers = {name: exchange.headers[name] for name in names}
            # Then the end of the answer is the end of the connection.
            headers["connection"] = "close"
            body = exchange.text.encode() or None
            upstream.request(self.command, exchange.path, body, headers)
            waiting = upstream.sock
            self._wait_for(waiting)
            response = upstream.getresponse()

            def pieces() -> Iterator[bytes]:
                while piece := response.read1():
                    yield piece
                    if not response.isclosed():
                        self._wait_for(waiting)

            kind = response.headers.get("content-type", "application/json")
            self._send(exchange, response.status, {"content-type": kind}, pieces())

    def _send(
        self,
        exchange: Exchange,
        status: int,
        headers: dict[str, str],
        pieces: Iterator[bytes],
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self._require_client()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        exchange.status = status

    def _wait_for(self, upstream: socket.socket) -> None:
        """Wait until the server behind has something to say, or the client has gone."""
        while not _is_readable(upstream, LOOK_EVERY):
            self._require_client()

    def _require_client(self) -> None:
        if self._client_has_gone():
            raise _Gone

    def _client_has_gone(self) -> bool:
        try:
            if not _is_readable(self.connection, 0):
                return False
            return not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True


def _is_readable(connection: socket.socket, timeout: float) -> bool:
    # Not `select.select`, which refuses a file whose number is 1024 or more.
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(timeout))
