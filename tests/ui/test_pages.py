"""Every page and every document, over stores as pipelines leave them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.store import open_store
from tests.cli.support.stores import Commands, flip, stored_manifest
from tests.native.support.inspected import make_hdfs
from tests.ui.support.serving import Client, serving
from tests.ui.support.stores import fill, save

COUNT = 120


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    fill(folder / "trades", COUNT)
    make_hdfs(folder / "native")
    return folder


@pytest.fixture(scope="module")
def page(root: Path) -> Iterator[Client]:
    with serving(root / "trades", root / "native") as client:
        client.until("/api/places", lambda d: all(p["looked_at_ms"] for p in d["places"]))
        yield client


def test_the_overview_says_of_each_place_how_it_is(page: Client) -> None:
    shown = page.text("/")
    assert "epoch 120" in shown
    assert "batch 7" in shown
    assert shown.count('<th scope="row"') == 2
    rows = {row["slug"]: row for row in page.json("/api/places")["places"]}
    trades = rows["trades"]
    assert trades["health"]["word"] == "stopped"
    assert trades["newest"]["id"] == COUNT
    assert trades["checkpoints"] == COUNT
    assert trades["epochs_per_minute"] == 12.0
    assert trades["lag"]["trades"] > 0
    assert trades["took"]["p50"] < trades["took"]["p95"]
    assert trades["writer"]["generation"] == 1
    assert rows["native"]["committed"] == 7
    assert trades["rows"] == {"bars": 120, "large": 31}
    assert trades["rows_per_second"] == pytest.approx(151 / 5, abs=0.1)
    assert "rows/s" in shown


@pytest.mark.parametrize("number", [1, 57, COUNT])
def test_a_checkpoint_is_told_as_the_command_tells_it(
    page: Client, root: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    command = Commands(capsys).json("show", root / "trades", number)
    assert page.json(f"/api/p/trades/show/{number}") == command
    shown = page.text(f"/p/trades/checkpoint/{number}")
    assert f"Checkpoint {number} · epoch {number}" in shown
    assert f"trades-3</td><td>{number * 1000 + 3}" in shown
    assert "skewed" in shown
    assert "120<small>" in shown  # rows of a sink
    assert "A restore reads" in shown or "A restore writes" in shown


def test_two_checkpoints_are_compared_as_the_command_does(
    page: Client, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Commands(capsys).json("diff", root / "trades", 3, 100)
    assert page.json("/api/p/trades/diff/3/100") == command
    shown = page.text("/p/trades/diff?a=3&b=100")
    assert "+97000" in shown
    assert f"{97 * 120:,}".replace(",", "\u00a0") in shown


def test_a_directory_is_told_as_the_command_tells_it(
    page: Client, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Commands(capsys).json("spark", "inspect", root / "native")
    assert page.json("/api/p/native/inspect") == command
    shown = page.text("/p/native")
    assert "stateStoreSave" in shown
    assert command["would_do"]["text"] in shown


def test_the_list_has_what_the_command_lists_page_by_page(
    page: Client, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {row["id"]: row for row in Commands(capsys).json("list", root / "trades")["checkpoints"]}
    seen: list[int] = []
    before: int | None = None
    while before is not None or not seen:
        found = page.json(f"/api/p/trades/list?before={before or ''}")
        for row in found["checkpoints"]:
            assert row == {name: rows[row["id"]][name] for name in row}
            seen.append(row["id"])
        before = found["before"]
    assert seen == [*range(COUNT, 0, -1)]


def test_the_table_leads_through_all_checkpoints(page: Client) -> None:
    newest, older = page.text("/p/trades"), page.text("/p/trades?before=71")
    assert "50 of 120" in newest
    assert "?before=71" in newest
    assert 'href="/p/trades/checkpoint/70"' in older
    assert 'href="/p/trades/checkpoint/71"' not in older


def test_the_picture_has_one_value_of_each_kind_for_each_checkpoint(page: Client) -> None:
    data = page.json("/api/p/trades/history?first=10&last=29")
    assert data["id"] == [*range(10, 30)]
    columns = [
        data[name] for name in ("epoch", "at_ms", "status", "took", "new_bytes", "watermark")
    ]
    columns += [*data["phases"].values(), *data["lag"].values(), *data["rows"].values()]
    assert {len(column) for column in columns} == {20}
    assert [*data["phases"]][:2] == ["begin", "write"]
    assert data["rows"] == {"bars": [120] * 20, "large": [31] * 20}


@pytest.mark.parametrize(
    "path",
    [
        "/p/other",
        "/p/trades/checkpoint/999",
        "/p/trades/checkpoint/0",
        "/p/trades/checkpoint/-1",
        "/p/trades/checkpoint/1e3",
        "/p/trades/checkpoint/99999999999999999999",
        "/p/trades/checkpoint/%2e%2e",
        "/p/trades/diff?a=1",
        "/p/trades?before=x",
        "/p/native/restart",
        "/p/native/checkpoint/1",
        "/api/p/trades/show/latest",
        "/api/p/trades/history?first=%3Cscript%3E",
        "/api/p/trades/checks/other",
        "/api/p/native/list",
        "/static/../app.py",
        "/static/%2e%2e%2fapp.py",
        "/static/app.py",
        "/nothing",
        "/p/trades/checkpoint/1/more",
    ],
)
def test_an_address_that_leads_nowhere_is_told_as_such(page: Client, path: str) -> None:
    answer = page(path)
    assert answer.status == 404, answer.text
    assert "Traceback" not in answer.text
    assert "<script>" not in answer.text


def test_the_newest_checkpoint_has_an_address_of_its_own(page: Client) -> None:
    answer = page("/p/trades/checkpoint/latest")
    assert (answer.status, answer.headers["location"]) == (303, "/p/trades/checkpoint/120")


def test_damage_pins_and_rollbacks_are_marked(tmp_path: Path) -> None:
    fill(tmp_path / "store", 8)
    with open_store(tmp_path / "store") as store:
        store.claim(writer="driver-2", pipeline="trades")
        store.pin("before-upgrade", 2)
        store.supersede(5, 6)
        save(store, 9, newest=9, now_ms=int(time.time() * 1000))
    flip(stored_manifest(tmp_path / "store", 7), at=100)
    with serving(tmp_path / "store") as page:
        page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        data = page.json("/api/p/store/history")
        words = dict(zip(data["id"], data["status"], strict=True))
        assert words[5] == words[6] == "superseded"
        assert words[7] == "damaged"
        assert words[9] == "valid"
        events = {(event["id"], event["kind"]) for event in data["events"]}
        assert {(2, "pin"), (6, "rollback"), (7, "damage"), (9, "recovery")} <= events
        shown = page.text("/p/store")
        assert "pinned: before-upgrade" in shown
        assert page.json("/api/places")["places"][0]["damaged"] == 1


def test_a_fork_is_marked_in_its_own_history_and_in_that_of_its_origin(tmp_path: Path) -> None:
    fill(tmp_path / "origin", 5)
    fork = {"url": str(tmp_path / "origin"), "checkpoint_id": 3, "timeline": "t", "epoch": 3}
    now = int(time.time() * 1000)
    with open_store(tmp_path / "trial") as store:
        store.claim(writer="driver-2")
        extra = {"fork": fork, "structure": {"sources": {}}}
        save(store, 1, newest=2, now_ms=now, extra=extra)
        save(store, 2, newest=2, now_ms=now, extra={"fork": fork})
    with serving(tmp_path / "origin", tmp_path / "trial") as page:
        page.until("/api/places", lambda d: all(p["looked_at_ms"] for p in d["places"]))
        events = page.json("/api/p/origin/history")["events"]
        assert {"id": 3, "kind": "fork", "text": "forked: trial"} in events
        events = page.json("/api/p/trial/history")["events"]
        text = f"forked from {tmp_path}/origin@3"
        assert [e for e in events if e["kind"] == "fork"] == [
            {"id": 1, "kind": "fork", "text": text}
        ]
        assert text in page.text("/p/trial")
        assert "after epoch 3" in page.text("/p/trial/checkpoint/2")


def test_an_empty_store_is_no_trouble_and_fills_by_itself(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with serving(tmp_path / "new") as page:
        found = page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        assert found["places"][0]["health"]["word"] == "empty"
        assert "no checkpoint yet" in page.text("/p/new")
        fill(tmp_path / "new", 3)
        page.until("/api/places", lambda d: (d["places"][0]["newest"] or {}).get("id") == 3)


def test_what_only_hadoop_knows_is_a_row_that_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.version", None)
    fill(tmp_path / "store", 1)
    with serving(tmp_path / "store", "hdfs://names:8020/orders/checkpoint") as page:
        found = page.until(
            "/api/places", lambda d: all(p["health"]["word"] != "looking" for p in d["places"])
        )
        row = next(row for row in found["places"] if row["slug"] == "checkpoint")
        assert row["health"]["word"] == "cannot be shown"
        assert "seamark[spark]" in row["health"]["why"]
        shown = page.text("/")
        assert "hdfs://names:8020/orders/checkpoint" in shown
        assert "pip install" in shown
        assert "cannot be shown" in page.text("/p/checkpoint")


def test_two_places_of_one_name_have_two_addresses(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        fill(tmp_path / folder / "trades", 1)
    with serving() as _:
        pass
    from seamark.ui.places import places_at

    found = places_at([str(tmp_path / "a/trades"), str(tmp_path / "b/trades")] * 2, {})
    assert len({place.slug for place in found}) == 4
    assert all(json.dumps(place.slug).isascii() for place in found)


def test_the_first_page_is_there_within_a_fifth_of_a_second_even_if_a_store_is_slow(
    tmp_path: Path,
) -> None:
    """The page does not wait for the store: it is told later, so nothing here measures time."""
    from threading import Event

    from tests.ui.support.serving import CountedBlobs

    slow = CountedBlobs()
    slow.held_up = Event()
    fill(tmp_path / "quick", 2)
    with serving(slow.place("slow"), tmp_path / "quick") as page:
        shown = page.text("/")
        assert "looking" in shown
        assert "Looking at it" in page.text("/p/slow")
        slow.held_up.set()
        page.until(
            "/api/places",
            lambda d: {p["slug"]: p["health"]["word"] for p in d["places"]}["slow"] == "empty",
        )
