"""Many viewers cost a store no more than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from seamark.reports.document import Document
from seamark.ui import answers, history, views
from seamark.ui.rendering import Rendering
from tests.ui.support.serving import Client, CountedBlobs, serving
from tests.ui.support.stores import epoch_manifest

VIEWERS = 50
PATHS = ("/", "/p/trades", "/api/p/trades/history", "/p/trades/checkpoint/90", "/api/places")


def big_store(count: int) -> CountedBlobs:
    blobs = CountedBlobs()
    now = int(time.time() * 1000)
    with blobs.store() as store:
        store.claim(writer="driver-1")
        for number in range(1, count + 1):
            store.save(epoch_manifest(number, newest=count, now_ms=now))
    blobs.asked.clear()
    return blobs


def requests_of(viewers: int, blobs: CountedBlobs) -> int:
    """What so many viewers cost who open all pages at once, with looks so rare that none comes."""
    blobs.asked.clear()
    with serving(blobs.place(), every=3600.0) as page:
        assert page.until("/api/places", lambda d: d["places"][0]["newest"])
        barrier = threading.Barrier(viewers)

        def look(_: int) -> int:
            barrier.wait()
            client = Client(f"http://{page.host}:{page.port}/")
            return sum(client(path).status == 200 for path in PATHS)

        with ThreadPoolExecutor(viewers) as pool:
            assert set(pool.map(look, range(viewers))) == {len(PATHS)}
    return blobs.requests


def test_fifty_viewers_of_a_thousand_checkpoints_ask_the_store_no_more_than_one() -> None:
    blobs = big_store(1000)
    alone = requests_of(1, blobs)
    assert requests_of(VIEWERS, blobs) <= alone


def test_a_picture_of_all_checkpoints_reads_a_bounded_number_of_manifests() -> None:
    blobs = big_store(3000)
    with serving(blobs.place(), every=3600.0) as page:
        data = page.json("/api/p/trades/history?first=1&last=3000")
        assert data["window"]["total"] == 3000
        assert 100 < len(data["id"]) <= 400
        read = blobs.asked["manifests"]
        assert read <= 500
        again = page.json("/api/p/trades/history?first=1&last=3000")
        assert again == data
        assert blobs.asked["manifests"] == read


def test_a_page_is_made_once_for_all_who_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    page_of = Rendering.page

    def counted(self: Rendering, template: str, context: Mapping[str, Any]) -> str:
        made.append(template)
        return page_of(self, template, context)

    monkeypatch.setattr(Rendering, "page", counted)
    blobs = big_store(100)
    monkeypatch.setattr(answers, "KEEP_ANSWERS", 3600.0)
    requests_of(VIEWERS, blobs)
    assert made.count("history.html") == 1
    assert made.count("overview.html") == 1


def test_a_picture_is_made_once_for_all_who_look_at_it_and_beside_the_other_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(*args: Any) -> Document:
        made.append(threading.current_thread().name)
        return history.history_document(*args)

    monkeypatch.setattr(views, "history_document", counted)
    monkeypatch.setattr(answers, "KEEP_ANSWERS", 3600.0)
    requests_of(VIEWERS, big_store(100))
    (thread,) = made
    assert thread.startswith("seamark-ui-trades")
