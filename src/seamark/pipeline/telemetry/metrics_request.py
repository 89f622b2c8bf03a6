"""One HTTP request as bytes, and its answer as bytes.

Tests: ``tests/pipeline/test_metrics_server.py``.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import Any, Final

MOST_BYTES: Final = 16 << 10
"""Of a request. One of Prometheus has some hundred."""
_WORDS: Final = 3
_METHODS: Final = ("GET", "HEAD")


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
