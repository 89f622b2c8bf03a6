"""Which files of a state store one version needs. Pure functions over names.

Batch N writes version N+1 of every store: a change (``V.delta``, ``V.changelog``), or with RocksDB
and no changelog a snapshot (``V.zip``). Snapshots (``V.snapshot``, ``V.zip``) also come from
Spark's maintenance thread, at any time. In checkpoint format 2 a unique id follows the version
(``V_id.zip``) and a checksum file lies next to it. A zip lists the SST files that it needs.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from seamark import limits, limits_by_size
from seamark._common.json_documents import UNREADABLE, require_unambiguous
from seamark.checkpoint_dir.zip_stream import file_in_zip, require_plain_directory
from seamark.errors import DamageError

SST_FOLDER: Final = "SSTs"

_NAME: Final = re.compile(
    r"(?P<version>\d+)(?:_(?P<uid>[0-9a-fA-F-]+))?\.(?P<ext>delta|changelog|snapshot|zip)"
)
_VERSION_LINE: Final = re.compile(rb"v[0-9]{1,3}")  # v2 in Spark 4.0, v1 before and after it
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")
"""What RocksDB and Spark call files; a colon would begin the address of a server."""
_SNAPSHOTS: Final = frozenset({"snapshot", "zip"})
ZIP_TROUBLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)
"""What reading a torn or hostile zip can raise."""


class StateFile(NamedTuple):
    """One file of a store, by its name."""

    version: int
    uid: str | None
    extension: str

    @property
    def is_snapshot(self) -> bool:
        """Whether it holds the whole state and not only what one batch changed."""
        return self.extension in _SNAPSHOTS

    @property
    def name(self) -> str:
        """The name that Spark gives it."""
        uid = "" if self.uid is None else f"_{self.uid}"
        return f"{self.version}{uid}.{self.extension}"


class MissingVersion(DamageError):
    """A store cannot be loaded at a version: a file that it takes is not there."""


def parse_state_file(name: str) -> StateFile | None:
    """What a file name says, or None for a file of another kind."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return StateFile(int(match["version"]), match["uid"], match["ext"])


def is_state(path: str) -> bool:
    """Whether a path in a checkpoint directory is a state file, and not a description."""
    return path.startswith("state/") and "/_" not in path


def store_folder(path: str) -> str:
    """The folder of the state store that a state file belongs to."""
    folder = path.rpartition("/")[0]
    return folder.removesuffix(f"/{SST_FOLDER}").removesuffix("/logs")


def version_of(path: str) -> int | None:
    """The version that a state file, or the checksum next to it, belongs to; None for others."""
    name = path.rsplit("/", 1)[-1]
    name = name.removeprefix(".").removesuffix(".crc")
    file = parse_state_file(name)
    return file.version if file else None


def whole_at_version(path: str, version: int) -> str:
    """The path of a file of a whole state when that is taken for another version's."""
    folder, _, name = path.rpartition("/")
    checksum = name.endswith(".crc")
    file = parse_state_file(name.removesuffix(".crc"))
    if file is None:
        return path  # an SST file, which is known by a name of its own
    # a change of nothing else than new rows, or of none, and a snapshot are the same bytes
    extension = "snapshot" if file.extension == "delta" else file.extension
    renamed = file._replace(version=version, extension=extension).name
    return f"{folder}/{renamed}{'.crc' if checksum else ''}"


def newest_snapshot(paths: Iterable[str]) -> int:
    """The version of the newest snapshot among state files; 0 for none."""
    files = (parse_state_file(path.rpartition("/")[2]) for path in paths)
    return max((file.version for file in files if file and file.is_snapshot), default=0)


def opened_zip(zipped: bytes) -> zipfile.ZipFile:
    """A RocksDB snapshot as an archive; :class:`zipfile.BadZipFile` unless it ends as Spark's do.

    ZipFile takes long to open one of very many files, or with very long extra fields.
    """
    require_plain_directory(zipped)
    return zipfile.ZipFile(io.BytesIO(zipped))


def zip_metadata(zipped: bytes) -> bytes:
    """What a RocksDB snapshot says about itself; :class:`DamageError` when it is none.

    What a hostile one would unpack to is never held in memory.
    """
    is_small = len(zipped) <= limits.LARGEST_KEPT_ZIP
    found = _remembered_metadata(zipped) if is_small else _unpacked_metadata(zipped)
    if isinstance(found, str):
        raise DamageError(f"not a RocksDB snapshot: {found}")
    return found


def _unpacked_metadata(zipped: bytes) -> bytes | str:
    """The same, or why there is none."""
    try:
        with opened_zip(zipped) as archive:
            most = limits_by_size.largest_zip_metadata(archive.getinfo("metadata").compress_size)
        text = file_in_zip(zipped, "metadata", most)
    except ZIP_TROUBLE as error:
        return str(error)
    return text if len(text) <= most else "its metadata is larger than any can be"


_remembered_metadata = lru_cache(limits.MOST_KEPT_ZIPS)(_unpacked_metadata)


class _Sst(msgspec.Struct):
    name: str = msgspec.field(name="dfsSstFileName")
    local: str | msgspec.UnsetType = msgspec.field(name="localFileName", default=msgspec.UNSET)


class _Log(msgspec.Struct):
    name: str = msgspec.field(name="dfsLogFileName")
    local: str | msgspec.UnsetType = msgspec.field(name="localFileName", default=msgspec.UNSET)


_Listed = _Sst | _Log


class _Needed(msgspec.Struct):
    """What the metadata of a snapshot refers to. Whatever else it says costs no memory."""

    ssts: list[_Sst] = msgspec.field(name="sstFiles", default_factory=list)
    logs: list[_Log] = msgspec.field(name="logFiles", default_factory=list)


def needed_ssts(zipped: bytes) -> list[str]:
    """Paths, relative to the store, of the files that a RocksDB snapshot refers to.

    :class:`DamageError` also when one of its names leads elsewhere: Spark copies each file from
    wherever the one name says to wherever the other does.
    """
    is_small = len(zipped) <= limits.LARGEST_KEPT_ZIP
    found = _remembered_names(zipped) if is_small else _names_of_last(zipped)
    if isinstance(found, str):
        raise DamageError(found)
    return [*found]


def _named_files(zipped: bytes) -> tuple[str, ...] | str:
    """The same, or why they are not known."""
    try:
        return tuple(_listed_files(zipped))
    except DamageError as error:
        return error.what


_remembered_names = lru_cache(limits.MOST_KEPT_ZIPS)(_named_files)
_names_of_last = lru_cache(1)(_named_files)


def _listed_files(zipped: bytes) -> list[str]:
    head, _, text = zip_metadata(zipped).partition(b"\n")
    try:
        if not _VERSION_LINE.fullmatch(head):
            raise ValueError(f"its metadata begins with {head[:20]!r}")
        needed = msgspec.json.decode(text, type=_Needed)
        require_unambiguous(text.decode())
    except UNREADABLE as error:
        raise DamageError(f"not a RocksDB snapshot: {error}") from None
    listed: list[_Listed] = [*needed.ssts, *needed.logs]
    for each in listed:
        _check_file(each.name)
        if each.local is not msgspec.UNSET:
            _check_file(each.local)
    return [f"{SST_FOLDER}/{sst.name}" for sst in needed.ssts] + [
        f"logs/{log.name}" for log in needed.logs
    ]


def _check_file(name: str) -> None:
    if not _FILE_NAME.fullmatch(name):
        raise DamageError(
            f"not a RocksDB snapshot: the file name {name[: limits.LONGEST_NAME]!r} could lead "
            "out of its directory"
        )


ReadFile = Callable[[str], bytes]


def closure(
    names: Collection[str],
    version: int,
    read: ReadFile,
    ids: Mapping[int, str] | None = None,
) -> list[str]:
    """The files, out of ``names``, that loading ``version`` of one store takes.

    The newest snapshot that is complete, and every change after it. ``ids`` chooses among the
    files of a version in checkpoint format 2. :class:`MissingVersion` when there is a hole.
    """
    by_version: dict[int, list[StateFile]] = {}
    for name in names:
        file = parse_state_file(name)
        if file is None or file.version > version:
            continue
        if ids is None or file.uid == ids.get(file.version, file.uid):
            by_version.setdefault(file.version, []).append(file)
    needed: list[str] = []
    for at in range(version, 0, -1):
        files = sorted(by_version.get(at, []), key=lambda file: (not file.is_snapshot, file.name))
        if ids is not None and at not in ids and len({file.uid for file in files}) > 1:
            raise MissingVersion(f"version {at} is there several times, and nothing says which")
        chosen = next((choice for f in files if (choice := _with_needs(f, names, read))), None)
        if chosen is None:
            what = f"version {at}" if at == version else f"version {at}, which {version} builds on"
            raise MissingVersion(f"{what} is not there")
        needed += chosen
        if any(file.is_snapshot and file.name == chosen[0] for file in files):
            break
    return [*needed, *(crc for name in needed if (crc := f"{name}.crc") in names)]


def _with_needs(file: StateFile, names: Collection[str], read: ReadFile) -> list[str] | None:
    """A file and what it refers to; None when it is a snapshot whose upload is not finished."""
    if file.extension != "zip":
        return [file.name]
    ssts = needed_ssts(read(file.name))
    return [file.name, *ssts] if all(sst in names for sst in ssts) else None
