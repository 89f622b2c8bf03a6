"""Bringing a directory to an epoch: from a checkpoint's files alone, or by keeping what is right.

Either way the directory ends up with the same files, each one proven by its SHA-256. State that no
checkpoint vouches for (a snapshot of Spark's maintenance thread, leftovers of a crash) is removed:
Spark would load it without a question.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from seamark._common.checks import unsafe_path
from seamark._common.files import open_to_read
from seamark.capture.readers import Contents
from seamark.checkpoint_dir.files import rooted_at
from seamark.checkpoint_dir.state_files import SST_FOLDER, MissingVersion, closure
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import Plan, log_lines, log_offset, parse_offsets

_TOP: Final = frozenset({"metadata", "offsets", "commits", "sources", "state"})


@dataclass(frozen=True)
class Restored:
    """What a restore has written."""

    files: int
    size: int


def check_path(path: str) -> str:
    """``path`` when it can be a file of a working copy; :class:`DamageError` when not."""
    if unsafe_path(path) or path.split("/", 1)[0] not in _TOP:
        raise DamageError(f"a checkpoint holds a file {path!r} that belongs to no working copy")
    return path


def restore(
    copy: WorkingCopy,
    chain: Iterable[Contents],
    batch: int,
    needed: Collection[str] | None = None,
) -> Restored:
    """Write the files of a chain, oldest first, into a directory that is empty.

    Only those that are ``needed``, where a checkpoint says which; otherwise what the state of the
    batch turns out to take. :class:`DamageError` when one of them is in no checkpoint.
    """
    if copy.exists() and os.listdir(copy.root):
        raise DamageError(
            "a working copy is only restored into an empty directory", where=copy.root
        )
    wanted = None if needed is None else frozenset(needed)
    for contents in chain:
        for path, data in contents.items():
            if wanted is None or path in wanted:
                copy.write(check_path(path), data)
    if wanted is None:
        keep_only_needed(copy, batch)
    elif lost := sorted(wanted.difference(copy.files_below("."))):
        raise DamageError(f"the checkpoint lacks {len(lost)} of its files, {lost[0]} among them")
    copy.rewrite_root()
    files = list(copy.files_below("."))
    return Restored(len(files), sum(os.path.getsize(copy.path(path)) for path in files))


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
            needed = closure(
                names,
                batch + 1,
                lambda name, at=folder.path: copy.read(f"{at}/{name}"),  # type: ignore[misc]
            )
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
            found = hashlib.file_digest(file, "sha256").digest()
        return None if found == expected[path] else f"{path} has other bytes"

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
            closure(
                names,
                batch + 1,
                lambda name, at=folder: copy.read(f"{at}/{name}"),  # type: ignore[misc]
            )
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
    copy.remove_hadoop_checksums()  # nobody vouches for them, and a torn one blocks its file
    copy.forget_after(batch)
    copy.remove(f"offsets/{batch + 1}")  # whoever knows that it is whole puts it back
    for path in copy.source_entries():
        if path not in logs:
            copy.remove(path)
    committed = copy.read_text(f"commits/{batch}") is not None
    for path, data in logs.items():
        if _is_of_other_batch(path, batch):
            continue
        wanted = rooted_at(data.decode(), copy.uri).encode() if "/_metadata/v2/" in path else data
        if (copy.read_text(check_path(path)) or "").encode() != wanted:
            copy.write(path, wanted)
    copy.rewrite_root()
    return "kept" if committed else f"kept, commits/{batch} written"


def _is_of_other_batch(path: str, batch: int) -> bool:
    log, _, number = path.partition("/")
    return log in ("offsets", "commits") and number not in (str(batch), str(batch - 1))


def read_plan(copy: WorkingCopy, batch: int, first_lines: Sequence[int]) -> Plan | None:
    """What Spark has planned for a batch, when a directory tells; None for a torn entry.

    ``first_lines`` tells which line of the offset log each folder below ``sources/`` belongs to.
    """
    text = copy.read_text(f"offsets/{batch}")
    before = copy.read_text(f"offsets/{batch - 1}") if batch > 0 else None
    try:
        lines = parse_offsets(text or "").lines
        lines_before = parse_offsets(before).lines if before is not None else None
    except DamageError:
        return None
    sources: dict[str, str] = {}
    for path in copy.source_entries():
        folder, name = path.split("/")[1:]
        last = _read_up_to(lines, folder, first_lines)
        first = _read_up_to(lines_before or (), folder, first_lines)
        number = int(name.partition(".")[0])
        # a source without a log of its own notes once where it began
        is_new = batch == 0 if last is None else (-1 if first is None else first) < number <= last
        if is_new and (entry := copy.read_text(path)) is not None:
            sources[path] = own_lines(path, entry)
    return Plan(text or "", sources)


def _read_up_to(lines: Sequence[str], folder: str, first_lines: Sequence[int]) -> int | None:
    """How far the log in a folder below ``sources/`` is read, by the lines of the offset log."""
    if (
        folder.isascii()
        and folder.isdigit()
        and int(folder) < len(first_lines)
        and len(lines) > max(first_lines)
    ):
        return log_offset(lines[first_lines[int(folder)]])
    # a source that is joined with itself has a folder that no name leads to
    return max((at for line in lines if (at := log_offset(line)) is not None), default=None)


def install_plan(copy: WorkingCopy, batch: int, plan: Plan) -> None:
    """Make Spark run a batch on exactly the rows that it was planned for before."""
    for path, entry in plan.sources.items():
        whole = _compacted(copy, path, entry) if path.endswith(".compact") else entry
        copy.write(check_path(path), whole.encode())
    copy.write(f"offsets/{batch}", plan.offsets.encode())


def own_lines(path: str, entry: str) -> str:
    """Of a source's log entry only what its own batch added: a compaction repeats all others."""
    if not path.endswith(".compact"):
        return entry
    number = path.rsplit("/", 1)[1].removesuffix(".compact")
    head, *lines = log_lines(entry)
    return "\n".join([head, *(line for line in lines if f'"batchId":{number}}}' in line)])


def _compacted(copy: WorkingCopy, path: str, entry: str) -> str:
    """A compaction made again: all earlier entries of the log, then its own lines."""
    folder, name = path.rsplit("/", 1)
    number = int(name.removesuffix(".compact"))
    head, *own = log_lines(entry)
    lines: dict[str, None] = {}
    entries = sorted(
        (int(other.rsplit("/", 1)[1].partition(".")[0]), other)
        for other in copy.source_entries()
        if other.startswith(f"{folder}/")
    )
    for at, other in entries:
        if at < number:
            lines |= dict.fromkeys(log_lines(copy.read_text(other) or "")[1:])
    return "\n".join([head, *lines, *own])
