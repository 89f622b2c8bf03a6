"""The server of the page: one thread for all connections, and a bound on everything.

Tests: ``tests/ui/test_server.py``.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from seamark._common.logs import logger_named
from seamark._redaction import storage_option_redactor
from seamark.errors import InvalidInputError
from seamark.ui import bounds
from seamark.ui.app import Page
from seamark.ui.guard import Access, is_loopback
from seamark.ui.places import Place

log = logger_named(__name__)

_SHORTEST_TOKEN: Final = 16
_GRACE: Final = 2
_BACKLOG: Final = 128


class _Connection(H11Protocol):
    """One connection, which is cut when it says nothing, or speaks or listens too slowly."""

    _deadline: asyncio.TimerHandle | None = None
    _unsent: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > bounds.MOST_CONNECTIONS:
            transport.abort()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()  # for the rest of a request
        else:
            self._stop_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.loop.call_later(bounds.ANSWER_PATIENCE, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # closing waits for what is still to be sent, and nobody may take it
        self.loop.call_later(bounds.ANSWER_PATIENCE, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._unsent is not None:
            self._unsent.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(bounds.REQUEST_PATIENCE, self._cut)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        self._deadline = None
        self.transport.abort()


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves the signals of the process to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PageServer:
    """Serves the page for some places, in the thread that calls :meth:`run` or in its own.

    ``host`` is loopback unless told otherwise; anything else wants a ``token``.
    :class:`InvalidInputError` when the port is taken.
    """

    def __init__(
        self,
        places: Sequence[Place],
        *,
        host: str = "127.0.0.1",
        port: int = 8765,
        token: str | None = None,
        names: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        every: float = bounds.LOOK_EVERY,
    ) -> None:
        check_access(host, token)
        self._socket = _listening(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        options = {**(storage_options or {}), **({"token": token} if token else {})}
        redact = storage_option_redactor(options)
        access = Access.at(host, token=token, names=names)
        self.page = Page(places, access, redact=redact, every=every)
        self._server = _Server(_configuration(self.page))
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the overview, without the token."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{'127.0.0.1' if shown == '0.0.0.0' else shown}:{self.port}/"

    def run(self, when_ready: Callable[[], object] = lambda: None) -> None:
        """Serve until the process is asked to end (SIGINT, SIGTERM). In the main thread only.

        ``when_ready`` is called when the first page would be answered at once.
        """

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._ask_to_end)
            await self._serve(when_ready)

        asyncio.run(serve())

    async def _serve(self, when_ready: Callable[[], object]) -> None:
        with self._socket:
            task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
            while not self._server.started and not task.done():
                await asyncio.sleep(0.005)
            when_ready()
            await task

    def start(self) -> None:
        """Serve in a thread of its own, until :meth:`stop` or the end of the process."""
        ready = threading.Event()

        def run() -> None:
            try:
                asyncio.run(self._serve(ready.set))
            finally:
                ready.set()

        self._thread = threading.Thread(target=run, name="seamark-ui", daemon=True)
        self._thread.start()
        ready.wait()

    def _ask_to_end(self) -> None:
        self._server.should_exit = True
        self.page.live.end()

    def stop(self) -> None:
        """End the thread that :meth:`start` has started."""
        self._ask_to_end()
        if self._thread is not None:
            self._thread.join(_GRACE + 5)

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_access(host: str, token: str | None) -> None:
    """Refuse to be reached from elsewhere without a token, and a token that can be guessed."""
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"a page at {host} can be seen from other machines, so it wants a token",
            hint="Give one with --token (or in SEAMARK_UI_TOKEN), of 16 characters or more. It "
            "travels in the clear: put a proxy with TLS before the page, or use an SSH tunnel to "
            "127.0.0.1 instead.",
        )
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise InvalidInputError(
            f"with fewer than {_SHORTEST_TOKEN} characters the token can be guessed"
        )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, number)
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(address)
            found.listen(_BACKLOG)
        except OSError:
            found.close()
            raise
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"the page cannot be served at {host}, port {port}: {why}",
            hint="Is another one running? --port 0 takes any port that is free.",
        ) from None
    found.setblocking(False)
    return found


def _configuration(page: Page) -> uvicorn.Config:
    application: Callable[..., Any] = page.app
    return uvicorn.Config(
        application,
        http=_Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=bounds.KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=bounds.MOST_REQUEST_BYTES,
    )
