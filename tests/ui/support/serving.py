"""A page that is really served on loopback, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seamark.blobs.contract import Blob, Entry
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import StoreUnavailableError
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.ui.places import Place, places_at
from seamark.ui.server import PageServer
from seamark.ui.store_watch import StoreWatch

LONG = 60.0
"""Seconds that a test waits for an event."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a server; each request has a connection of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), int(parts.port or 0)

    def __call__(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LONG)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in ({"Host": f"{self.host}:{self.port}"} | dict(headers or {})).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def text(self, path: str) -> str:
        """A page that must be there."""
        answer = self(path)
        assert answer.status == 200, (answer.status, answer.text)
        return answer.text

    def json(self, path: str) -> Any:
        """A document that must be there."""
        return json.loads(self.text(path))

    def post(self, path: str, **headers: str) -> Answer:
        return self(
            path, "POST", {name.replace("_", "-"): value for name, value in headers.items()}
        )

    def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """A document as soon as it says what is waited for."""
        return until(lambda: self.json(path), wanted)

    @contextmanager
    def events(self, path: str = "/events") -> Iterator[Iterator[str]]:
        """The names of the places of which there is news, as they come."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LONG)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200
            yield (
                line[6:].decode().strip()
                for line in iter(answer.readline, b"")
                if line.startswith(b"data: ")
            )
        finally:
            connection.close()


def until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + LONG
    while not wanted(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


@contextmanager
def serving(*places: Path | str | Place, every: float = 0.05, **options: Any) -> Iterator[Client]:
    """A page over some places, looked at often."""
    with server_for(places, every=every, **options) as server:
        yield Client(server.url)


def server_for(
    places: Sequence[Path | str | Place], *, every: float = 0.05, **options: Any
) -> PageServer:
    """The same, not started yet."""
    storage_options = options.get("storage_options") or {}
    found = [
        place if isinstance(place, Place) else places_at([str(place)], storage_options)[0]
        for place in places
    ]
    return PageServer(found, port=options.pop("port", 0), every=every, **options)


class CountedBlobs(MemoryBlobs):
    """A store in memory that counts what is asked of it, and can stop answering."""

    def __init__(self, url: str = "memory://counted") -> None:
        super().__init__(url)
        self.asked: Counter[str] = Counter()
        self.is_down = False
        self.held_up: threading.Event | None = None
        """Where it waits before it answers, until the event is set."""

    def _ask(self, verb: str, key: str) -> None:
        if self.held_up is not None:
            self.held_up.wait(LONG)
        if self.is_down:
            raise StoreUnavailableError(f"reading {key} failed: 503 Slow Down", where=self.url)
        self.asked[verb] += 1
        if "manifest-" in key:
            self.asked["manifests"] += 1

    def read(self, key: str, limit: int) -> Blob | None:
        self._ask("read", key)
        return super().read(key, limit)

    def stat(self, key: str) -> Entry | None:
        self._ask("stat", key)
        return super().stat(key)

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        self._ask("read_range", key)
        return super().read_range(key, offset, length)

    def entries(self, prefix: str) -> list[Entry]:
        self._ask("entries", prefix)
        return super().entries(prefix)

    @property
    def requests(self) -> int:
        return sum(count for verb, count in self.asked.items() if verb != "manifests")

    def store(self) -> CheckpointStore:
        """A handle of its own."""
        return CheckpointStore(self, ObjectLayout())

    def place(self, slug: str = "trades") -> Place:
        return Place(slug, slug, self.url, lambda: StoreWatch(self.store, self.url))
