"""A small HTTP server that a pipeline can afford: one thread, and a bound on everything.

It answers one GET or HEAD a connection. A connection that says nothing, or speaks or listens too
slowly, is closed; of too many the one that has waited longest is. When the process has no file
descriptors left it gives its own back and accepts nobody for a while.

What it answers is prometheus_client's own: its WSGI application chooses format and compression. Its
server, ``prometheus_client.start_http_server``, is not used, because it cannot be bounded: it has a
thread for each connection, however many there are, and none of them ever times out. 400 clients
that say nothing take 400 threads and 400 of the file descriptors that saving a checkpoint needs;
here they take none and 32 (``test_metrics_server.py`` shows both). It makes its server and handler
classes inside of the function, so that there is no place for a limit, and a time-out of each read
would not help against a client that sends a byte now and then. Who wants its TLS gives the pipeline
a registry and serves that.
"""

from __future__ import annotations

import io
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import Any, Final

from seamark._common.logs import logger_named

log = logger_named("seamark.pipeline")

MOST_BYTES: Final = 16 << 10
"""Of a request. One of Prometheus has some hundred."""
_WORDS: Final = 3
_METHODS: Final = ("GET", "HEAD")
MOST_CONNECTIONS: Final = 32
PATIENCE: Final = 10.0
"""Seconds from the accept to the last byte of the answer."""
_PAUSE: Final = 1.0
_CHUNK: Final = 1 << 16
_AT_ONCE: Final = 128

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""What answers, as WSGI has it."""


class BadRequest(Exception):
    """A request that gets no answer but a status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def has_ended(request: bytes | bytearray) -> bool:
    """Whether the request is all there; :class:`BadRequest` when it is too long or no HTTP."""
    if len(request) > MOST_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    first, newline, _ = request.partition(b"\n")
    if newline and not first.rstrip().endswith((b" HTTP/1.1", b" HTTP/1.0")):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    return request.endswith((b"\r\n\r\n", b"\n\n")) or b"\r\n\r\n" in request


def answer(request: bytes, application: Callable[..., Iterable[bytes]]) -> bytes:
    """What an application answers; :class:`BadRequest` when it cannot be asked."""
    method, environment = _environment(request)
    said: list[tuple[str, list[tuple[str, str]]]] = []

    def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
        said.append((status, headers))

    try:
        body = b"".join(application(environment, start))
        status, headers = said[-1]
    except Exception as error:
        # a collector of the user's that fails; Prometheus sees the status
        raise BadRequest(HTTPStatus.INTERNAL_SERVER_ERROR) from error
    return _message(status, headers, body, with_body=method == "GET")


def refusal(error: BadRequest) -> bytes:
    """The answer to a bad request."""
    status = error.status
    kind = [("Content-Type", "text/plain; charset=utf-8")]
    return _message(f"{status.value} {status.phrase}", kind, f"{status.phrase}\n".encode())


def _environment(request: bytes) -> tuple[str, dict[str, Any]]:
    """The method, and what an application is asked; a HEAD asks what a GET does."""
    first, _, rest = request.partition(b"\n")
    parts = first.decode("latin-1").split()
    if len(parts) != _WORDS:
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    method, target, version = parts
    if method not in _METHODS:
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    try:
        headers = parse_headers(io.BytesIO(rest))
    except (HTTPException, ValueError):
        raise BadRequest(HTTPStatus.BAD_REQUEST) from None
    path, _, query = target.partition("?")
    return method, {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": version,
        "HTTP_ACCEPT": headers.get("Accept", ""),
        "HTTP_ACCEPT_ENCODING": headers.get("Accept-Encoding", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _message(
    status: str, headers: list[tuple[str, str]], body: bytes, *, with_body: bool = True
) -> bytes:
    own = [("Content-Length", str(len(body))), ("Connection", "close")]
    kept = [pair for pair in headers if pair[0].lower() != "content-length"]
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in [*kept, *own])]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    return head + (body if with_body else b"")


class _Connection:
    """One client: first its request comes in, then the answer goes out."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.socket = sock
        self.deadline = deadline
        self.request = bytearray()
        self.answer = memoryview(b"")

    @property
    def is_asking(self) -> bool:
        return not self.answer


class HttpServer:
    """Serves an application on one address, on a thread of its own, until it is closed."""

    def __init__(
        self,
        application: Application,
        host: str,
        port: int,
        *,
        most: int = MOST_CONNECTIONS,
        patience: float = PATIENCE,
    ) -> None:
        self._application = application
        self._most = most
        self._patience = patience
        self._connections: dict[socket.socket, _Connection] = {}
        self._deaf_until: float | None = None
        self._listener = _listening(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._rung = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._rung, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="seamark-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and free the port."""
        self._bell.close()
        self._thread.join()

    # the thread

    def _serve(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for sock in [*self._connections, self._listener, self._rung]:
                sock.close()
            self._selector.close()

    def _turn(self) -> bool:
        """Wait for the next event and handle it; False when the server has to end."""
        for key, _ in self._selector.select(self._seconds_to_wait()):
            source = key.fileobj
            if source is self._rung:
                return False
            try:
                if source is self._listener:
                    for _ in range(_AT_ONCE):
                        if not self._accept():
                            break
                elif (connection := self._connections.get(key.data)) is not None:
                    step = self._hear if connection.is_asking else self._speak
                    step(connection)
            except Exception:
                # nothing that one client does may affect the others
                log.debug("a client of the metrics was turned away", exc_info=True)
                self._drop(key.data)
        self._expire()
        return True

    def _seconds_to_wait(self) -> float | None:
        moments = [connection.deadline for connection in self._connections.values()]
        if self._deaf_until is not None:
            moments.append(self._deaf_until)
        return max(min(moments) - time.monotonic(), 0) if moments else None

    def _expire(self) -> None:
        now = time.monotonic()
        for sock, connection in [*self._connections.items()]:
            if connection.deadline <= now:
                self._drop(sock)
        if self._deaf_until is not None and self._deaf_until <= now:
            self._deaf_until = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> bool:
        """Whether somebody was there."""
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return False
        except OSError as error:
            # no descriptors or no memory left: others need them more than those who watch
            log.debug("no client of the metrics is accepted for a while: %s", error)
            self._let_go_of_all()
            return False
        sock.setblocking(False)
        if len(self._connections) >= self._most:
            self._drop(self._longest_waiting())
        self._connections[sock] = _Connection(sock, time.monotonic() + self._patience)
        self._selector.register(sock, selectors.EVENT_READ, sock)
        return True

    def _let_go_of_all(self) -> None:
        for sock in [*self._connections]:
            self._drop(sock)
        self._selector.unregister(self._listener)
        self._deaf_until = time.monotonic() + _PAUSE

    def _longest_waiting(self) -> socket.socket:
        """The oldest connection without a complete request; if there is none, the oldest of all."""
        asking = [sock for sock, connection in self._connections.items() if connection.is_asking]
        return next(iter(asking or self._connections))

    def _hear(self, connection: _Connection) -> None:
        try:
            heard = connection.socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        connection.request += heard
        try:
            if not heard:
                self._drop(connection.socket)
                return
            if not has_ended(connection.request):
                return
            response = answer(bytes(connection.request), self._application)
        except BadRequest as error:
            response = refusal(error)
        connection.answer = memoryview(response)
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection.socket)

    def _speak(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.answer[:_CHUNK])
        except (BlockingIOError, InterruptedError):
            return
        connection.answer = connection.answer[sent:]
        if not connection.answer:
            self._drop(connection.socket)

    def _drop(self, sock: socket.socket | None) -> None:
        if sock is None or self._connections.pop(sock, None) is None:
            return
        with suppress(KeyError, ValueError, OSError):
            self._selector.unregister(sock)
        sock.close()


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError when the address is taken, or not of this machine."""
    addresses = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_AT_ONCE)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
