"""Commands on a disk that is full or read-only: they do what can be done, and say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.cli.commands import Settings
from seamark.cli.error_report import report_error
from seamark.manifest import OperatorCheckpoint
from seamark.store import CheckpointStore, open_store
from tests.checkpoint_dir.support.directories import make_copy
from tests.cli.support.running import Cli
from tests.store.support.examples import child, example
from tests.support.full_disks import SmallDisk, small_disk

STATE = b"s" * 3000
KEEP = ("--query-id", "keep")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 400 << 10) as mounted:
        yield mounted


def save(store: CheckpointStore, number: int, parent: int | None = None) -> None:
    draft = example(number) if parent is None else child(number, parent)
    external = {"op": OperatorCheckpoint.in_sidecar(0, len(STATE))}
    store.save_with_state(draft.replace(operator_states=external), [STATE])


def fill_store(path: Path) -> None:
    with open_store(path) as store:
        for number in (1, 2, 3):
            save(store, number)
        save(store, 4, parent=3)
        save(store, 5)


def test_prune_works_on_a_full_disk(disk: SmallDisk, cli: Cli) -> None:
    where = disk.path / "store"
    fill_store(where)
    disk.fill()
    assert cli("prune", where, "--keep", 1, "--yes") == 0, cli.err
    with open_store(where) as store:
        assert store.list_ids() == [5]
        assert store.recover_latest_validated().chosen_id == 5
        assert store.owner().prune_boundary == 4
        save(store, 6)  # there is room again
    assert cli("verify", where, "--read-data") == 0


def test_prune_on_a_full_disk_takes_nothing_that_is_pinned(disk: SmallDisk, cli: Cli) -> None:
    where = disk.path / "store"
    fill_store(where)
    with open_store(where) as store:
        store.pin("mine", 4)
    disk.fill()
    assert cli("prune", where, "--keep", 1, "--yes") == 0, cli.err
    with open_store(where) as store:
        assert store.list_ids() == [3, 4, 5]
        assert store.validate_checkpoint(4).valid


def test_prune_by_a_program_works_on_a_full_disk(disk: SmallDisk) -> None:
    where = disk.path / "store"
    fill_store(where)
    with open_store(where) as store:
        store.claim()
        disk.fill()
        assert store.prune(1) == 4
        assert store.list_ids() == [5]
        save(store, 6)
    with open_store(where) as store:
        assert store.recover_latest_validated().chosen_id == 6


def test_gc_works_on_a_full_disk(disk: SmallDisk, cli: Cli) -> None:
    where = disk.path / "store"
    fill_store(where)
    with open_store(where) as store:
        store.save_state_data(9, [STATE * 10])
    disk.fill()
    assert cli("gc", where, "--min-age", "0s", "--yes") == 0, cli.err
    assert "Removed 1" in cli.out
    with open_store(where) as store:
        assert store.load_state_data(9) is None
        assert store.list_ids() == [1, 2, 3, 4, 5]


def attempts(disk: SmallDisk, elsewhere: Path) -> dict[str, tuple[object, ...]]:
    """Commands that have to write to the disk; elsewhere is room enough."""
    ck, store = disk.path / "ck", disk.path / "store"
    return {
        "restore": ("spark", "restore", elsewhere / "store", 1, disk.path / "out", *KEEP),
        "restore below": ("spark", "restore", elsewhere / "store", 1, disk.path / "a/b", *KEEP),
        "snapshot": ("spark", "snapshot", elsewhere / "ck", disk.path / "new"),
        "copy": ("copy", elsewhere / "store", disk.path / "copy"),
        "rollback": ("spark", "rollback", ck, "--to-batch", 0, *KEEP, "--yes"),
        "pin": ("pin", store, 1, "name"),
        "rollback of a store": ("rollback", store, 1, "--yes"),
        "rebuild": ("doctor", disk.path / "broken", "--rebuild-owner", "--yes"),
        "demo": ("demo", "--dir", disk.path / "demo"),
    }


@pytest.mark.parametrize("why", ["full", "read-only"])
def test_every_command_that_must_write_says_what_to_do(
    why: str, disk: SmallDisk, tmp_path: Path, cli: Cli
) -> None:
    elsewhere = tmp_path / "elsewhere"
    make_copy(elsewhere / "ck", 3)
    assert cli("spark", "snapshot", elsewhere / "ck", elsewhere / "store") == 0
    make_copy(disk.path / "ck", 3)
    fill_store(disk.path / "store")
    with open_store(disk.path / "broken") as broken:
        broken.claim()
        save(broken, 1)
    (disk.path / "broken" / "owner.json").write_bytes(b"torn")
    before = sorted(disk.path.rglob("*"))
    disk.fill()
    if why == "read-only":
        disk.free()
        disk.make_read_only()
    for name, command in attempts(disk, elsewhere).items():
        code = cli(*command)
        told = " ".join(cli.err.split())
        assert "fault of Seamark" not in told, f"{name}: {told}"
        assert code == 7, f"{name}: {code} {told}"
        assert ("disk is full" if why == "full" else "read-only") in told, f"{name}: {told}"
    left = [p for p in disk.path.rglob("*") if p.name != "filler" and p not in before]
    assert not [p for p in left if p.is_file() and p.stat().st_size], "no half of anything is left"
    assert cli("verify", disk.path / "store") == 0, cli.err


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EMFILE, "ulimit"),
        (errno.EIO, ""),
    ],
)
def test_what_the_system_refuses_is_no_fault_of_ours(
    code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(OSError(code, "refused", "/data/file"), Settings()) == 7
    said = " ".join(capsys.readouterr().err.split())
    assert "/data/file" in said
    assert hint in said
    assert "fault of Seamark" not in said
