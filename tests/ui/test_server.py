"""A server that slow, silent and many clients do not stop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from seamark.errors import InvalidInputError
from seamark.ui import bounds
from seamark.ui.server import PageServer
from tests.ui.support.serving import LONG, Client, CountedBlobs, server_for, serving, until
from tests.ui.support.stores import fill


def connected(page: Client) -> socket.socket:
    return socket.create_connection((page.host, page.port), timeout=LONG)


def test_four_hundred_connections_that_say_nothing_do_not_stop_it(tmp_path: Path) -> None:
    fill(tmp_path / "store", 2)
    with serving(tmp_path / "store") as page, ExitStack() as idle:
        for _ in range(400):
            idle.enter_context(connected(page))
        assert "epoch 2" in page.text("/p/store")
        with page.events() as _:
            assert page.json("/api/places")["places"]


@pytest.mark.parametrize(
    "said", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"GET / HTTP/1.1\r\n"]
)
def test_a_client_that_does_not_finish_its_request_is_cut_off(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "REQUEST_PATIENCE", 0.3)
    with serving(CountedBlobs().place()) as page, connected(page) as slow:
        slow.sendall(said)
        assert _rest(slow) == b""


def test_one_that_drips_is_cut_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REQUEST_PATIENCE", 0.3)
    with serving(CountedBlobs().place()) as page, connected(page) as slow:
        with pytest.raises(ConnectionError):
            _drip(slow)
        assert page("/").status == 200


def test_a_second_request_has_to_be_finished_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REQUEST_PATIENCE", 0.3)
    monkeypatch.setattr(bounds, "KEEP_ALIVE", 1)
    with serving(CountedBlobs().place()) as page, connected(page) as slow:
        slow.sendall(b"GET /static/seamark.svg HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT")
        assert _rest(slow).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_take_its_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounds, "ANSWER_PATIENCE", 0.5)
    request = b"GET /static/seamark.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server_for([CountedBlobs().place()]) as server:
        connections = server._server.server_state.connections
        with connected(Client(server.url)) as slow:
            slow.sendall(request * 4000)  # more than all buffers hold
            until(lambda: len(connections), lambda count: count == 1)
            until(lambda: len(connections), lambda count: count == 0)


def test_more_connections_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_CONNECTIONS", 3)
    with serving(CountedBlobs().place()) as page, ExitStack() as idle:
        for _ in range(3):
            idle.enter_context(connected(page))
        until(lambda: _is_refused(page), bool)
        idle.close()
        until(lambda: _is_refused(page), lambda refused: not refused)


def _is_refused(page: Client) -> bool:
    try:
        return page("/").status != 200
    except OSError:
        return True


def test_a_request_that_is_too_long_is_refused() -> None:
    with serving(CountedBlobs().place()) as page:
        with suppress(ConnectionError):
            assert page("/", headers={"X-Long": "a" * 5_000_000}).status in (400, 431)
        assert page("/").status == 200


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\x00" * 2000])
def test_what_is_not_http_is_refused(junk: bytes) -> None:
    with serving(CountedBlobs().place()) as page, connected(page) as odd:
        odd.sendall(junk + b"\r\n\r\n")
        answer = _rest(odd)
        assert not answer or b" 400 " in answer.splitlines()[0]
        assert page("/").status == 200


def test_a_port_that_is_taken_is_told_before_anything_is_opened() -> None:
    with (
        serving(CountedBlobs().place()) as page,
        pytest.raises(InvalidInputError, match="cannot be served"),
    ):
        PageServer([], port=page.port)


def test_it_ends_at_once_although_somebody_listens_and_a_store_does_not_answer() -> None:
    blobs = CountedBlobs()
    blobs.held_up = threading.Event()
    server = server_for([blobs.place()])
    server.start()
    with Client(server.url).events() as _:
        server.stop()
        assert server._thread is not None
        assert not server._thread.is_alive()
    blobs.held_up.set()


def test_a_page_can_be_served_from_a_process_with_an_event_loop_of_its_own() -> None:
    async def main() -> int:
        with server_for([CountedBlobs().place()]) as server:
            return await asyncio.to_thread(lambda: Client(server.url)("/").status)

    assert asyncio.run(main()) == 200


def _drip(connection: socket.socket) -> None:
    """Say one letter at a time, for as long as anybody listens."""
    while True:
        connection.sendall(b"G")
        time.sleep(0.05)


def _rest(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
