"""Whether the place where a store lives keeps its promises: file system, conditions, clock."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from seamark._common.files import sync_folder
from seamark.blobs.conditional_writes import create_once, probe_conditional_writes
from seamark.blobs.contract import PROBE_PREFIX, Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError, RefusedError, SeamarkError, StoreUnavailableError
from seamark.store.layout import OWNER_KEY

CLOCK_SECONDS: Final = 5.0
_SLOW_WRITE: Final = 0.25
_FEW_BYTES: Final = 1 << 30
_FEW_PERCENT: Final = 5
_TRIES: Final = 3
_PROBE_LIMIT: Final = 4096
_MIB: Final = 1 << 20
_MOUNTS: Final = "/proc/self/mountinfo"
_NETWORK: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|glusterfs|lustre|afs|gpfs|beegfs|davfs|fuse\.(sshfs|s3fs"
    r"|gcsfuse|goofys|rclone|glusterfs|ceph.*|blobfuse2?|juicefs|mount-s3)"
)
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

CheckOutcome = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class HealthCheck:
    """One thing that was looked at."""

    name: str
    verdict: CheckOutcome
    found: str
    advice: str = ""
    exit_code: int = 0
    """What a command answers when this has failed."""


def ok(name: str, finding: str) -> HealthCheck:
    """It is as it should be."""
    return HealthCheck(name, "ok", finding)


def warning(name: str, finding: str, advice: str) -> HealthCheck:
    """It works, but not always or not well."""
    return HealthCheck(name, "warning", finding, advice)


def failed(name: str, error: SeamarkError) -> HealthCheck:
    """It does not work; the error says why."""
    where = f" ({error.where})" if error.where and error.where not in error.what else ""
    return HealthCheck(name, "failed", f"{error.what}{where}", error.hint or "", error.exit_code)


def tried(name: str, look: Callable[[], HealthCheck]) -> HealthCheck:
    """What a look gives, or why it could not be had."""
    try:
        return look()
    except SeamarkError as error:
        return failed(name, error)
    except OSError as error:
        unavailable = StoreUnavailableError(f"{error.strerror or error}")
        return failed(name, unavailable)


def exit_code_of(checks: Iterable[HealthCheck]) -> int:
    """What a command answers: 0 when nothing failed; damage counts most."""
    codes = {check.exit_code for check in checks if check.verdict == "failed"}
    for first in (DamageError.exit_code, RefusedError.exit_code, StoreUnavailableError.exit_code):
        if first in codes:
            return first
    return max(codes, default=0)


def check_place(blobs: Blobs, *, write: bool) -> list[HealthCheck]:
    """All that can be found out about a place; without ``write`` nothing is put there."""
    checks = [tried("read", lambda: _reading(blobs))]
    if checks[0].verdict == "failed":
        return checks  # all else would say the same again
    if isinstance(blobs, FilesystemBlobs):
        checks += check_disk(blobs.url)
    if write:
        with _tidied(blobs) as probed:
            checks += _writing(probed)
    return checks


def _reading(blobs: Blobs) -> HealthCheck:
    blobs.entries(PROBE_PREFIX)
    blobs.folders_holding("checkpoints/", "manifest.json")
    blobs.read(OWNER_KEY, 16 << 20)
    return ok("read", "listing and reading work")


def check_disk(path: str) -> list[HealthCheck]:
    """The file system under a path: what kind it is, and how much room it has."""
    return [
        tried("file system", lambda: _file_system(mount_of(path))),
        tried("free space", lambda: _free_space(path)),
    ]


def _file_system(mount: Mount | None) -> HealthCheck:
    name = "file system"
    if mount is None:
        return ok(name, "its kind is not known here")
    finding = f"{mount.kind} at {mount.point}"
    if mount.is_network:
        return warning(
            name,
            finding,
            "Over a network, locks may not reach other machines and a write may be lost when the "
            "server restarts. Run one writer at a time, or use an object store.",
        )
    if mount.is_memory:
        return warning(name, finding, "It is in memory: nothing of it survives a restart.")
    return ok(name, finding)


def _free_space(path: str) -> HealthCheck:
    disk = os.statvfs(path)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    percent = 100 * free / total if total else 100.0
    finding = f"{free // _MIB} MiB free, {percent:.0f} %"
    if disk.f_files and not disk.f_favail:
        return warning("free space", f"{finding}, but no file can be added", "Remove some files.")
    if free < _FEW_BYTES or percent < _FEW_PERCENT:
        return warning("free space", finding, "Keep fewer checkpoints, or give it more room.")
    return ok("free space", finding)


# with writes


def _writing(blobs: Blobs) -> list[HealthCheck]:
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    first = tried("write", lambda: _write_and_remove(blobs, key))
    if first.verdict == "failed":
        return [first]
    checks = [first, tried("conditional writes", lambda: _conditions(blobs))]
    checks.append(tried("durable write", lambda: _durable_write(blobs)))
    if isinstance(blobs, FilesystemBlobs):
        checks.append(tried("locks", lambda: _locks(blobs)))
        checks.append(tried("links", lambda: _links(blobs.url)))
    checks.append(tried("clock", lambda: _clock(blobs)))
    return checks


def _write_and_remove(blobs: Blobs, key: str) -> HealthCheck:
    create_once(blobs, key, b"seamark doctor", _PROBE_LIMIT)
    try:
        blob, is_listed = blobs.read(key, _PROBE_LIMIT), _is_listed(blobs, key)
    finally:
        try:
            blobs.delete([key])
        except SeamarkError as error:
            error.hint = (
                f"Deleting is needed to prune. {key} was left behind; allow it, then 'seamark gc'."
            )
            raise
    if blob is None or blob.data != b"seamark doctor":
        raise RefusedError(
            "what was written cannot be read back at once",
            hint="A store must show a write to everybody as soon as it is acknowledged.",
        )
    if not is_listed or _is_listed(blobs, key):
        raise RefusedError(
            "a listing does not show what was written or removed right before",
            hint="A prune removes what the checkpoints that are listed do not name: it would "
            "remove what the newest one needs. Use a store whose listings are up to date.",
        )
    return ok("write", "writing, reading back, listing and removing work")


def _is_listed(blobs: Blobs, key: str) -> bool:
    return any(entry.key == key for entry in blobs.entries(PROBE_PREFIX))


def _conditions(blobs: Blobs) -> HealthCheck:
    probe_conditional_writes(blobs)
    return ok("conditional writes", "a second create and a stale replace are refused")


def _durable_write(blobs: Blobs) -> HealthCheck:
    keys = [f"{PROBE_PREFIX}{uuid.uuid4().hex}" for _ in range(_TRIES)]
    seconds = []
    try:
        for key in keys:
            started = time.perf_counter()
            create_once(blobs, key, b"x" * 4096, _PROBE_LIMIT)
            seconds.append(time.perf_counter() - started)
    finally:
        blobs.delete(keys)
    middle = sorted(seconds)[len(seconds) // 2]
    local = isinstance(blobs, FilesystemBlobs)
    how = "file and folder fsynced" if local else "one PUT, acknowledged"
    finding = f"{middle * 1000:.1f} ms for 4 KiB ({how})"
    if middle > _SLOW_WRITE:
        return warning(
            "durable write", finding, "Every epoch waits for a few of these. Is the place busy?"
        )
    return ok("durable write", finding)


def _locks(blobs: Blobs) -> HealthCheck:
    name = f"doctor-{uuid.uuid4().hex}"
    try:
        with blobs.hold(name):
            was_held = blobs.is_held(name)
        left = blobs.is_held(name)
    finally:
        blobs.delete([f"locks/{name}.lock"])
    if was_held is False or left is True:
        error = RefusedError(
            "locks do not exclude anybody here",
            hint="Two writers could change owner.json at once. Use another file system.",
        )
        return failed("locks", error)
    return ok("locks", "a lock that is held is seen, and gone when it is given back")


def _links(root: str) -> HealthCheck:
    """Names are taken by hard links, which never overwrite; where there are none, under a lock."""
    one, two = (f"{root}/{PROBE_PREFIX}{uuid.uuid4().hex}" for _ in range(2))
    try:
        for path in (one, two):
            with open(path, "xb"):
                pass
        try:
            os.link(one, two)
        except FileExistsError:
            pass
        except OSError as error:
            return warning(
                "links",
                f"hard links do not work: {error.strerror}",
                "A lock stands in for them, which excludes only writers that use it too.",
            )
        else:
            return failed("links", RefusedError("a link replaces a file that is there"))
        os.rename(one, f"{one}.renamed")
        os.rename(f"{one}.renamed", one)
        sync_folder(os.path.dirname(one))
        return ok("links", "a link never replaces what is there")
    finally:
        for path in (one, two, f"{one}.renamed"):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _clock(blobs: Blobs) -> HealthCheck:
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    before = time.time()
    try:
        if isinstance(blobs, FilesystemBlobs):
            # by the file system's own clock, which is a server's on a network
            with open(f"{blobs.url}/{key}", "xb") as file:
                file.write(b"?")
                file.flush()
                there = os.fstat(file.fileno()).st_mtime
        else:
            create_once(blobs, key, b"?", _PROBE_LIMIT)
            entry = blobs.stat(key)
            if entry is None:
                raise RefusedError("what was written is not there")
            there = entry.modified
    finally:
        blobs.delete([key])
    after = time.time()
    # a store may give whole seconds only
    off = max(int(before) - there, there - after, 0.0)
    if off > CLOCK_SECONDS:
        return warning(
            "clock",
            f"the store's clock and ours are {off:.0f} s apart",
            "The ages of leftovers and pins depend on these clocks. Set both by NTP.",
        )
    return ok("clock", f"the store's clock and ours are less than {CLOCK_SECONDS:.0f} s apart")


@contextmanager
def _tidied(blobs: Blobs) -> Iterator[Blobs]:
    """Leave nothing behind that was not there: the place may not be a store yet.

    Locks of the place itself are never removed, as a first writer may hold one. So a place that
    is not a store yet is probed in a folder of its own.
    """
    if not isinstance(blobs, FilesystemBlobs):
        yield blobs
        return
    probes = f"{blobs.url}/{PROBE_PREFIX}".rstrip("/")
    was_there = os.path.exists(probes)
    apart = None
    if not os.path.exists(f"{blobs.url}/{OWNER_KEY}"):
        apart = f"{probes}/{uuid.uuid4().hex}"
    try:
        # a handle remembers which folders it has made
        yield FilesystemBlobs(apart or blobs.url)
    finally:
        if apart is not None:
            shutil.rmtree(apart, ignore_errors=True)
        if not was_there:
            with suppress(OSError):  # not empty: somebody else probes it too
                os.rmdir(probes)


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str

    @property
    def is_network(self) -> bool:
        """Whether its bytes are on another machine."""
        return _NETWORK.fullmatch(self.kind) is not None

    @property
    def is_memory(self) -> bool:
        """Whether a restart forgets it."""
        return self.kind in _MEMORY


def mount_of(path: str) -> Mount | None:
    """The file system that a path is on; None where that is unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return find_mount(file.read(), os.path.realpath(path))
    except OSError:
        return None


def find_mount(mounts: str, path: str) -> Mount | None:
    """The mount that a real path is below, from the text of ``mountinfo``. Pure."""
    best: Mount | None = None
    for line in mounts.splitlines():
        fields, separator, rest = line.partition(" - ")
        parts = fields.split(" ")
        if not separator or len(parts) < 5:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), parts[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # the last of several on one point is the one that is seen
        if inside and (best is None or len(point) >= len(best.point)):
            best = Mount(point, rest.split(" ", 1)[0])
    return best
