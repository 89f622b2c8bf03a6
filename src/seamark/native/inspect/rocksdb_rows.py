"""RocksDB's snapshots held against the changes before them, in a process of its own.

A kilobyte of an SST file can unpack to gigabytes, and a single block of it before anybody can
count. So RocksDB opens such files where memory and time are limited by the operating system: each
comparison in a process that is forked for it.

Tests: ``tests/native/test_inspected_rocksdb.py``.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from seamark import limits, limits_by_size
from seamark._common.limited_process import ask_process, limit_this_process
from seamark.checkpoint_dir.formats.hdfs_state import read_changes
from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.errors import DamageError

_Row = tuple[bytes, bytes]


class Verdict(StrEnum):
    """What a comparison has shown of one snapshot."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """A file cannot be read; who reads each file reports that."""
    BEYOND_LIMITS = "beyond limits"


class Comparison(msgspec.Struct, frozen=True):
    """Files that were put down to be compared: folders of databases, and changelogs."""

    base: str | None
    """The database before the changes, None for an empty one."""
    changelogs: list[str]
    """The oldest first."""
    snapshots: list[str]
    stored: int
    """Bytes of all of them as they are stored."""


class _Question(msgspec.Struct, frozen=True):
    comparisons: list[Comparison]
    seconds: int


class _Told(msgspec.Struct, frozen=True):
    comparison: int
    verdict: Verdict


def verdicts(comparisons: Sequence[Comparison], stored: int) -> list[list[Verdict]]:
    """What became of the snapshots of each comparison; ``stored`` are the bytes of all files."""
    seconds = limits_by_size.comparing_seconds(stored)
    question = msgspec.json.encode(_Question(list(comparisons), seconds))
    patience = max(limits.TABLE_PATIENCE, 4 * seconds)
    answer = ask_process(__name__, question, patience=patience)
    known: list[list[Verdict]] = [[] for _ in comparisons]
    for line in answer.lines:
        told = msgspec.json.decode(line, type=_Told)
        known[told.comparison].append(told.verdict)
    for comparison, of_one in zip(comparisons, known, strict=True):
        # of the others the process was killed before it could tell
        of_one.extend([Verdict.BEYOND_LIMITS] * (len(comparison.snapshots) - len(of_one)))
    return known


def main() -> None:
    """Print the verdict of each snapshot that standard input names, a line for each."""
    import rocksdict  # noqa: F401 - once, for all that are forked from here

    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    for number, comparison in enumerate(question.comparisons):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        left = question.seconds - used.ru_utime - used.ru_stime
        if left <= 0:
            return
        if (child := os.fork()) == 0:
            try:
                limit_this_process(
                    limits_by_size.comparing_memory(comparison.stored), max(1, math.floor(left))
                )
                for verdict in _compared(comparison):
                    line = msgspec.json.encode(_Told(number, verdict))
                    os.write(sys.stdout.fileno(), line + b"\n")
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def _compared(comparison: Comparison) -> Iterator[Verdict]:
    allowed = _Allowance(comparison.stored)
    try:
        changes = _changes(map(Path, comparison.changelogs), allowed)
    except (DamageError, NotDecodable, _BeyondLimits, MemoryError) as error:
        yield from [_meaning(error)] * len(comparison.snapshots)
        return
    for snapshot in comparison.snapshots:
        try:
            same = _is_made_of(snapshot, comparison.base, changes, allowed.copy())
            yield Verdict.SAME if same else Verdict.DIFFERS
        except (NotDecodable, _BeyondLimits, MemoryError) as error:
            yield _meaning(error)


def _meaning(error: Exception) -> Verdict:
    is_beyond = isinstance(error, _BeyondLimits | MemoryError)
    return Verdict.BEYOND_LIMITS if is_beyond else Verdict.UNKNOWN


class _BeyondLimits(Exception):
    """The rows are far more than files of their size hold."""


class _Allowance:
    """What may still be read for a comparison."""

    def __init__(self, stored: int) -> None:
        self.bytes = limits_by_size.most_compared(stored)
        self.rows = limits_by_size.most_records(stored)

    def copy(self) -> _Allowance:
        same = _Allowance(0)
        same.bytes, same.rows = self.bytes, self.rows
        return same

    def take(self, size: int) -> None:
        """Note that a row of that size is read."""
        self.bytes -= size
        self.rows -= 1
        if self.bytes < 0 or self.rows < 0:
            raise _BeyondLimits


def _changes(changelogs: Iterable[Path], allowed: _Allowance) -> dict[bytes, bytes | None]:
    """What the changelogs make of each key; raises what :func:`read_changes` raises."""
    changed: dict[bytes, bytes | None] = {}
    for path in changelogs:
        for key, value, merge in read_changes(path.read_bytes()):
            if merge:
                raise NotDecodable("a value is added to others by a rule of RocksDB")
            allowed.take(len(key) + len(value or b""))
            changed[key] = value
    return changed


def _is_made_of(
    snapshot: str, base: str | None, changes: dict[bytes, bytes | None], allowed: _Allowance
) -> bool:
    """Whether a snapshot has the rows that the changes make of those before."""
    with _opened(snapshot, allowed) as rows, _opened(base, allowed) as before:
        made = _after(before, changes)
        return all(next(made, None) == row for row in rows) and next(made, None) is None


def _after(before: Iterator[_Row], changes: dict[bytes, bytes | None]) -> Iterator[_Row]:
    """The rows after the changes, in the order of their keys, as those before come."""
    changed = iter(sorted(changes))
    following = next(changed, None)
    for key, value in before:
        while following is not None and following < key:
            if (new := changes[following]) is not None:
                yield following, new
            following = next(changed, None)
        if following != key:
            yield key, value
    while following is not None:
        if (new := changes[following]) is not None:
            yield following, new
        following = next(changed, None)


@contextmanager
def _opened(folder: str | None, allowed: _Allowance) -> Iterator[Iterator[_Row]]:
    """All rows of a database by their keys; none without a folder."""
    if folder is None:
        yield iter(())
        return
    from rocksdict import AccessType, Options, Rdict

    options = Options(raw_mode=True)
    options.set_max_file_opening_threads(1)  # each takes memory for its stack
    try:
        database = Rdict(folder, options, access_type=AccessType.read_only())
    except Exception as error:  # noqa: BLE001 - rocksdict raises bare ones
        raise NotDecodable(f"RocksDB cannot read it: {error}") from None
    with closing(database):
        yield _rows(database.iter(), allowed)


def _rows(cursor: Any, allowed: _Allowance) -> Iterator[_Row]:
    try:
        cursor.seek_to_first()
        while cursor.valid():
            row = (cursor.key(), cursor.value())
            allowed.take(len(row[0]) + len(row[1]))
            yield row
            cursor.next()
        cursor.status()  # a range that ends by an error looks like one that ends
    except (_BeyondLimits, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - rocksdict raises bare ones
        raise NotDecodable(f"RocksDB cannot read it: {error}") from None


if __name__ == "__main__":
    main()
