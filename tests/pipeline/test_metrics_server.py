"""The server of the metrics: nobody who watches, and nobody who attacks it, stops a pipeline."""

from __future__ import annotations

import contextlib
import gzip
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from seamark.errors import InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.metrics_endpoint import split_address
from seamark.pipeline.telemetry.metrics_server import HttpServer
from seamark.store import CheckpointStore, open_store
from tests.pipeline.support.epochs import EPOCH_14

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE = 280.0
"""How long a test waits for what has to happen, on however slow a machine."""


@pytest.fixture
def metrics() -> Iterator[PipelineMetrics]:
    found = PipelineMetrics("trades", CollectorRegistry(), port=0)
    found.epoch_done(EPOCH_14)
    yield found
    found.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def exchange(port: int, request: bytes) -> bytes:
    """All that the server says to a request until it closes."""
    with connect(port) as client:
        client.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            return b"".join(iter(lambda: client.recv(65536), b""))
    return b""


def scrape(port: int | None) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def hello(_: object, start: Callable[..., object]) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


def save(store: CheckpointStore) -> None:
    number = store.next_id()
    store.save(CheckpointManifest.new(number, epoch=number))


def test_without_a_host_only_this_machine_can_read_the_metrics(metrics: PipelineMetrics) -> None:
    assert "seamark_epochs_completed_total" in scrape(metrics.port)
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    addresses = [line.split()[1] for line in listening.splitlines() if line.split()[3] == "0A"]
    port = f":{metrics.port:04X}"
    assert [address for address in addresses if address.endswith(port)] == [f"0100007F{port}"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [("0.0.0.0:9100", ("0.0.0.0", 9100)), ("[::]:0", ("::", 0)), ("host:1", ("host", 1))],
)
def test_an_address_is_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("wrong", ["", "9100", ":9100", "host:", "host:x", "::1:9100", "h:65536"])
def test_what_is_no_address_is_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match="host:port") as caught:
        split_address(wrong)
    assert "0.0.0.0:9100" in str(caught.value.hint)


def test_hundreds_of_idle_connections_cost_no_thread_and_few_files(
    metrics: PipelineMetrics, tmp_path: Path
) -> None:
    assert metrics.port is not None
    threads, files = threading.active_count(), descriptors()
    with contextlib.ExitStack() as stack, open_store(tmp_path) as store:
        for _ in range(300):
            stack.enter_context(connect(metrics.port))
        assert "seamark_epochs_completed_total" in scrape(metrics.port)
        assert threading.active_count() <= threads
        assert descriptors() - files - 300 <= 40  # our side, theirs, and the store's own
        save(store)
        assert "seamark_epochs_completed_total" in scrape(metrics.port)


@pytest.mark.slow
def test_the_server_of_prometheus_client_has_a_thread_for_each_silent_connection() -> None:
    """Why we have one of our own. When this fails, theirs may do."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=CollectorRegistry())
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server.server_port)) for _ in range(100)]
        wait_for(lambda: threading.active_count() >= threads + 100)
        assert not select.select(clients, [], [], 0)[0], "and closes none of them"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_content_is_that_of_prometheus_client(metrics: PipelineMetrics) -> None:
    assert metrics.port is not None
    kinds = {
        b"": b"text/plain",
        b"Accept: application/openmetrics-text; version=1.0.0\r\n": b"application/openmetrics-text",
    }
    for accept, kind in kinds.items():
        ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + accept + b"\r\n"
        assert b"\r\nContent-Type: " + kind in exchange(metrics.port, ask)
    zipped = b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
    head, _, body = exchange(metrics.port, zipped).partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"seamark_epochs_completed_total" in gzip.decompress(body)
    named = b"GET /metrics?name[]=seamark_fenced_total HTTP/1.1\r\n\r\n"
    assert b"seamark_epochs" not in exchange(metrics.port, named)


def test_a_connection_that_says_nothing_is_closed() -> None:
    server = HttpServer(hello, "127.0.0.1", 0, patience=0.2)
    with connect(server.port) as client:
        assert client.recv(1) == b""
    server.close()


def test_a_request_that_comes_byte_by_byte_is_cut_off_in_its_middle() -> None:
    server = HttpServer(hello, "127.0.0.1", 0, patience=0.3)
    with connect(server.port) as client, contextlib.suppress(OSError):
        client.sendall(b"GET / HTTP/1.1\r\n")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            client.sendall(b"X: y\r\n")  # each of them well within any time-out of a read
            time.sleep(0.02)
        pytest.fail("it may go on for ever")
    assert exchange(server.port, SCRAPE).endswith(b"hello")
    server.close()


def test_an_answer_that_nobody_reads_is_dropped_and_others_are_served() -> None:
    def endless(_: object, start: Callable[..., object]) -> list[bytes]:
        start("200 OK", [])
        return [bytes(64 << 20)]

    server = HttpServer(endless, "127.0.0.1", 0, patience=0.5)
    with connect(server.port) as client:
        client.sendall(SCRAPE)
        assert select.select([client], [], [], PATIENCE)[0]  # the answer has begun
        wait_for(lambda: not server._connections)
    server.close()


def test_of_too_many_connections_the_oldest_silent_one_goes() -> None:
    server = HttpServer(hello, "127.0.0.1", 0, most=2)
    with connect(server.port) as first, connect(server.port) as second:
        wait_for(lambda: len(server._connections) == 2)
        with connect(server.port) as third:
            assert first.recv(1) == b""
            for client in (third, second):
                client.sendall(SCRAPE)
                assert client.recv(12) == b"HTTP/1.1 200"
    server.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET  /a b HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", b"400"),
        (b"GET /" + b"x" * 20_000, b"431"),
        (b"GET /metrics HTTP/1.1\r\n\xff\xfe: \x00\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_garbage_gets_a_status_and_the_next_one_is_served(
    metrics: PipelineMetrics, request_: bytes, status: bytes
) -> None:
    assert metrics.port is not None
    answer = exchange(metrics.port, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    if request_.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")
    assert "seamark_epochs_completed_total" in scrape(metrics.port)


def test_a_client_that_leaves_in_the_middle_is_forgotten(metrics: PipelineMetrics) -> None:
    assert metrics.port is not None
    for request in (b"", b"GET /met", SCRAPE):
        with connect(metrics.port) as client:
            client.sendall(request)
    assert "seamark_epochs_completed_total" in scrape(metrics.port)


def test_a_collector_that_fails_is_a_status_and_not_the_end(metrics: PipelineMetrics) -> None:
    class Broken:
        def collect(self) -> object:
            raise RuntimeError("no figures today")

    broken = Broken()
    registry = CollectorRegistry()
    own = PipelineMetrics("quotes", registry, port=0)
    registry._collector_to_names[broken] = []  # type: ignore[index]  # as register() does it
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="500"):
            scrape(own.port)
    own.close()


def test_without_file_descriptors_the_server_waits_and_saves_go_on(tmp_path: Path) -> None:
    """In a process of its own: the limit of this one belongs to all its tests."""
    code = f"""
import os, resource, socket, sys, time
from prometheus_client import CollectorRegistry
from seamark.errors import StoreUnavailableError
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.store import open_store
from tests.pipeline.test_metrics_server import save

metrics = PipelineMetrics("trades", CollectorRegistry(), port=0)
store = open_store({str(tmp_path)!r})
save(store)
before = len(os.listdir("/proc/self/fd"))
print(metrics.port, flush=True)
sys.stdin.readline()                        # ten clients are idle now, or about to be accepted
while len(os.listdir("/proc/self/fd")) < before + 10:
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
print("full", flush=True)
sys.stdin.readline()                        # another one knocks
time.sleep(0.2)                             # the server may have heard it by now, or later
began, used = time.monotonic(), time.process_time()
time.sleep(1)
print((time.process_time() - used) / (time.monotonic() - began), flush=True)
while True:
    try:
        save(store)                         # with what the server has given back by now
        break
    except StoreUnavailableError:
        time.sleep(0.05)
for each in taken:
    os.close(each)
sys.stdin.readline()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
        contextlib.ExitStack() as clients,
    ):
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def tell() -> None:
            stdin.write("\n")
            stdin.flush()

        port = int(stdout.readline())
        for _ in range(10):
            clients.enter_context(connect(port))
        tell()
        assert stdout.readline() == "full\n"
        late = clients.enter_context(connect(port))
        tell()
        assert float(stdout.readline()) < 0.5, "the server turns on the spot"
        late.sendall(SCRAPE)
        assert late.recv(12) == b"HTTP/1.1 200"  # when there are descriptors again
        tell()
        assert process.wait(PATIENCE) == 0
