"""RocksDB snapshots: whether they are whole and have the files that they name, and their rows.

Rows are read by RocksDB itself, where ``rocksdict`` is installed.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from seamark import limits
from seamark._common.json_documents import UNREADABLE
from seamark.checkpoint_dir.formats.hdfs_state import read_changes
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_names, sst_sizes, zip_problems
from seamark.checkpoint_dir.operators import StoreFolder
from seamark.checkpoint_dir.state_files import SST_FOLDER, needed_ssts, opened_zip, zip_metadata
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import Code, Finding, damage

_LARGEST_ZIP: Final = 64 << 20
_ADVICE: Final = "Roll back to an earlier batch, or restore a snapshot of the directory."
_ERROR: Final = "CANNOT_LOAD_STATE_STORE"


def zip_findings(
    listing: CachedListing, folder: StoreFolder, path: str, named: str
) -> Iterator[Finding]:
    """What is wrong with one RocksDB snapshot and the files that it names."""
    if listing.entries[path].size > _LARGEST_ZIP:
        return
    data = listing.data(path)
    if data is None:
        return  # removed in the meantime
    problem = _problem(data)
    if problem is not None:
        what = f"{named}: the snapshot {path.rsplit('/', 1)[1]} cannot be unpacked: {problem}"
        yield damage(Code.ZIP_UNREADABLE, path, what, _ADVICE, _ERROR)
        return
    sizes = sst_sizes(data)
    short = path.rsplit("/", 1)[1]
    missing = 0
    for name in needed_ssts(data):
        file = f"{folder.path}/{name}"
        recorded_size = sizes.get(name.removeprefix(f"{SST_FOLDER}/"))
        if file not in listing.entries:
            missing += 1
            if missing > limits.MOST_MISSING_NAMED:
                continue
            what = f"{named}: {name} is not there, and {short} needs it"
            yield damage(Code.SST_MISSING, file, what, _ADVICE, _ERROR)
        elif recorded_size is not None and listing.entries[file].size != recorded_size:
            size = listing.entries[file].size
            what = f"{named}: {name} has {size} bytes, and {short} says {recorded_size}"
            yield damage(Code.SST_SIZE, file, what, _ADVICE, _ERROR)
    if missing > limits.MOST_MISSING_NAMED:
        what = f"{named}: {missing} files that {short} needs are not there"
        yield damage(Code.SST_MISSING, path, what, _ADVICE, _ERROR)


def _problem(data: bytes) -> str | None:
    try:
        needed_ssts(data)
        return next(iter(zip_problems(data)), None)
    except DamageError as error:
        return error.what


# rows

ReadFile = Callable[[str], bytes | None]

_SST: Final = re.compile(r"[0-9]{1,19}\.sst")
_MEMBER: Final = re.compile(r"[A-Z0-9][A-Za-z0-9.-]{0,60}")
_METADATA: Final = "metadata"


class _ColumnFamilies(msgspec.Struct):
    mapping: dict[str, int] | None = msgspec.field(name="columnFamilyMapping", default=None)


def can_read() -> bool:
    """Whether RocksDB's own code is there."""
    return find_spec("rocksdict") is not None


def rows_in(zipped: bytes, read: ReadFile) -> dict[bytes, bytes]:
    """All rows of a snapshot; ``read`` gives the files that it names, relative to its store.

    :class:`NotDecodable` when that is unknown; a missing file is reported elsewhere.
    """
    from rocksdict import AccessType, Options, Rdict

    if zip_problems(zipped):
        raise NotDecodable("it cannot be unpacked")
    with tempfile.TemporaryDirectory(prefix="seamark-inspect-") as folder:
        _unpack(zipped, read, Path(folder))
        try:
            database = Rdict(folder, Options(raw_mode=True), access_type=AccessType.read_only())
            try:
                rows: Any = database.items()
                return dict(rows)
            finally:
                database.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare ones
            raise NotDecodable(f"RocksDB cannot read it: {error}") from None


def _unpack(zipped: bytes, read: ReadFile, folder: Path) -> None:
    try:
        families = msgspec.json.decode(
            zip_metadata(zipped).partition(b"\n")[2], type=_ColumnFamilies
        )
        names = sst_names(zipped)
    except (DamageError, *UNREADABLE) as error:
        raise NotDecodable(f"its metadata cannot be read: {error}") from None
    if families.mapping:
        raise NotDecodable("its keys carry the numbers of several columns")
    with opened_zip(zipped) as archive:
        for member in archive.infolist():
            if member.filename == _METADATA:
                continue
            if not _MEMBER.fullmatch(member.filename):
                raise NotDecodable(f"it has a file of an unknown kind: {member.filename}")
            (folder / member.filename).write_bytes(archive.read(member))
    for there, local in names.items():
        data = read(f"{SST_FOLDER}/{there}") if _SST.fullmatch(local) else None
        if data is None:
            raise NotDecodable(f"{there} is not there")
        (folder / local).write_bytes(data)


def with_changes(rows: dict[bytes, bytes], changelogs: Iterable[bytes]) -> dict[bytes, bytes]:
    """The rows after some changelogs; raises what :func:`read_changes` raises."""
    changed = dict(rows)
    for data in changelogs:
        for key, value, merge in read_changes(data):
            if merge:
                raise NotDecodable("a value is added to others by a rule of RocksDB")
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = value
    return changed
