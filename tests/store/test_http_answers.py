"""What a server that does not behave can cost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.error import HTTPError

import pytest

from seamark.blobs.http_answers import get_answer
from seamark.blobs.object_store import ObjectBlobs
from seamark.blobs.unfinished_uploads import Bucket
from seamark.errors import StoreUnavailableError

Behaviour = Callable[[socket.socket, threading.Event], None]
OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Gives each connection to a function, and counts them."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.asked = 0
        self.end = threading.Event()
        self._behaviour = behaviour
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                if self.end.is_set():
                    connection.close()
                    return
                self.asked += 1
                self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
                self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            self._behaviour(connection, self.end)

    def close(self) -> None:
        self.end.set()
        with suppress(OSError):
            socket.create_connection(self._socket.getsockname()).close()
        for thread in self._threads:
            thread.join()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Callable[[Behaviour], Server]]:
    made: list[Server] = []

    def start(behaviour: Behaviour) -> Server:
        made.append(Server(behaviour))
        return made[-1]

    yield start
    for each in made:
        each.close()


def slow_headers(connection: socket.socket, end: threading.Event) -> None:
    connection.sendall(OK)
    while not end.wait(0.02):
        connection.sendall(b"x")


def slow_body(connection: socket.socket, end: threading.Event) -> None:
    connection.sendall(OK + b"content-length: 1000000\r\n\r\n")
    while not end.wait(0.02):
        connection.sendall(b" ")


def silence(_: socket.socket, end: threading.Event) -> None:
    end.wait()


@pytest.mark.parametrize("behaviour", [slow_headers, slow_body, silence])
def test_an_answer_has_a_deadline_however_slowly_it_comes(
    server: Callable[[Behaviour], Server], behaviour: Behaviour
) -> None:
    with pytest.raises(TimeoutError):
        get_answer(server(behaviour).address, longest=1000, seconds=0.3)


def test_an_answer_that_is_too_long_is_refused(server: Callable[[Behaviour], Server]) -> None:
    def endless(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(OK + b"\r\n")
        while not end.is_set():
            connection.sendall(b" " * 65536)

    with pytest.raises(ValueError, match="more than 1000 bytes"):
        get_answer(server(endless).address, longest=1000, seconds=60)


def test_no_redirect_is_followed(server: Callable[[Behaviour], Server]) -> None:
    other = server(lambda connection, _: connection.sendall(OK + b"\r\nsecret"))

    def redirect(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(f"HTTP/1.1 307 There\r\nlocation: {other.address}/\r\n\r\n".encode())

    with pytest.raises(HTTPError, match="307") as raised:
        get_answer(server(redirect).address, longest=1000, seconds=60)
    raised.value.close()
    assert other.asked == 0


def blobs_at(server: Server) -> ObjectBlobs:
    options = {
        "endpoint": server.address, "allow_http": True,
        "access_key_id": "a", "secret_access_key": "b", "region": "eu-west-1",
    }  # fmt: skip
    return ObjectBlobs.open("s3://bucket/p", options, conditional=True)


def bucket_at(server: Server, seconds: float = 600) -> Bucket:
    blobs = blobs_at(server)
    of = Bucket.of(blobs)
    assert of is not None
    return Bucket(blobs, of._store, seconds)


def test_all_questions_about_a_bucket_share_one_deadline(
    server: Callable[[Behaviour], Server],
) -> None:
    def another_page(connection: socket.socket, _: threading.Event) -> None:
        uploads = b"<Upload><Key>p/a</Key></Upload>" * 5_000
        page = b"<r><IsTruncated>true</IsTruncated>" + uploads + b"</r>"
        connection.sendall(OK + b"content-length: %d\r\n\r\n" % len(page) + page)

    endless = bucket_at(server(another_page))
    assert len(endless.unfinished_uploads()) == 20 * 1000
    silent = bucket_at(server(silence), 0.3)
    for _ in range(2):  # the second has no time left, and nobody is asked
        with pytest.raises(StoreUnavailableError, match="TimeoutError"):
            silent.unfinished_uploads()
    assert not silent.removes_unfinished()


def test_an_answer_with_a_document_type_is_refused_as_it_may_unfold(
    server: Callable[[Behaviour], Server],
) -> None:
    """Of 30 KB a declared entity made 7 MB of text, and of 2 MiB on each of 20 pages 4 GB."""
    upload = b"<Upload><Key>p/" + b"&a;" * 8 + b"</Key></Upload>"
    declared = b'<!DOCTYPE r [<!ENTITY a "%b">]>' % (b"x" * 30_000)
    body = b"<r>%b<IsTruncated>false</IsTruncated></r>" % (upload * 30)

    def questions(page: bytes) -> Bucket:
        def answer(connection: socket.socket, _: threading.Event) -> None:
            connection.sendall(OK + b"content-length: %d\r\n\r\n" % len(page) + page)

        return bucket_at(server(answer))

    with pytest.raises(StoreUnavailableError, match="does not answer"):
        questions(declared + body).unfinished_uploads()
    assert len(questions(body.replace(b"&a;", b"a")).unfinished_uploads()) == 30


def read_all(blobs: ObjectBlobs) -> object:
    return blobs.read("a", 1000)


def read_some(blobs: ObjectBlobs) -> object:
    return blobs.read_range("a", 0, 100)


def read_in_pieces(blobs: ObjectBlobs) -> object:
    return b"".join(map(bytes, blobs.stream("a", 100) or ()))


@pytest.mark.parametrize("read", [read_all, read_some, read_in_pieces])
def test_no_more_of_an_object_is_held_than_its_server_has_said_it_has(
    server: Callable[[Behaviour], Server], read: Callable[[ObjectBlobs], object]
) -> None:
    """A body in chunks may have any length, whatever the length that stands before it."""
    sent = 0

    def in_chunks(connection: socket.socket, end: threading.Event) -> None:
        nonlocal sent
        head = (
            b"206 Partial Content\r\ncontent-range: bytes 0-99/100" if read is read_some else b"200"
        )
        connection.sendall(
            b'HTTP/1.1 %b\r\netag: "x"\r\nlast-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
            b"content-length: 100\r\ntransfer-encoding: chunked\r\n\r\n" % head
        )
        for _ in range(500):
            connection.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
            sent += 1
        connection.sendall(b"0\r\n\r\n")

    with pytest.raises(StoreUnavailableError, match="too much came"):
        read(blobs_at(server(in_chunks)))
    assert sent < 500


def test_a_listing_that_repeats_its_page_comes_to_an_end(
    server: Callable[[Behaviour], Server],
) -> None:
    """As of a server that ignores from where a page is to go on."""
    of = "<LastModified>2026-01-01T00:00:00Z</LastModified><Size>1</Size>"
    row = f"<Contents><Key>p/{{}}</Key>{of}</Contents>"
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
    rows = "".join(map(row.format, range(1000)))
    body = f"<ListBucketResult>{more}{rows}</ListBucketResult>".encode()
    asked = 0

    def listing(connection: socket.socket, end: threading.Event) -> None:
        nonlocal asked
        while not end.is_set() and asked < 500:
            asked += 1
            connection.sendall(OK + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            if not connection.recv(65536):
                return

    with pytest.raises(StoreUnavailableError, match="never ends"):
        blobs_at(server(listing)).entries("")
    assert asked < 50


@pytest.mark.parametrize("year", ["0000", "-99999", "+262142"])
def test_a_time_that_cannot_be_says_nothing_about_what_is_stored(
    server: Callable[[Behaviour], Server], year: str
) -> None:
    """It was told as damage: the name of an object that cannot be one."""
    time = f"<LastModified>{year}-12-31T00:00:00Z</LastModified>"
    body = (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><KeyCount>1</KeyCount>'
        f'<Contents><Key>p/a</Key>{time}<ETag>"x"</ETag><Size>1</Size></Contents>'
        "</ListBucketResult>"
    ).encode()

    def listing(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    options = {
        "endpoint": server(listing).address,
        "allow_http": "true",
        "region": "x",
        "skip_signature": "true",
    }
    blobs = ObjectBlobs.open("s3://bucket/p", options, conditional=True)
    with pytest.raises(StoreUnavailableError, match="a time that cannot be"):
        blobs.entries("")
