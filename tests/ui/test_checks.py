"""Checks that only read: what they find, how far they are, and that nothing is changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from seamark.reports.verification import check_named
from seamark.ui import checks
from tests.cli.support.stores import Commands, flip, sidecar
from tests.ui.support.serving import CountedBlobs, serving
from tests.ui.support.stores import epoch_manifest, fill


def files_of(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def is_done(document: dict[str, Any]) -> bool:
    return document["state"] in ("done", "failed", "stopped")


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("recover", ["recover", "--explain"]),
        ("verify", ["verify"]),
        ("verify-data", ["verify", "--read-data"]),
        ("doctor", ["doctor", "--read-only"]),
    ],
)
def test_a_check_says_what_the_command_says_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, command: list[str]
) -> None:
    fill(tmp_path / "store", 5)
    flip(sidecar(tmp_path / "store", 5))
    before = files_of(tmp_path)
    name, *options = command
    seamark = Commands(capsys)
    code = 3 if kind in ("verify-data", "doctor") else 0
    said = seamark.json(name, tmp_path / "store", *options, code=code)
    with serving(tmp_path / "store") as page:
        path = f"/api/p/store/checks/{kind}"
        assert page.json(path)["state"] == "none"
        assert page.post(path).status == 200
        found = page.until(path, is_done)
        assert found["state"] == "done"
        document = found["document"]
        for volatile in ("seconds", "checks"):
            document.pop(volatile, None)
            said.pop(volatile, None)
        assert document == said
        assert "Done" in page.text("/p/store/restart")
    assert files_of(tmp_path) == before


def test_the_page_says_what_a_start_would_do(tmp_path: Path) -> None:
    fill(tmp_path / "store", 5)
    flip(sidecar(tmp_path / "store", 5))
    with serving(tmp_path / "store") as page:
        answer = page.post("/p/store/restart/recover")
        assert (answer.status, answer.headers["location"]) == (303, "/p/store/restart")
        page.until("/api/p/store/checks/recover", is_done)
        shown = page.text("/p/store/restart")
        assert "A start continues with epoch 5." in shown
        assert "skipped" in shown
        assert f"seamark rollback {tmp_path}/store ID" in shown


def held_up_verify(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have every step of a verification wait until the event is set."""
    go = threading.Event()
    examine = check_named

    def slow(store: Any, checkpoint: Any, share: float, seed: int, bar: Any) -> Any:
        found = examine(store, checkpoint, share, seed, bar)
        with bar("Verifying", 4) as advance:
            for _ in range(2):
                advance()
            go.wait(60)
            advance()
        return found

    monkeypatch.setattr(checks, "check_named", slow)
    return go


def test_a_check_runs_once_however_often_it_is_asked_for_and_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = held_up_verify(monkeypatch)
    fill(tmp_path / "store", 2)
    with serving(tmp_path / "store") as page:
        path = "/api/p/store/checks/verify"
        first = page.post(path).json()
        page.until(path, lambda d: (d["done"], d["total"]) == (2, 4))
        assert page.post(path).json()["started_ms"] == first["started_ms"]
        assert 'max="4"' in page.text("/p/store/restart")
        go.set()
        assert page.until(path, is_done)["state"] == "done"


def test_a_verification_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = held_up_verify(monkeypatch)
    fill(tmp_path / "store", 2)
    with serving(tmp_path / "store") as page:
        path = "/api/p/store/checks/verify"
        page.post(path)
        page.until(path, lambda d: d["done"] == 2)
        page.post("/p/store/restart/verify?stop")
        go.set()
        assert page.until(path, is_done)["state"] == "stopped"
        assert "Stopped after" in page.text("/p/store/restart")


def test_only_so_many_checks_run_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = held_up_verify(monkeypatch)
    for name in "abc":
        fill(tmp_path / name, 1)
    with serving(*(tmp_path / name for name in "abc")) as page:
        statuses = [page.post(f"/api/p/{name}/checks/verify").status for name in "abc"]
        assert statuses == [200, 200, 409]
        go.set()
        for name in "ab":
            page.until(f"/api/p/{name}/checks/verify", is_done)
        assert page.post("/api/p/c/checks/verify").status == 200


def test_a_store_that_fails_meanwhile_proves_nothing() -> None:
    blobs = CountedBlobs()
    with blobs.store() as store:
        store.claim()
        store.save(epoch_manifest(1, newest=1, now_ms=1))
    with serving(blobs.place(), every=3600.0) as page:
        page.json("/api/places")
        blobs.is_down = True
        page.post("/api/p/trades/checks/recover")
        found = page.until("/api/p/trades/checks/recover", is_done)
        assert found["state"] == "failed"
        assert found["error"]["kind"] == "StoreUnavailableError"
        assert "Cannot decide" in page.text("/p/trades/restart")
