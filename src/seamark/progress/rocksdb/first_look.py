"""Whether a folder of RocksDB that may be anybody's can be read with limited memory and time.

A kilobyte of an SST file can unpack to gigabytes, and a single block of it before anybody can
count. So a process of its own reads the checkpoints of the sources first, where the operating
system sets the limits.

Tests: ``tests/progress/rocksdb/test_first_look.py``.
"""

from __future__ import annotations

import sys
from contextlib import closing

from seamark import limits, limits_by_size
from seamark._common.limited_process import ask_process, limit_this_process
from seamark.errors import DamageError, SeamarkError
from seamark.progress.rocksdb.database import stored_bytes
from seamark.progress.rocksdb.ledger import RocksDBLedger


def require_readable(path: str) -> None:
    """:class:`DamageError` when reading the sources takes far more than files of their size do.

    Anything else that is wrong with the folder is left to who opens it.
    """
    answer = ask_process(__name__, path.encode(), patience=limits.TABLE_PATIENCE)
    if not answer.lines:
        raise DamageError(
            "the progress store takes far more memory or time to read than one of its size",
            where=": ".join(filter(None, (path, answer.last_words))),
            hint="Somebody has made it up. Restore the folder from a copy, or remove it and start "
            "over.",
        )


def main() -> None:
    """Read the folder that standard input names, and print a line."""
    import rocksdict  # noqa: F401 - before the time is limited

    path = sys.stdin.buffer.read().decode()
    try:
        stored = stored_bytes(path)
        limit_this_process(
            limits_by_size.comparing_memory(stored), limits_by_size.comparing_seconds(stored)
        )
        with closing(RocksDBLedger(path, read_only=True)) as ledger:
            ledger.overview()
    except (SeamarkError, OSError) as error:
        if isinstance(error.__cause__, MemoryError):
            raise
        # who opens the folder meets the same, and says it better
    sys.stdout.write("read\n")


if __name__ == "__main__":
    main()
