"""RocksDB snapshots: whether they can be unpacked and have the files that they name.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seamark import limits
from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes, zip_problems
from seamark.checkpoint_dir.operators import StoreFolder
from seamark.checkpoint_dir.state_files import SST_FOLDER, needed_ssts
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
