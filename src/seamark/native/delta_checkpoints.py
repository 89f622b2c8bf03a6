"""The checkpoints of Delta's log, and the batches of a query in the Parquet files of one.

A kilobyte of Parquet can unpack to gigabytes in more ways than can be told from its footer:
compressed pages, one long value for all rows, prefixes that every value repeats. So it is read by
a process of its own, where memory and time are limited by the operating system.

Tests: ``tests/native/test_delta_log.py``.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from seamark import limits, limits_by_size
from seamark._common.files import Buffer
from seamark._common.limited_process import ask_process, limit_this_process

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MOST_NAMED: Final = 5
LONGEST_NAME: Final = 100
"""Of the other writers of a table: how many are named, and by how many characters."""

_ROWS_AT_A_TIME: Final = 16 << 10

# Delta's protocol, "Checkpoints": one file, parts, or a top-level file that names others. Those
# hold no transactions.
_ONE_FILE: Final = re.compile(r"([0-9]{20})\.checkpoint(?:\.[^.]+)?\.parquet")
_JSON: Final = re.compile(r"([0-9]{20})\.checkpoint\.[^.]+\.json")
_PART: Final = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet")


def versions_of(names: Iterable[str]) -> set[int]:
    """The versions that a file of a checkpoint is there of, whole or not."""
    matches = (p.fullmatch(name) for name in names for p in (_ONE_FILE, _JSON, _PART))
    return {int(match[1]) for match in matches if match is not None}


def whole_checkpoints(names: Collection[str]) -> dict[int, list[str]]:
    """By version: the files of a checkpoint that has all of its parts. Pure.

    Its files are one JSON file, which takes least to read, or Parquet files.
    """
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if match := _PART.fullmatch(name):
            version, number, count = (int(text) for text in match.groups())
            parts.setdefault((version, count), {})[number] = name
    for (version, count), of_one in parts.items():
        if len(of_one) == count and set(of_one) == set(range(1, count + 1)):
            whole[version] = [of_one[number] for number in sorted(of_one)]
    for pattern in (_ONE_FILE, _JSON):
        whole |= {int(m[1]): [name] for name in names if (m := pattern.fullmatch(name))}
    return whole


class KnownBatches(msgspec.Struct, frozen=True):
    """What a checkpoint of the log knows of those who number their batches."""

    newest: int | None
    """The last batch of the query, by its id."""
    ahead: dict[str, int]
    """Some of the others that are ahead of the batch, by their names: each with its last one."""


class _Question(msgspec.Struct):
    query_id: str
    batch: int
    files: list[int]
    """Descriptors of the Parquet files."""
    stored: int
    """Bytes of all of them."""


def batches_in(parts: Mapping[str, Iterable[Buffer]], query_id: str, batch: int) -> KnownBatches:
    """What the files of a checkpoint say, which come by name and in pieces.

    :class:`UnreadablePart` when one cannot be read, or not within the limits for all of them.
    """
    with ExitStack() as stack:
        stored = 0
        files: list[int] = []
        for name, pieces in parts.items():
            file = stack.enter_context(tempfile.TemporaryFile())
            for piece in pieces:
                stored += file.write(piece)
                if stored > limits.LARGEST_TABLE_CHECKPOINT:
                    raise UnreadablePart(name, "it is larger than it was when it was listed")
            file.flush()
            files.append(file.fileno())
        question = msgspec.json.encode(_Question(query_id, batch, files, stored))
        answer = ask_process(__name__, question, patience=limits.TABLE_PATIENCE, files=files)
    told = answer.lines
    if len(told) < len(parts):
        why = answer.last_words
        if not why:
            seconds = limits_by_size.checkpoint_seconds(stored)
            why = f"reading the checkpoint takes more than {seconds} s of processor time"
        if answer.is_late:
            why = f"reading the checkpoint takes more than {limits.TABLE_PATIENCE} s"
        raise UnreadablePart(list(parts)[len(told)], why)
    known = [msgspec.json.decode(line, type=KnownBatches) for line in told]
    newest = max((part.newest for part in known if part.newest is not None), default=None)
    return KnownBatches(newest, {name: at for part in known for name, at in part.ahead.items()})


class UnreadablePart(Exception):
    """A file of a checkpoint, and why it cannot be read."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(why)


def main() -> None:
    """Print what each of the files knows that standard input names, a line for each."""
    import pyarrow.compute  # noqa: F401 - before the time is limited
    from pyarrow import parquet

    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    limit_this_process(limits.CHECKPOINT_MEMORY, limits_by_size.checkpoint_seconds(question.stored))
    left = limits_by_size.most_records(question.stored)
    for descriptor in question.files:
        with os.fdopen(descriptor, "rb") as stored, parquet.ParquetFile(stored) as file:
            left -= file.metadata.num_rows
            if left < 0:
                raise ValueError("it has far more rows than files of its size")
            known = _known_in(file, question.query_id, question.batch)
            sys.stdout.write(f"{msgspec.json.encode(known).decode()}\n")
            sys.stdout.flush()


def _known_in(file: ParquetFile, query_id: str, batch: int) -> KnownBatches:
    newest: int | None = None
    ahead: dict[str, int] = {}
    for name, version in _transactions(file, query_id, batch):
        if name == query_id:
            newest = version if newest is None else max(version, newest)
        elif name[:LONGEST_NAME] in ahead or len(ahead) < MOST_NAMED:
            ahead[name[:LONGEST_NAME]] = max(version, ahead.get(name[:LONGEST_NAME], version))
    return KnownBatches(newest, ahead)


def _transactions(file: ParquetFile, query_id: str, batch: int) -> Iterator[tuple[str, int]]:
    """Name and batch of those that count: the query's own, and all that are ahead of the batch."""
    import pyarrow.compute as pc

    if "txn" not in file.schema_arrow.names:
        return
    for rows in file.iter_batches(_ROWS_AT_A_TIME, columns=["txn"], use_threads=False):
        entries = rows.column("txn")
        names, versions = (pc.struct_field(entries, field) for field in ("appId", "version"))
        counts = pc.or_kleene(pc.equal(names, query_id), pc.greater(versions, batch))
        counts = pc.fill_null(pc.and_(counts, pc.is_valid(names)), False)
        found = zip(
            names.filter(counts).to_pylist(), versions.filter(counts).to_pylist(), strict=True
        )
        yield from ((str(name), int(version)) for name, version in found)


if __name__ == "__main__":
    main()
