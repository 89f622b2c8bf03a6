"""The checkpoints of Delta's log, and the batches of a query in the Parquet files of one.

A kilobyte of Parquet can unpack to gigabytes in more ways than can be told from its footer:
compressed pages, one long value for all rows, prefixes that every value repeats. So it is read by
a process of its own, where memory and time are limited by the operating system.

Tests: ``tests/native/test_delta_log.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from seamark import limits
from seamark._common.files import Buffer
from seamark._common.limited_process import ask_process, limit_this_process

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

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


class _Question(msgspec.Struct):
    query_id: str
    files: list[int]
    """Descriptors of the Parquet files."""
    stored: int
    """Bytes of all of them."""


def newest_batch_in(parts: Mapping[str, Iterable[Buffer]], query_id: str) -> int | None:
    """The last batch of the query in the files of a checkpoint, which come by name and in pieces.

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
        question = msgspec.json.encode(_Question(query_id, files, stored))
        answer = ask_process(__name__, question, patience=limits.TABLE_PATIENCE, files=files)
    told = answer.lines
    if len(told) < len(parts):
        why = answer.last_words
        if not why:
            seconds = limits.checkpoint_seconds(stored)
            why = f"reading the checkpoint takes more than {seconds} s of processor time"
        if answer.is_late:
            why = f"reading the checkpoint takes more than {limits.TABLE_PATIENCE} s"
        raise UnreadablePart(list(parts)[len(told)], why)
    batches = (msgspec.json.decode(line, type=int | None) for line in told)
    return max((batch for batch in batches if batch is not None), default=None)


class UnreadablePart(Exception):
    """A file of a checkpoint, and why it cannot be read."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(why)


def main() -> None:
    """Print the last batch of a query in each of the files that standard input names."""
    import pyarrow.compute  # noqa: F401 - before the time is limited
    from pyarrow import parquet

    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    limit_this_process(limits.CHECKPOINT_MEMORY, limits.checkpoint_seconds(question.stored))
    left = limits.most_records(question.stored)
    for descriptor in question.files:
        with os.fdopen(descriptor, "rb") as stored, parquet.ParquetFile(stored) as file:
            left -= file.metadata.num_rows
            if left < 0:
                raise ValueError("it has far more rows than files of its size")
            newest = max(_versions(file, question.query_id), default=None)
            sys.stdout.write(f"{json.dumps(newest)}\n")
            sys.stdout.flush()


def _versions(file: ParquetFile, query_id: str) -> Iterator[int]:
    import pyarrow.compute as pc

    if "txn" not in file.schema_arrow.names:
        return
    for rows in file.iter_batches(_ROWS_AT_A_TIME, columns=["txn"], use_threads=False):
        entries = rows.column("txn")
        ours = pc.fill_null(pc.equal(pc.struct_field(entries, "appId"), query_id), False)
        yield from map(int, pc.struct_field(entries, "version").filter(ours).to_pylist())


if __name__ == "__main__":
    main()
