"""Bringing a directory to an epoch: from a checkpoint's files alone, or by keeping what is right.

Either way the directory ends up with the same files, each one proven by its SHA-256. State that no
checkpoint vouches for (a snapshot of Spark's maintenance thread, leftovers of a crash) is removed:
Spark would load it without a question.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from seamark._common.files import open_to_read
from seamark.capture.plans import check_path
from seamark.capture.readers import Contents
from seamark.checkpoint_dir.files import with_root
from seamark.checkpoint_dir.places.local import WorkingCopy
from seamark.checkpoint_dir.state_files import SST_FOLDER, MissingVersion, closure
from seamark.errors import DamageError


@dataclass(frozen=True)
class RestoredFiles:
    """What a restore has written."""

    files: int
    size: int


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
    if copy.exists() and os.listdir(copy.root):
        raise DamageError(
            "a working copy is only restored into an empty directory", where=copy.root
        )
    needed_paths = None if needed is None else frozenset(needed)
    for contents in chain:
        for path, data in contents.items():
            if needed_paths is None or path in needed_paths:
                copy.write(check_path(path), data)
    if needed_paths is None:
        keep_only_needed(copy, batch)
    elif lost := sorted(needed_paths.difference(copy.files_below("."))):
        raise DamageError(f"the checkpoint lacks {len(lost)} of its files, {lost[0]} among them")
    copy.rewrite_root()
    files = list(copy.files_below("."))
    return RestoredFiles(len(files), sum(os.path.getsize(copy.path(path)) for path in files))


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
                with suppress(IsADirectoryError, FileNotFoundError):
                    os.unlink(copy.path(f"{folder.path}/{name}"))


def difference(copy: WorkingCopy, expected: Mapping[str, bytes], batch: int) -> str | None:
    """Why a directory cannot be kept, or None when all expected state is there, hash by hash.

    ``expected`` is path → SHA-256 for the files of the whole chain.
    """
    state = [path for path in expected if path.startswith("state/") and "/_" not in path]

    missing: list[str] = []

    def differs(path: str) -> str | None:
        fd = open_to_read(copy.path(path))
        if fd is None:
            missing.append(path)
            return None
        with open(fd, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        return None if digest == expected[path] else f"{path} has other bytes"

    if not copy.exists():
        return "there is none"
    if (foreign := copy.foreign()) is not None:
        return f"{foreign} is not a regular file"
    if copy.read_text("metadata") is None:
        return "it has no metadata"
    if batch not in copy.batches("offsets"):
        return f"offsets/{batch} is missing"
    with ThreadPoolExecutor(4, "seamark-compare") as pool:
        changed = next((why for why in pool.map(differs, state, chunksize=8) if why), None)
    if changed is None and missing:
        # Spark removes what no version needs any more; is that all that is missing?
        return _hole(copy, state, set(state).difference(missing), batch)
    return changed


def _hole(
    copy: WorkingCopy, expected: Collection[str], present: Collection[str], batch: int
) -> str | None:
    """What is missing for the state of a batch among files that are present; None for nothing."""
    there = set(present)
    stores: dict[str, set[str]] = {}
    for path in expected:
        folder = _store_folder(path)
        names = stores.setdefault(folder, set())
        if path in there:
            names.add(path.removeprefix(f"{folder}/"))
    for folder, names in stores.items():
        try:
            closure(names, batch + 1, copy.reader(folder))
        except MissingVersion as error:
            return f"state in {folder}: {error.what}"
    return None


def _store_folder(path: str) -> str:
    """The folder of the state store that a file belongs to."""
    folder = path.rpartition("/")[0]
    return folder.removesuffix(f"/{SST_FOLDER}").removesuffix("/logs")


def keep(copy: WorkingCopy, logs: Contents, expected: Mapping[str, bytes], batch: int) -> str:
    """Make a directory that matches ready to start; what had to be done, in words."""
    for path in list(copy.files_below("state")):
        if "/_" not in path and path not in expected:
            copy.remove(path)
    copy.remove_hadoop_checksums()  # nothing proves them, and a torn one blocks its file
    copy.forget_after(batch)
    copy.remove(f"offsets/{batch + 1}")  # put back by the caller that knows it is complete
    for path in copy.source_entries():
        if path not in logs:
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
