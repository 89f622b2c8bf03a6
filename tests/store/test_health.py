"""A place that does not keep its promises is found out; one that does is not accused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seamark.blobs.contract import Blobs, Entry, KeyExists, Tag, TagMismatch
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import StoreUnavailableError
from seamark.store.health import HealthCheck, Mount, check_place, exit_code_of, find_mount, mount_of

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:25 / /mnt/share rw - nfs4 server:/export rw,vers=4.2
31 21 0:26 / /mnt/a\\040b rw - tmpfs tmpfs rw
32 30 0:27 / /mnt/share/inner rw - fuse.sshfs host:/ rw
33 21 0:28 / /mnt/a\\040b rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data", "ext4"),
        ("/mnt/share/x", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share/inner", "fuse.sshfs"),
        ("/mnt/a b/c", "xfs"),
    ],
)
def test_a_path_is_on_the_innermost_mount_that_is_seen(path: str, kind: str) -> None:
    found = find_mount(MOUNTS, path)
    assert found is not None
    assert found.kind == kind
    assert found.is_network == (kind in ("nfs4", "fuse.sshfs"))


def test_this_machine_tells_what_the_root_is_on() -> None:
    assert mount_of("/") is not None
    assert find_mount("", "/x") is None
    assert Mount("/run", "tmpfs").is_memory


def verdicts(blobs: Blobs) -> dict[str, str]:
    return {check.name: check.verdict for check in check_place(blobs, write=True)}


class Careless(MemoryBlobs):
    """Accepts every create, as some object stores do."""

    def create(self, key: str, data: bytes) -> Tag:
        try:
            return super().create(key, data)
        except KeyExists:
            self.delete([key])
            return super().create(key, data)


class Early(MemoryBlobs):
    """Its clock is an hour slow."""

    def stat(self, key: str) -> Entry | None:
        found = super().stat(key)
        return found._replace(modified=found.modified - 3600) if found else None


class Forgetful(MemoryBlobs):
    """Does not show what was just written."""

    def read(self, key: str, limit: int) -> Any:
        return None


class WriteOnce(MemoryBlobs):
    """May not delete."""

    def delete(self, keys: Any) -> None:
        raise StoreUnavailableError("removing failed: access denied")


def test_a_store_that_ignores_conditions_is_refused() -> None:
    checks = check_place(Careless(), write=True)
    assert {c.name for c in checks if c.verdict == "failed"} == {"conditional writes"}
    assert exit_code_of(checks) == 6


def test_a_clock_that_is_off_is_a_warning() -> None:
    assert verdicts(Early())["clock"] == "warning"
    assert verdicts(MemoryBlobs())["clock"] == "ok"


def test_a_write_that_cannot_be_seen_or_not_be_removed_is_told() -> None:
    assert exit_code_of(check_place(Forgetful(), write=True)) == 6
    checks = check_place(WriteOnce(), write=True)
    assert exit_code_of(checks) == 7
    assert "was left behind" in checks[-1].advice


def test_locks_that_exclude_nobody_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FilesystemBlobs(str(tmp_path))
    assert verdicts(blobs)["locks"] == "ok"
    monkeypatch.setattr(FilesystemBlobs, "is_held", lambda *_: False)
    assert verdicts(blobs)["locks"] == "failed"
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_hard_links_or_nearly_full_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    blobs = FilesystemBlobs(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        assert verdicts(blobs)["links"] == "warning"
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([*real[:4], 10, *real[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert verdicts(blobs)["free space"] == "warning"


def test_damage_counts_more_than_anything_else() -> None:
    def failing(code: int) -> HealthCheck:
        return HealthCheck("x", "failed", "", exit_code=code)

    assert exit_code_of([failing(7), failing(3), failing(6)]) == 3
    assert exit_code_of([failing(7), failing(6)]) == 6
    assert exit_code_of([HealthCheck("x", "warning", "", exit_code=3)]) == 0


class Repeating(MemoryBlobs):
    """A client that asks again when an answer is lost, and is then refused its own write."""

    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data)
        raise KeyExists(key)

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        raise TagMismatch(key)


def test_a_place_whose_answers_get_lost_is_not_accused() -> None:
    assert set(verdicts(Repeating()).values()) == {"ok"}


class Refusing(MemoryBlobs):
    """Knows no tag again, as a service whose tags change on their way."""

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        raise TagMismatch(key)


def test_a_place_that_refuses_every_replace_is_told_as_such() -> None:
    checks = {check.name: check for check in check_place(Refusing(), write=True)}
    assert checks["conditional writes"].verdict == "failed"
    assert "although its condition holds" in checks["conditional writes"].found


class ListingLate(MemoryBlobs):
    """Lists what was there a moment ago."""

    def __init__(self, *, adds: bool, removes: bool) -> None:
        super().__init__()
        self._before: dict[str, Entry] = {}
        self._adds, self._removes = adds, removes

    def entries(self, prefix: str) -> list[Entry]:
        now = {entry.key: entry for entry in super().entries(prefix)}
        before, self._before = self._before, now
        late = now.keys() & before.keys() if self._adds else now.keys()
        late |= before.keys() if self._removes else set()
        return sorted((now | before)[key] for key in late)


@pytest.mark.parametrize(("adds", "removes"), [(True, False), (False, True)])
def test_a_place_that_lists_what_is_no_longer_so_is_found_out(*, adds: bool, removes: bool) -> None:
    blobs = ListingLate(adds=adds, removes=removes)
    checks = {check.name: check for check in check_place(blobs, write=True)}
    assert checks["write"].verdict == "failed"
    assert "listing does not show" in checks["write"].found
