"""Bringing a directory to an epoch: from a checkpoint's files alone, or by keeping what is right.

Files come from the store in several threads, large ones in pieces. Either way the directory ends up
with the same files, each one proven by its SHA-256. State that no checkpoint vouches for (a
snapshot of Spark's maintenance thread, leftovers of a crash) is removed: Spark would load it
without a question.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from seamark import limits
from seamark._common.files import Buffer
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents
from seamark.capture.packed_files import entries_of
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.schema_paths import with_root
from seamark.checkpoint_dir.state_files import MissingVersion, closure, is_state, store_folder
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject
from seamark.state.pack import read_index, unpack_entry
from seamark.store.index_parts import check_path

_THREADS: Final = 8

Advance = Callable[[int], None]
"""Called with the bytes that have arrived."""


def _unwatched(_: int) -> None:
    """For a restore that nobody watches."""


@dataclass(frozen=True)
class RestoredFiles:
    """What a restore has written."""

    files: int
    size: int


class ObjectReader(Protocol):
    """Reads shared objects; :class:`DamageError` when one is missing or wrong."""

    def read(self, shared: SharedObject) -> Iterator[Buffer]:
        """The bytes in pieces."""

    def read_pack(self, shared: SharedObject) -> bytes:
        """All bytes of a pack."""


Holder = tuple[SharedObject, dict[str, StoredFile]]
"""An object, and the files that it holds, by their paths."""

FetchAll = Callable[[WorkingCopy, list[Holder], Advance], bool]
"""Writes the files of all objects in some other way; False when that was not possible."""


def restore_index(
    copy: WorkingCopy,
    index: FileIndex,
    small: Contents,
    shared: ObjectReader,
    advance: Advance | None = None,
    fetch_all: FetchAll | None = None,
) -> RestoredFiles:
    """Write the files of an index into a directory that is empty, each one verified.

    ``small`` are those that no shared object holds. :class:`DamageError` when one of the others is
    missing or wrong; nothing of such a file is left.
    """
    _require_empty(copy)
    advance = advance or _unwatched
    holders: dict[SharedObject, dict[str, StoredFile]] = {}
    index.check()
    for path, file in index.files.items():
        check_path(path)
        if file.shared is not None:
            holders.setdefault(file.shared, {})[path] = file
        elif path not in small:
            raise DamageError(f"the checkpoint lacks {path!r}")
    for path in index.files.keys() & small.keys():
        copy.write(path, small[path])
        advance(len(small[path]))

    # the largest first: a long one that begins last would be waited for alone
    largest = sorted(holders.items(), key=lambda each: each[0].size, reverse=True)
    if fetch_all is None or not fetch_all(copy, largest, advance):
        _fetch_in_threads(copy, largest, shared, advance)
    copy.rewrite_root()
    return RestoredFiles(len(index.files), index.size)


def _fetch_in_threads(
    copy: WorkingCopy, holders: list[Holder], shared: ObjectReader, advance: Advance
) -> None:
    alone = threading.Lock()

    def fetch(holder: Holder) -> None:
        is_large_pack = holder[0].size > limits.ONE_AT_A_TIME and _is_pack(holder)
        with alone if is_large_pack else nullcontext():
            fetch_object(copy, holder, shared, advance)

    with ThreadPoolExecutor(_THREADS, "seamark-restore") as pool:
        fetches = [pool.submit(fetch, holder) for holder in holders]
        try:
            for each in fetches:
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _is_pack(holder: Holder) -> bool:
    return next(iter(holder[1].values())).is_packed


def restore_files(
    copy: WorkingCopy, logs: Contents, files: CheckpointFiles, state: Iterable[str]
) -> None:
    """Write small logs and copy state files of another directory into one that is empty."""
    _require_empty(copy)
    for path, data in logs.items():
        copy.write(check_path(path), data)
    for path in state:
        copy.write_stream(check_path(path), files.stream(path))
    copy.rewrite_root()


def fetch_object(copy: WorkingCopy, holder: Holder, shared: ObjectReader, advance: Advance) -> None:
    """Write the files that one object holds."""
    for path, _, pieces in files_of(holder, shared):
        copy.write_stream(path, _watched(pieces, advance))


def files_of(
    holder: Holder, shared: ObjectReader
) -> Iterator[tuple[str, StoredFile, Iterable[Buffer]]]:
    """The path of each file that an object holds, what it must be, and its bytes.

    :class:`DamageError` when the object is missing or wrong, of a large one after the last piece.
    """
    held, files = holder
    if not _is_pack(holder):
        # several, where operators have gone on from the state of one
        for path, known in files.items():
            yield path, known, shared.read(held)
        return
    pack = shared.read_pack(held)
    for path, entry in entries_of(files, read_index(pack, len(pack))):
        # what is dead in the pack is not worth unpacking
        data = unpack_entry(pack[entry.offset : entry.offset + entry.length], entry)
        yield path, files[path], (data,)


def _watched(pieces: Iterable[Buffer], advance: Advance) -> Iterator[Buffer]:
    for piece in pieces:
        advance(len(piece))
        yield piece


def _require_empty(copy: WorkingCopy) -> None:
    if copy.names("."):
        raise DamageError(
            "a working copy is only restored into an empty directory", where=copy.root
        )


def restore(
    copy: WorkingCopy,
    chain: Iterable[Contents],
    batch: int,
    needed: Collection[str] | None = None,
) -> RestoredFiles:
    """Write the files of a chain, oldest first, into a directory that is empty.

    Only those that are ``needed``, where a checkpoint says which; otherwise what the state of the
    batch turns out to take. :class:`DamageError` when one of them is in no checkpoint.
    """
    _require_empty(copy)
    needed_paths = None if needed is None else frozenset(needed)
    for contents in chain:
        for path, data in contents.items():
            if needed_paths is None or path in needed_paths:
                copy.write(check_path(path), data)
    if needed_paths is None:
        keep_only_needed(copy, batch)
    elif lost := sorted(needed_paths.difference(copy.files_below("."))):
        raise DamageError(f"the checkpoint lacks {len(lost)} of its files, {lost[0]!r} among them")
    copy.rewrite_root()
    files = list(copy.files_below("."))
    return RestoredFiles(len(files), sum(copy.size(path) or 0 for path in files))


def keep_only_needed(copy: WorkingCopy, batch: int) -> None:
    """Drop logs and state that the batch does not need; see that nothing it needs is missing."""
    for log in ("offsets", "commits"):
        for old in copy.batches(log):
            if old not in (batch - 1, batch):
                copy.remove(f"{log}/{old}")
    copy.rewrite_root()
    for folder in copy.store_folders():
        names = copy.names_in(folder.path)
        try:
            needed = closure(names, batch + 1, copy.reader(folder.path))
        except MissingVersion as error:
            raise DamageError(
                f"the checkpoint lacks state of operator {folder.operator}, partition"
                f" {folder.partition} ({folder.store}): {error.what}"
            ) from None
        for name in names.difference(needed):
            if name not in ("_metadata", "SSTs", "logs") and "crc" not in name:
                with suppress(IsADirectoryError):
                    copy.remove(f"{folder.path}/{name}")


def difference(
    copy: WorkingCopy,
    expected: Mapping[str, bytes],
    batch: int,
    compared: Callable[[str], None] | None = None,
) -> str | None:
    """Why a directory cannot be kept, or None when all expected state is there, hash by hash.

    ``expected`` is path → SHA-256 of every file whose bytes are not put there anyway. ``compared``
    is called with each path that was looked at.
    """
    if not copy.exists():
        return "there is none"
    if (foreign := copy.foreign()) is not None:
        return f"{foreign} is not a regular file"
    if copy.read_text("metadata") is None:
        return "it has no metadata"
    if batch not in copy.batches("offsets"):
        return f"offsets/{batch} is missing"
    missing: list[str] = []
    for path, digest in copy.digests(expected):
        if compared is not None:
            compared(path)
        if digest is None:
            missing.append(path)
        elif digest != expected[path]:
            return f"{path} has other bytes"
    if missing:
        if lost := next((path for path in missing if not is_state(path)), None):
            return f"{lost} is missing"
        # Spark removes what no version needs any more; is that all that is missing?
        state = [path for path in expected if is_state(path)]
        return _hole(copy, state, set(state).difference(missing), batch)
    return None


def _hole(
    copy: WorkingCopy, expected: Collection[str], present: Collection[str], batch: int
) -> str | None:
    """What is missing for the state of a batch among files that are present; None for nothing."""
    there = set(present)
    stores: dict[str, set[str]] = {}
    for path in expected:
        folder = store_folder(path)
        names = stores.setdefault(folder, set())
        if path in there:
            names.add(path.removeprefix(f"{folder}/"))
    for folder, names in stores.items():
        try:
            closure(names, batch + 1, copy.reader(folder))
        except MissingVersion as error:
            return f"state in {folder}: {error.what}"
    return None


def keep(copy: WorkingCopy, logs: Contents, expected: Mapping[str, bytes], batch: int) -> str:
    """Make a directory that matches ready to start; what had to be done, in words."""
    for path in list(copy.files_below("state")):
        if "/_" not in path and path not in expected:
            copy.remove(path)
    copy.remove_hadoop_checksums()  # nothing proves them, and a torn one blocks its file
    copy.forget_after(batch)
    copy.remove(f"offsets/{batch + 1}")  # put back by the caller that knows it is complete
    for path in copy.source_entries():
        if path not in logs and path not in expected:
            copy.remove(path)
    committed = copy.read_text(f"commits/{batch}") is not None
    for path, data in logs.items():
        if _is_of_other_batch(path, batch):
            continue
        expected_data = with_root(path, data, copy.uri)
        if (copy.read_text(check_path(path)) or "").encode() != expected_data:
            copy.write(path, expected_data)
    copy.rewrite_root()
    return "kept" if committed else f"kept, commits/{batch} written"


def _is_of_other_batch(path: str, batch: int) -> bool:
    log, _, number = path.partition("/")
    return log in ("offsets", "commits") and number not in (str(batch), str(batch - 1))
