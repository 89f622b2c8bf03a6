"""The checkpoints of Delta's log, and the batches of a query in a Parquet file of one.

A kilobyte of Parquet can unpack to gigabytes in more ways than can be told from its footer:
compressed pages, one long value for all rows, prefixes that every value repeats. So it is read by
a process of its own, where memory and time are limited by the operating system.

Tests: ``tests/native/test_delta_log.py``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from seamark import limits

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


def batches_of(data: bytes, query_id: str) -> list[int]:
    """Every batch of the query in a file; :class:`ValueError` when it cannot be read."""
    # Arrow's own allocators and threads reserve far more than they use
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        reader = subprocess.run(
            [sys.executable, "-m", __name__, query_id],
            stdin=file, capture_output=True, env=env, check=False,
        )  # fmt: skip
    try:
        return msgspec.json.decode(reader.stdout, type=list[int])
    except ValueError:
        said = reader.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1][:200] if said else f"reading it takes more than {limits.TABLE_SECONDS} s"
        raise ValueError(why) from None


def main() -> None:
    """Print the batches of a query in the file at standard input."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.TABLE_MEMORY, limits.TABLE_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.TABLE_SECONDS, limits.TABLE_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps([*_versions(sys.argv[1])]))


def _versions(query_id: str) -> Iterator[int]:
    import pyarrow.compute as pc
    from pyarrow import parquet

    file = parquet.ParquetFile(sys.stdin.buffer)
    if "txn" not in file.schema_arrow.names:
        return
    for rows in file.iter_batches(_ROWS_AT_A_TIME, columns=["txn"], use_threads=False):
        entries = rows.column("txn")
        ours = pc.fill_null(pc.equal(pc.struct_field(entries, "appId"), query_id), False)
        yield from map(int, pc.struct_field(entries, "version").filter(ours).to_pylist())


if __name__ == "__main__":
    main()
