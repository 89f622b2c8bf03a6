"""``seamark doctor``: each fault that it promises to find is found, and none where none is."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.progress import open_progress, rocksdb_url
from seamark.store import Blobs, health, open_store
from seamark.store.health import HealthCheck
from seamark.store.manifests import Manifests
from tests.cli.support.running import (
    Cli,
    closed_folder,
    epoch,
    flip,
    options_of,
    with_password,
    without_rights,
)
from tests.support.databases import RedisServer, redis_server
from tests.support.servers import ObjectServer


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as made:
        made.claim(pipeline="orders")
        for number in range(1, 4):
            epoch(made, number, number)
    return tmp_path / "store"


def verdicts(document: Any) -> dict[str, str]:
    return {each["name"]: each["verdict"] for each in document["checks"]}


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sound_store_has_no_failure_and_is_left_as_it_was(cli: Cli, store: Path) -> None:
    before = files_in(store)
    document = cli.document("doctor", store)
    found = verdicts(document)
    assert "failed" not in found.values()
    assert {
        "read", "write", "conditional writes", "durable write", "locks", "links", "clock",
        "format", "owner", "pointer", "newest checkpoint", "leftovers", "free space",
    } <= set(found)  # fmt: skip
    assert document["exit_code"] == 0
    assert files_in(store) == before
    assert cli("doctor", store) == 0
    assert "conditional writes" in cli.out


def test_an_empty_directory_is_no_store_yet_and_stays_empty(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cli("doctor", tmp_path / "empty") == 0
    assert "the store is empty" in cli.out
    assert list((tmp_path / "empty").iterdir()) == []
    assert cli("doctor", tmp_path / "nothing") == 4
    assert not (tmp_path / "nothing").exists()


def test_read_only_writes_nothing_at_all(cli: Cli, store: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [store, *store.rglob("*")]}
    found = verdicts(cli.document("doctor", store, "--read-only"))
    assert "write" not in found
    assert "locks" not in found
    assert found["newest checkpoint"] == "ok"
    assert {path: path.stat().st_mtime_ns for path in [store, *store.rglob("*")]} == before


def test_damage_is_exit_3_and_names_what_a_start_would_choose(cli: Cli, store: Path) -> None:
    flip(store / "checkpoints/checkpoint_000003/manifest.json")
    document = cli.document("doctor", store, code=3)
    assert verdicts(document)["newest checkpoint"] == "failed"
    assert cli("doctor", store) == 3
    assert "go back to 2" in " ".join(cli.out.split())
    flip(store / "owner.json")
    document = cli.document("doctor", store, code=3)
    assert verdicts(document)["format"] == "failed"


def test_a_pointer_that_a_save_is_about_to_move_is_no_warning(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = store / "checkpoints/latest.txt"
    newest = pointer.read_text()
    pointer.write_text("checkpoint_000002")
    writer = open_store(store)
    writer.claim()
    paused: list[float] = []

    def a_moment_later(seconds: float) -> None:
        paused.append(seconds)
        pointer.write_text(newest)

    monkeypatch.setattr("seamark.store.content_health.time.sleep", a_moment_later)
    assert verdicts(cli.document("doctor", store))["pointer"] == "ok"
    assert len(paused) == 1
    writer.close()


def test_a_pointer_to_what_is_gone_is_damage_and_an_old_one_is_a_warning(
    cli: Cli, store: Path
) -> None:
    pointer = store / "checkpoints/latest.txt"
    pointer.write_text("checkpoint_000002")
    assert verdicts(cli.document("doctor", store))["pointer"] == "warning"
    pointer.unlink()
    assert verdicts(cli.document("doctor", store))["pointer"] == "warning"
    pointer.write_text("checkpoint_000017")
    assert verdicts(cli.document("doctor", store, code=3))["pointer"] == "failed"


def test_a_store_in_which_every_listing_is_overtaken_by_an_epoch_is_healthy(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, saved, saving = Manifests.ids, [3], threading.Lock()

    def while_an_epoch_ends(manifests: Manifests) -> list[int]:
        if saving.acquire(blocking=False):  # a save lists too
            saved.append(saved[-1] + 1)
            epoch(running, saved[-1], saved[-1])
            saving.release()
        return listed(manifests)

    with open_store(store) as running:
        running.claim(pipeline="orders")
        monkeypatch.setattr(Manifests, "ids", while_an_epoch_ends)
        document = cli.document("doctor", store)
    assert verdicts(document)["pointer"] == "ok"
    assert document["exit_code"] == 0
    assert len(saved) > 2


def test_leftovers_are_counted_and_gc_is_named(cli: Cli, store: Path) -> None:
    old = time.time() - 7200
    probe = f"probe/{'f' * 32}"
    for name in ("tmp/1-0123456789abcdef", "checkpoints/checkpoint_000009/state.bin", probe):
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 2048)
        os.utime(path, (old, old))
    document = cli.document("doctor", store)
    (found,) = [each for each in document["checks"] if each["name"] == "leftovers"]
    assert found["verdict"] == "warning"
    assert "3 of unfinished writes, 6 KiB" in found["found"]
    assert "seamark gc" in found["advice"]


def test_the_owner_is_told_alive_or_dead(cli: Cli, store: Path) -> None:
    def owner() -> Any:
        document = cli.document("doctor", store)
        return next(each for each in document["checks"] if each["name"] == "owner")

    assert "given back" in owner()["found"]
    with open_store(store) as running:
        running.claim(writer="driver-2")
        assert "in use by generation 2 (driver-2" in owner()["found"]
        running.check_claim()
    killed = open_store(store)
    killed.claim(writer="driver-3")
    # a process that is killed leaves the claim and loses the lock
    (store / "locks/generation-3.lock").unlink()
    assert owner()["verdict"] == "warning"
    assert "driver-3" in owner()["found"]
    killed.close()


def test_a_store_of_a_newer_format_is_refused(cli: Cli, store: Path) -> None:
    from seamark._common.json_documents import seal, unseal

    path = store / "owner.json"
    document = unseal(path.read_bytes())
    path.write_bytes(seal(document.replace(b'"format_version":1', b'"format_version":9')))
    assert verdicts(cli.document("doctor", store, code=6))["format"] == "failed"


def test_a_folder_that_may_not_be_read_or_not_be_written_is_exit_7(cli: Cli) -> None:
    with closed_folder() as folder:
        cli("doctor", folder)
        with without_rights():
            assert verdicts(cli.document("doctor", folder, code=7)) == {"read": "failed"}
        folder.chmod(0o555)
        with without_rights():
            found = verdicts(cli.document("doctor", folder, code=7))
            assert found["read"] == "ok"
            assert found["write"] == "failed"
            assert cli("doctor", folder, "--read-only") == 0


def test_a_bucket_is_probed_and_a_wrong_one_is_told_without_secrets(
    cli: Cli, s3: ObjectServer
) -> None:
    url, options = s3.new_url("store"), options_of(s3)
    with open_store(url, storage_options=s3.storage_options) as made:
        made.claim()
        epoch(made, 1, 1)
    document = cli.document("doctor", url, *options)
    found = verdicts(document)
    assert set(found.values()) == {"ok"}
    assert {"write", "conditional writes", "clock", "newest checkpoint"} <= set(found)
    assert "testing" not in cli.out
    with open_store(url, storage_options=s3.storage_options) as made:
        assert made.backend.entries("probe/") == []
    assert verdicts(cli.document("doctor", f"{url}", *options, "--read-only"))["read"] == "ok"
    wrong = url.replace("s3://", "s3://not-there-")
    assert verdicts(cli.document("doctor", wrong, *options, code=7)) == {"read": "failed"}
    assert "testing" not in cli.out + cli.err


def test_a_redis_that_forgets_is_a_warning(cli: Cli, redis: RedisServer, tmp_path: Path) -> None:
    document = cli.document("doctor", f"{redis.url}?namespace={tmp_path.name}")
    assert verdicts(document) == {"read": "ok", "persistence": "ok"}
    with redis_server(appendonly=False) as forgetful:
        url = with_password(forgetful, "hunter2hunter2")
        assert verdicts(cli.document("doctor", url))["persistence"] == "warning"
        assert "hunter2" not in cli.out
        assert cli("doctor", url.replace("hunter2", "wrong22")) == 7
        assert "wrong22" not in cli.out + cli.err


def test_a_progress_folder_is_looked_at_and_a_missing_one_is_not_found(
    cli: Cli, tmp_path: Path
) -> None:
    url = rocksdb_url(tmp_path / "progress")
    with open_progress(url) as store, store.session() as session:
        session.stage_checkpoint("trades", 4, b"{}")
    document = cli.document("doctor", url)
    assert verdicts(document)["read"] == "ok"
    assert "1 source recorded" in document["checks"][0]["found"]
    assert cli("doctor", rocksdb_url(tmp_path / "nothing")) == 4


def test_a_first_writer_s_lock_is_never_taken_away(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FilesystemBlobs(str(tmp_path / "new"))
    (tmp_path / "new").mkdir()
    lock = tmp_path / "new/locks/writers.lock"
    conditions = health._conditions

    def while_a_writer_starts(blobs: Blobs) -> HealthCheck:
        held.enter_context(first.exclusive())
        return conditions(blobs)

    monkeypatch.setattr(health, "_conditions", while_a_writer_starts)
    with ExitStack() as held:
        assert cli("doctor", tmp_path / "new") == 0
        assert lock.exists()
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["locks"]
