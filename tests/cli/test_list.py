"""A list tells what each checkpoint is, at once, and what to type when something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seamark import ConnectorCheckpoint, open_store
from seamark.blobs.contract import Blob
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.cli.list import HEADINGS, OFFSETS
from seamark.errors import StoreUnavailableError
from seamark.manifest import SinkCommitStatus
from seamark.reports.checkpoint_summary import (
    CheckpointSummary,
    positions,
    positions_text,
    summarize_checkpoints,
)
from seamark.store import CheckpointStore
from seamark.store.inspection import scan
from tests.cli.support.stores import (
    COMMITTED,
    Commands,
    flip,
    manifest,
    save,
    save_partitioned,
    sidecar,
    stored_manifest,
)


def statuses(seamark: Commands, store: Path, *words: str, code: int = 0) -> dict[int, str]:
    found = seamark.json("list", store, *words, code=code)["checkpoints"]
    return {row["id"]: row["status"] for row in found}


def test_the_newest_is_first_with_all_that_matters(seamark: Commands, store: Path) -> None:
    heading, first, *_, last, summary = seamark("list", store).splitlines()
    assert heading.split() == [*HEADINGS, OFFSETS]
    assert first.split()[:2] == ["4", "4"]
    assert "s ago  valid  " in first
    assert "0.41 s" in first
    assert first.endswith("bars large  400…402")
    assert "valid, full" in last
    assert summary.startswith("4 checkpoints · newest valid 4 at trades 400…402 · ")


def test_json_has_the_documented_members(seamark: Commands, store: Path) -> None:
    found = seamark.json("list", store)
    assert found["newest_valid"] == 4
    assert found["verified"] is False
    newest, *_, oldest = found["checkpoints"]
    assert (newest["id"], newest["epoch"], newest["status"]) == (4, 4, "valid")
    assert newest["sinks"] == {"bars": "Committed", "large": "Committed"}
    assert newest["took_seconds"] == 0.41
    assert newest["full_bytes"] == sum(row["new_bytes"] for row in found["checkpoints"])
    assert oldest["full"]
    assert oldest["full_bytes"] == oldest["new_bytes"]
    assert newest["timestamp_ms"] > oldest["timestamp_ms"] - 1


def test_options_may_stand_before_the_command(seamark: Commands, store: Path) -> None:
    assert seamark("--json", "list", store).startswith('{"store"')


def test_damage_of_a_manifest_is_shown_without_asking(seamark: Commands, store: Path) -> None:
    flip(stored_manifest(store, 3))
    shown = seamark("list", store)
    assert "checksum differs" in shown
    assert f"seamark recover {store} --explain" in shown
    # what builds on it cannot be restored either, whatever its own bytes are
    assert statuses(seamark, store) == {4: "damaged", 3: "damaged", 2: "valid", 1: "valid"}
    assert seamark.json("list", store)["newest_valid"] == 2


def test_damage_of_state_is_found_only_by_verifying(seamark: Commands, store: Path) -> None:
    flip(sidecar(store, 4))
    assert statuses(seamark, store)[4] == "valid"
    assert statuses(seamark, store, "--verify", code=3)[4] == "damaged"
    shown = seamark("list", store, "--verify", code=3)
    assert "all was read, 1 damaged" in " ".join(shown.split())
    assert "verified" not in shown


def test_a_whole_store_is_said_to_be_verified(seamark: Commands, store: Path) -> None:
    assert "all bytes verified" in " ".join(seamark("list", store, "--verify").split())


def test_a_manifest_that_the_pointer_names_and_that_is_gone_is_damage(
    seamark: Commands, store: Path
) -> None:
    stored_manifest(store, 4).unlink()
    assert statuses(seamark, store)[4] == "damaged"


def test_an_unfinished_sink_is_seen(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        failed = SinkCommitStatus.failed("disk full")
        save(found, 5, sink_commit_statuses={"bars": COMMITTED, "large": failed})
    shown = seamark("list", store)
    assert "committing" in shown
    assert "sink large failed: disk full" in shown
    assert f"seamark show {store} 5" in shown
    assert seamark.json("list", store)["newest_valid"] == 5


def test_pins_stand_beside_the_status(seamark: Commands, store: Path) -> None:
    seamark("pin", store, 1, "before-upgrade")
    shown = seamark("list", store)
    assert "valid, full, pinned" in shown
    assert "    pinned: before-upgrade" in shown
    assert seamark.json("list", store)["checkpoints"][-1]["pins"] == ["before-upgrade"]


def test_a_rollback_leaves_superseded_ones(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        found.claim()
        found.supersede(3, 4)
    assert statuses(seamark, store) == {4: "superseded", 3: "superseded", 2: "valid", 1: "valid"}


@pytest.mark.parametrize("words", [(), ("--verify",)])
def test_a_list_beside_a_rollback_has_the_pins_and_statuses_of_one_history(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    real = summarize_checkpoints
    looks = []

    def beside(opened: CheckpointStore) -> dict[int, CheckpointSummary]:
        looks.append(found := real(opened))
        if len(looks) == 1:
            with open_store(store) as writer:
                writer.claim()
                writer.supersede(3, 4)
                writer.pin("rolled back to", 2)
        return found

    monkeypatch.setattr("seamark.cli.list.summarize_checkpoints", beside)
    rows = seamark.json("list", store, *words)["checkpoints"]
    assert {row["id"]: (row["status"], row["pins"]) for row in rows} == {
        4: ("superseded", []),
        3: ("superseded", []),
        2: ("valid", ["rolled back to"]),
        1: ("valid", []),
    }


def test_a_claim_alone_is_no_checkpoint(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        found.claim()
        assert list(statuses(seamark, store)) == [4, 3, 2, 1]


def test_partitioned_state_counts_and_its_loss_is_seen(seamark: Commands, store: Path) -> None:
    path = save_partitioned(store, 5)
    newest = seamark.json("list", store)["checkpoints"][0]
    assert newest["new_bytes"] > stored_manifest(store, 5).stat().st_size
    next((store / path).glob("packs/*")).unlink()
    assert statuses(seamark, store, "--verify", code=3)[5] == "damaged"
    (store / path / "manifest.json").unlink()
    assert statuses(seamark, store)[5] == "damaged"


def test_the_checkpoint_directory_of_a_query_is_recognised(
    seamark: Commands, tmp_path: Path
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    seamark("list", tmp_path, code=4)
    assert "seamark spark inspect" in seamark.err


def test_the_inside_of_a_store_is_recognised(seamark: Commands, store: Path) -> None:
    assert f"seamark list {store.resolve()}" in seamark("list", store / "checkpoints")


def test_a_directory_of_something_else_is_doubted(seamark: Commands, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("x")
    assert "Is the path right?" in seamark("list", tmp_path)
    assert seamark("list", tmp_path, "-q") == "No checkpoints.\n"


def test_many_sinks_and_long_names_stay_within_the_screen(seamark: Commands, store: Path) -> None:
    names = [f"a-sink-with-a-long-name-{number}" for number in range(5)]
    with open_store(store) as found:
        save(
            found,
            5,
            sink_names=names,
            sink_epochs=dict.fromkeys(names, 5),
            sink_commit_statuses=dict.fromkeys(names, COMMITTED),
        )
    shown = seamark("list", store)  # measures its lines
    assert "a-sink-with-a-" in shown


def test_a_reader_that_has_seen_enough_leaves_no_trace(store: Path) -> None:
    with open_store(store) as found:
        for number in range(5, 200):
            found.save(manifest(number))
    writer = subprocess.Popen(
        [sys.executable, "-m", "seamark", "list", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 141


def test_an_object_store_is_listed_once_and_read_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryBlobs, "parallel_reads", 4)
    listings, readers = [], set()
    together = threading.Barrier(4, timeout=280)
    with open_store("memory://side-by-side") as found:
        for number in range(1, 9):
            found.save(manifest(number))
        read, entries = MemoryBlobs.read, MemoryBlobs.entries

        def reading(self: MemoryBlobs, key: str, limit: int) -> object:
            if "/manifest-" in key:
                readers.add(threading.get_ident())
                together.wait()  # passes only when four read at once
            return read(self, key, limit)

        def listing(self: MemoryBlobs, prefix: str) -> object:
            listings.append(prefix)
            return entries(self, prefix)

        monkeypatch.setattr(MemoryBlobs, "read", reading)
        monkeypatch.setattr(MemoryBlobs, "entries", listing)
        assert len(list(scan(found))) == 8
    assert listings == ["manifests/"]
    assert len(readers) == 4


def test_a_manifest_that_cannot_be_read_is_a_row_and_hides_no_other(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FilesystemBlobs.read

    def failing(self: FilesystemBlobs, key: str, limit: int) -> Blob | None:
        if key.endswith("000002/manifest.json"):
            raise StoreUnavailableError("Permission denied")
        return read(self, key, limit)

    monkeypatch.setattr(FilesystemBlobs, "read", failing)
    for words in ([], ["--verify"]):
        found = seamark.json("list", store, *words, code=7)
        told = {row["id"]: row["status"] for row in found["checkpoints"]}
        # what builds on it cannot be judged either
        assert told == {4: "unreadable", 3: "unreadable", 2: "unreadable", 1: "valid"}
        assert found["newest_valid"] == 1
    shown = seamark("list", store, code=7)
    assert "Permission denied" in shown
    assert "3 unreadable" in shown
    assert "seamark doctor store" in shown


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ({"0": "600", "1": "602", "10": "601"}, "trades 600…602"),
        ({"0": "7"}, "trades 7"),
        ({"0": "7", "1": "7"}, "trades 7"),
        ({}, "trades at its beginning"),
        ({"lsn": "0/16B3748"}, "trades 0/16B3748"),
        ({"²": "²", "a": "x"}, "trades x +1"),
        ({"x": "9" * 5000}, f"trades {'9' * 23}…"),
        ({"password": "hunter2hunter2"}, "trades ***"),
    ],
)
def test_offsets_are_told_in_a_few_characters(offsets: dict[str, str], text: str) -> None:
    at = positions({"trades": ConnectorCheckpoint(dict(reversed(offsets.items())))})
    assert positions_text(at) == text
