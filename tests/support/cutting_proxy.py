"""A proxy for TCP on loopback that loses answers: the server has done it, and nobody is told.

::

    with cutting_proxy("127.0.0.1", 5432) as proxy:
        proxy.lose_answer_to(b"COMMIT")
        work(proxy.port)            # the connection is lost once the server has committed
        assert proxy.cuts == 1

It knows nothing of what is spoken through it, so that any server can stand behind it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal

Recognise = Callable[[bytes], bool]
"""Says of what a client has sent whether it ends with the request that is waited for."""
_CHUNK = 1 << 16
_REMEMBERED = 1 << 12


class CuttingProxy:
    """Passes on what both sides say, until it is to cut a connection."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        """Connections that were cut at a request that was waited for."""
        self._lock = threading.Lock()
        self._request: Recognise | None = None
        self._when: Literal["before", "after"] = "after"
        self._times = 0
        self._since = 0
        """Changes when another request is waited for: what was sent before does not count."""
        self._open: set[socket.socket] = set()
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, request: bytes | Recognise, times: int = 1) -> None:
        """Have the server get such a request, and lose its answer and the connection with it."""
        self._wait_for(request, "after", times)

    def lose(self, request: bytes | Recognise, times: int = 1) -> None:
        """Lose such a request itself, and the connection with it."""
        self._wait_for(request, "before", times)

    def _wait_for(
        self, request: bytes | Recognise, when: Literal["before", "after"], times: int
    ) -> None:
        found = (lambda sent: request in sent) if isinstance(request, bytes) else request
        with self._lock:
            self._request, self._when, self._times = found, when, times
            self._since += 1

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut everything and accept nothing more."""
        self._is_closed = True
        self._listening.close()
        self.cut_all()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            loses = threading.Event()
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=self._answers, args=(server, client, loses), daemon=True)
            back.start()
            try:
                self._requests(client, server, loses)
            finally:
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _requests(
        self, client: socket.socket, server: socket.socket, loses: threading.Event
    ) -> None:
        """Pass on what the client says, until it ends or is to be cut."""
        sent, since = b"", self._since
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK):
                if since != self._since:
                    sent, since = b"", self._since
                sent = sent[-_REMEMBERED:] + data
                if self._is_waited_for(sent):
                    if self._when == "before":
                        break
                    loses.set()
                    sent = b""
                server.sendall(data)
        with contextlib.suppress(OSError):
            # once answers are lost, the other thread closes when the server has answered
            server.shutdown(socket.SHUT_WR if loses.is_set() else socket.SHUT_RDWR)

    def _answers(
        self, server: socket.socket, client: socket.socket, loses: threading.Event
    ) -> None:
        """Pass on what the server says, until it ends or its answer is to be lost."""
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK):
                if loses.is_set():
                    break
                client.sendall(data)
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _is_waited_for(self, sent: bytes) -> bool:
        with self._lock:
            if self._times == 0 or self._request is None or not self._request(sent):
                return False
            self._times -= 1
            self.cuts += 1
            return True


@contextlib.contextmanager
def cutting_proxy(host: str, port: int) -> Iterator[CuttingProxy]:
    """A proxy in front of a server; nothing of it is left afterwards."""
    proxy = CuttingProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
