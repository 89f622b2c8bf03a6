"""News without a reload, and places that stop answering and come back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seamark.store import open_store
from seamark.ui import bounds, overview
from seamark.ui.places import Place
from seamark.ui.store_watch import StoreWatch
from tests.ui.support.serving import CountedBlobs, serving, until
from tests.ui.support.stores import epoch_manifest, fill, save


def words(document: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [place["health"]["word"] for place in document["places"]]


def test_a_new_epoch_is_told_to_whoever_listens(tmp_path: Path) -> None:
    fill(tmp_path / "store", 3)
    with (
        serving(tmp_path / "store") as page,
        page.events("/events?place=store") as events,
        open_store(tmp_path / "store") as writer,
    ):
        page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        writer.claim(writer="driver-2")
        save(writer, 5, newest=5, now_ms=int(time.time() * 1000))
        for place in events:
            assert place == "store"
            if page.json("/api/places")["places"][0]["newest"]["id"] == 5:
                break
        assert "epoch 5" in page.text("/p/store")


def test_a_store_that_does_not_answer_is_told_as_such_and_comes_back() -> None:
    blobs = CountedBlobs()
    with blobs.store() as store:
        store.claim()
        store.save(epoch_manifest(1, newest=1, now_ms=int(time.time() * 1000)))
    other = CountedBlobs("memory://other")
    with serving(blobs.place(), other.place("other")) as page:
        page.until("/api/places", lambda d: "looking" not in words(d))
        blobs.is_down = True
        found = page.until("/api/places", lambda d: "not answering" in words(d))
        row = found["places"][0]
        assert row["slug"] == "trades"
        assert "503 Slow Down" in row["health"]["why"]
        assert row["newest"]["epoch"] == 1  # what was known is still shown
        shown = page.text("/p/trades")
        assert "not answering" in shown
        assert "epoch 1" in shown
        assert "empty" in page.text("/")
        blobs.is_down = False
        page.until("/api/places", lambda d: "not answering" not in words(d))


def test_a_store_that_is_not_looked_at_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "UNWATCHED_AFTER", 0.2)
    blobs = CountedBlobs()
    with serving(blobs.place()) as page:
        page.text("/")
        before = -1
        while before != blobs.requests:
            before = blobs.requests
            time.sleep(1)
        page.text("/")
        until(lambda: blobs.requests, lambda count: count > before)


def test_a_place_that_cannot_be_opened_yet_is_shown_when_it_can() -> None:
    tries: list[int] = []
    blobs = CountedBlobs()

    def at_the_third_time() -> StoreWatch:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no route to host")
        return StoreWatch(blobs.store, blobs.url)

    with serving(Place("trades", "trades", blobs.url, at_the_third_time)) as page:
        page.until("/api/places", lambda d: words(d) == ["not answering"])
        page.until("/api/places", lambda d: words(d) == ["empty"])


def test_a_stream_says_now_and_then_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HEARTBEAT", 0.05)
    monkeypatch.setattr(bounds, "STREAM_SECONDS", 0.5)
    with serving(CountedBlobs().place()) as page:
        text = page("/events").text  # it ends after a while, and a browser opens another one
        assert text.startswith("retry: 2000\n")
        assert text.count(": still here") >= 1


def test_only_so_many_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_LISTENERS", 1)
    with serving(CountedBlobs().place()) as page, page.events() as _:
        assert page("/events").status == 409
    # and whoever has gone makes room


def test_a_writer_that_has_gone_quiet_is_news_although_its_store_has_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overview, "_QUIET_SECONDS", 3600.0)
    blobs = CountedBlobs()
    now = int(time.time() * 1000)
    with blobs.store() as store:
        store.claim(writer="driver-1")
        for number in range(1, 6):
            made = epoch_manifest(number, newest=5, now_ms=now)
            store.save(made.replace(timestamp_ms=now - (5 - number) * 50))
        with serving(blobs.place()) as page, page.events() as news:
            page.until("/api/places", lambda d: words(d) == ["running"])
            monkeypatch.setattr(overview, "_QUIET_SECONDS", 0.0)
            for _ in news:
                if words(page.json("/api/places")) == ["quiet"]:
                    break
            assert "quiet" in page.text("/")
