"""A TCP proxy before a server: counts bytes, and breaks one commit of Redis in a chosen way."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

_CHUNK: Final = 1 << 20


class Fault(Enum):
    """What happens to the next EXEC."""

    LOSE_REQUEST = auto()
    """It does not reach the server; the connection breaks."""
    HALVE_REQUEST = auto()
    """Half of its bytes reach the server; the connection breaks."""
    LOSE_ANSWER = auto()
    """The server does it; the connection breaks before the answer comes."""
    GARBLE_ANSWER = auto()
    """The server does it; the client gets something that is no answer of Redis."""
    DELAY_REQUEST = auto()
    """The client's connection breaks; the server gets the request by :meth:`Proxy.deliver`."""


class Proxy:
    """Passes bytes between clients and a server on loopback."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._fault: Fault | None = None
        self._meanwhile: Callable[[], None] = _nothing
        self._late: list[tuple[socket.socket, bytes]] = []
        self.faults = 0
        self.passed = 0
        """Bytes of both directions."""
        self._counting = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Break the next EXEC; ``meanwhile`` runs before its client notices."""
        self._fault, self._meanwhile = fault, meanwhile

    def deliver(self) -> bytes:
        """Give the server what was held back, and return its answer."""
        server, request = self._late.pop()
        with server:
            server.sendall(request)
            return server.recv(_CHUNK)

    def close(self) -> None:
        self._listener.close()
        for server, _ in self._late:
            server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._target))
            is_done = True
            try:
                is_done = self._pass(client, server)
            finally:
                if is_done:
                    server.close()

    def _pass(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass bytes until one side ends; whether the server's connection is to be closed."""
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(_CHUNK)
                    if not data:
                        return True
                    if source is client and self._fault is not None and b"EXEC" in data:
                        return self._break(client, server, data)
                    with self._counting:
                        self.passed += len(data)
                    key.data.sendall(data)

    def _break(self, client: socket.socket, server: socket.socket, request: bytes) -> bool:
        fault, self._fault = self._fault, None
        self.faults += 1
        if fault is Fault.HALVE_REQUEST:
            server.sendall(request[: len(request) // 2])
        elif fault in (Fault.LOSE_ANSWER, Fault.GARBLE_ANSWER):
            server.sendall(request)
            server.recv(_CHUNK)
        elif fault is Fault.DELAY_REQUEST:
            self._late.append((server, request))
        self._meanwhile()
        if fault is Fault.GARBLE_ANSWER:
            client.sendall(b"*x\r\n")
        return fault is not Fault.DELAY_REQUEST


def _nothing() -> None:
    pass


@contextmanager
def before(port: int) -> Iterator[Proxy]:
    """A proxy before the server on this port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
