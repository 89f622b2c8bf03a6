"""The proxy that loses answers loses them only after the server has worked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.cutting_proxy import CuttingProxy, cutting_proxy


class Echo:
    """A server that answers each request with itself, and remembers all of them."""

    def __init__(self) -> None:
        self.heard = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                while data := client.recv(1000):
                    self.heard += data
                    client.sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[CuttingProxy]:
    with cutting_proxy("127.0.0.1", echo.port) as made:
        yield made


def ask(proxy: CuttingProxy, *requests: bytes) -> bytes:
    """What one connection is answered until it ends."""
    answers = b""
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        for request in requests:
            connection.sendall(request)
            try:
                answer = connection.recv(1000)
            except ConnectionResetError:
                break
            if not answer:
                break
            answers += answer
    return answers


def test_requests_and_answers_pass(proxy: CuttingProxy, echo: Echo) -> None:
    assert ask(proxy, b"one", b"two") == b"onetwo"
    assert echo.heard == b"onetwo"
    assert proxy.cuts == 0


def test_an_answer_is_lost_after_the_server_has_worked(proxy: CuttingProxy, echo: Echo) -> None:
    proxy.lose_answer_to(b"two")
    assert ask(proxy, b"one", b"two", b"three") == b"one"
    assert echo.heard == b"onetwo"
    assert ask(proxy, b"two") == b"two", "once is enough"
    assert proxy.cuts == 1


def test_a_request_is_lost_before_the_server_hears_it(proxy: CuttingProxy, echo: Echo) -> None:
    proxy.lose(lambda sent: sent.endswith(b"two"), times=2)
    assert ask(proxy, b"one", b"two") == b"one"
    assert ask(proxy, b"two") == b""
    assert ask(proxy, b"two") == b"two"
    assert echo.heard == b"onetwo"
    assert proxy.cuts == 2


def test_a_request_in_two_pieces_is_recognised(proxy: CuttingProxy, echo: Echo) -> None:
    proxy.lose_answer_to(b"COMMIT")
    assert ask(proxy, b"COM", b"MIT", b"more") == b"COM"
    assert echo.heard == b"COMMIT"


def test_what_was_sent_before_does_not_count(proxy: CuttingProxy, echo: Echo) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.sendall(b"COMMIT")
        assert connection.recv(1000) == b"COMMIT"
        proxy.lose_answer_to(b"COMMIT")
        connection.sendall(b"more")
        assert connection.recv(1000) == b"more"
    assert proxy.cuts == 0


def test_all_connections_can_be_cut_at_once(proxy: CuttingProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.sendall(b"one")
        assert connection.recv(1000) == b"one"
        proxy.cut_all()
        assert connection.recv(1000) == b""
