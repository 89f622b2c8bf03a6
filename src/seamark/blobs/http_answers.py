"""One answer of an HTTP server, bounded in bytes and in time.

A time-out of a socket is for one read: a server that sends a byte now and then is waited for until
the end of days. Here the whole answer has a deadline, name look-up, TLS and headers included.

Tests: ``tests/store/test_http_answers.py``.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from concurrent.futures import Future
from typing import Any, Final

_PIECE: Final = 64 << 10


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A signed address is for one host, and nobody may send its bearer to another one."""

    def redirect_request(self, *_: Any) -> None:
        """Nothing is asked in its place: the redirect becomes an :class:`HTTPError`."""


def get_answer(address: str, *, longest: int, seconds: float) -> bytes:
    """What a server answers to a GET of an address. No redirect is followed.

    Raises :class:`TimeoutError` when it is not complete in time, :class:`ValueError` when it is
    longer, and what ``urllib`` raises.
    """
    if seconds <= 0:
        raise TimeoutError("there is no time left for an answer")
    answer: Future[bytes] = Future()
    until = time.monotonic() + seconds

    def ask() -> None:
        try:
            answer.set_result(_read(address, longest, until))
        except Exception as error:  # noqa: BLE001 - it is raised by whoever waits
            answer.set_exception(error)

    # nothing can interrupt a look-up or a handshake, so nobody waits for the thread
    threading.Thread(target=ask, name="seamark-http", daemon=True).start()
    return answer.result(seconds)


def _read(address: str, longest: int, until: float) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    pieces: list[bytes] = []
    size = 0
    with opener.open(address, timeout=max(0.1, until - time.monotonic())) as answer:
        while piece := answer.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > longest:
                raise ValueError(f"it answers with more than {longest} bytes")
            if time.monotonic() > until:
                raise TimeoutError("the answer takes too long")
    return b"".join(pieces)
