"""What one checkpoint says about its files, as it is stored: decoded and checked in one place.

A store may come from anybody, so every name and number is compared with what Seamark writes before
anything is done with it. Whatever does not fit is damage.

Tests: ``tests/store/test_index_parts.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from seamark import limits, limits_by_size
from seamark._common.checks import I64_MAX, unsafe_name
from seamark._common.json_documents import UNREADABLE
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject, is_object_name
from seamark.state.pack import PackedEntry, PackInPlace

LOG: Final = "log"
"""The label of what belongs to no operator: Spark's logs and the operators' descriptions."""

INDEX: Final = "seamark/index"
"""Its name among the logs of a checkpoint. It belongs to no directory."""

_OWN: Final = "seamark/"
_SHA256: Final = 32
_KNOWN: Final = re.compile(
    r"metadata|(?:offsets|commits)/[0-9]{1,19}|sources/.+"
    r"|state/[0-9]{1,9}/(?:[0-9]{1,9}|_[^/]+)/.+",
    re.DOTALL,
)
_OPERATOR: Final = re.compile(r"\Astate/[0-9]+/")
_UNSAFE: Final = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|[\\\x00]")


class IndexEntry(NamedTuple):
    """A file in a shared object."""

    path: str
    object: Annotated[int, msgspec.Meta(ge=0)]
    """Its place in the list of objects."""
    size: Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
    sha256: Annotated[bytes, msgspec.Meta(min_length=_SHA256, max_length=_SHA256)]
    is_packed: bool


class IndexPart(msgspec.Struct, frozen=True):
    """What one checkpoint says about the index."""

    objects: list[str]
    added: list[IndexEntry]
    removed: list[str]
    operators: list[str] = []
    """The label of each stateful operator, which begins with its number."""


def check_path(path: str) -> str:
    """``path`` if it can be a file of a checkpoint directory; :class:`DamageError` otherwise."""
    is_short = len(path) <= limits.LONGEST_NAME and path.isascii()
    if _KNOWN.fullmatch(path) and not _UNSAFE.search(path) and (is_short or _fits(path)):
        return path
    shown = path if len(path) <= limits.LONGEST_NAME else f"{path[: limits.LONGEST_NAME]}…"
    raise DamageError(f"a checkpoint holds a file {shown!r} that belongs to no working copy")


def _fits(path: str) -> bool:
    """Whether every file system takes a path that is long."""
    names = path.split("/")
    return len(names) <= limits.MOST_FOLDERS and all(
        len(name.encode(errors="replace")) <= limits.LONGEST_NAME for name in names
    )


def find_index(entries: Iterable[PackedEntry]) -> PackedEntry | None:
    """The index among the entries of a pack; :class:`DamageError` when it claims too much."""
    index = next((entry for entry in entries if entry.key == INDEX), None)
    if index is not None and limits_by_size.index_shrinks_too_much(index.size, index.length):
        raise DamageError(f"the index of a checkpoint's files claims {index.size} bytes")
    return index


def decode_index(
    part: bytes, objects: Iterable[SharedObject]
) -> tuple[IndexPart, list[SharedObject]]:
    """What a checkpoint that names these objects says about its index, and its list of objects.

    :class:`DamageError` for anything that Seamark would not have written.
    """
    try:
        decoded = msgspec.msgpack.decode(part, type=IndexPart)
        named = _named(decoded, {shared.name: shared for shared in objects})
        _check_operators(decoded.operators)
        _check_entries(decoded.added, named)
        _check_removed(decoded.removed)
    except UNREADABLE as error:
        raise DamageError(f"the index of a checkpoint's files cannot be read: {error}") from None
    return decoded, named


def _named(decoded: IndexPart, by_name: Mapping[str, SharedObject]) -> list[SharedObject]:
    for name in decoded.objects:
        if not is_object_name(name):
            raise DamageError(f"it names {name[:100]!r}, which cannot be a shared object")
        if name not in by_name:
            raise DamageError(
                f"the index of a checkpoint's files names the object {name}, and its manifest"
                " does not"
            )
    return [by_name[name] for name in decoded.objects]


def _check_operators(labels: list[str]) -> None:
    if len(labels) > limits.MOST_OPERATORS:
        raise ValueError(f"it names {len(labels)} operators")
    for label in labels:
        if len(label) > limits.LONGEST_NAME or unsafe_name(label):
            raise ValueError(f"{label[:100]!r} is no operator")


def _check_entries(entries: list[IndexEntry], named: list[SharedObject]) -> None:
    paths: set[str] = set()
    for entry in entries:
        path = check_path(entry.path)
        if path in paths:
            raise ValueError(f"{path!r} is there twice")
        paths.add(path)
        if entry.object >= len(named):
            raise ValueError(f"{path!r} is in an object that is not listed")
        check_size(path, entry.size, entry.sha256, named[entry.object], is_packed=entry.is_packed)
    check_holders((e.path, named[e.object], e.size, e.is_packed) for e in entries)


def _check_removed(paths: list[str]) -> None:
    if len(set(paths)) < len(paths):
        raise ValueError("it removes one file twice")
    for path in paths:
        check_path(path)


def check_size(
    path: str, size: int, sha256: bytes, shared: SharedObject, *, is_packed: bool
) -> None:
    """:class:`DamageError` when a file cannot be in an object, by what is said about both."""
    if is_packed:
        if size > shared.size and limits_by_size.shrinks_too_much(size, shared.size):
            raise DamageError(f"the index gives {path!r} more bytes than its pack can hold")
    elif size != shared.size or sha256.hex() != shared.sha256:
        raise DamageError(f"the index gives {path!r} another size or SHA-256 than its object has")


def check_holders(held: Iterable[tuple[str, SharedObject, int, bool]]) -> None:
    """:class:`DamageError` when an object is several files, or all packs together hold too much.

    ``held`` is (path, object, size, whether it is in a pack) of each file. Only operators that have
    gone on from the state of one have the same file, each in the same place below its own number.
    """
    alone: dict[SharedObject, set[str]] = {}
    copies: Counter[SharedObject] = Counter()
    packs: set[SharedObject] = set()
    plain = 0
    for path, shared, size, is_packed in held:
        if is_packed:
            packs.add(shared)
            plain += size
        else:
            alone.setdefault(shared, set()).add(_OPERATOR.sub("state/", path))
            copies[shared] += 1
        several = len(alone.get(shared, ())) > 1 or copies[shared] > limits.MOST_COPIES
        if several or (shared in alone and shared in packs):
            raise DamageError(f"the index says that {shared.name} alone is several files")
    stored = sum(pack.size for pack in packs)
    if limits_by_size.unpacks_to_too_much(plain, stored):
        raise DamageError(f"its packs claim {plain} bytes, too much for {stored} stored ones")


def check_packs(packs: Iterable[PackInPlace]) -> None:
    """:class:`DamageError` for a file in a checkpoint's own packs that no directory has, or when
    they unpack to too much.
    """
    plain = stored = 0
    for pack in packs:
        stored += pack.size
        for entry in pack.entries:
            plain += entry.size
            if not entry.key.startswith(_OWN):
                check_path(entry.key)
    if limits_by_size.unpacks_to_too_much(plain, stored):
        raise DamageError(f"its packs claim {plain} bytes, too much for {stored} stored ones")


def check_folders(paths: Iterable[str]) -> None:
    """:class:`DamageError` when one of the files is also a folder of others."""
    files = set(paths)
    folders = {path.rpartition("/")[0] for path in files}
    while folders:
        if both := next(iter(folders & files), None):
            raise DamageError(f"a checkpoint holds {both!r} as a file and as a folder")
        folders = {folder.rpartition("/")[0] for folder in folders} - {""}
