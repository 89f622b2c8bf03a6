"""A server that is no Redis, or lies: its answers are errors of the connection, told as such."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from seamark.cli.app import run
from seamark.errors import SeamarkError
from seamark.progress import open_progress
from seamark.progress.redis.client import judge_persistence

_COMMAND = re.compile(rb"(?:^|\r\n)\*\d+\r\n\$\d+\r\n")

ODD = {
    "no number": b"*x\r\n",
    "a very long number": b":" + b"9" * 5000 + b"\r\n",
    "another digit": ":²\r\n".encode(),
    "nested deeply": b"*1\r\n" * 20_000 + b":1\r\n",
    "a number": b":5\r\n",
    "a word": b"+OK\r\n",
    "nothing": b"$-1\r\n",
    "an empty list": b"*0\r\n",
    "lists": b"*2\r\n*1\r\n:1\r\n*0\r\n",
    "numbers": b"*2\r\n:1\r\n:2\r\n",
    "an odd number of parts": b"*3\r\n+a\r\n+1\r\n+b\r\n",
    "no text": b"$3\r\n\xff\xfe\x00\r\n",
    "a long error": b"-" + b"a." * 200_000 + b"\r\n",
}


@contextmanager
def serving(answer: bytes) -> Iterator[str]:
    """A server that answers every command alike, but for what a client says of itself first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    Thread(target=answered, args=(connection,), daemon=True).start()

        def answered(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while asked := connection.recv(1 << 16):
                    count = max(1, len(_COMMAND.findall(asked)))
                    connection.sendall((b"+OK\r\n" if b"SETINFO" in asked else answer) * count)

        Thread(target=serve, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0?namespace=n"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_that_makes_no_sense_is_no_fault_of_ours(
    odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ODD[odd]) as url:
        for words in (["sources", url], ["doctor", url]):
            assert run(words) in (3, 7)
            told = "".join(capsys.readouterr())
            assert "should not have happened" not in told
            assert len(told) < 5000
        with pytest.raises(SeamarkError), open_progress(url) as store:
            store.stage_checkpoint("orders", 1)


@pytest.mark.parametrize("value", ["x", "", None, [], 10**400], ids=lambda value: repr(value)[:9])
def test_what_a_server_says_of_its_log_need_not_be_a_number(value: object) -> None:
    assert "appendonly is off" in judge_persistence(None, {"aof_enabled": value})[0]
    assert judge_persistence(None, {"aof_enabled": 1}) == []
