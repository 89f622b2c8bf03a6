"""Reading rows only to see what they take, in a process whose limits grow with its files.

Tests: ``tests/audit/test_limited_targets.py``.
"""

from __future__ import annotations

import errno
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark import limits, limits_by_size
from seamark._common.holes import is_hollow
from seamark._common.limited_process import limit_this_process

if TYPE_CHECKING:
    import pyarrow as pa

_LOCAL: Final = re.compile(r"^file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)


def size_of(batch: pa.RecordBatch) -> int:
    """What rows count as; a value of one bit, or none at all, is a row as well."""
    return max(int(batch.nbytes), int(batch.num_rows) * limits.TRIED_ROW)


def is_shortage(error: Exception) -> bool:
    """Whether it says that there is not enough memory, which proves nothing about a file."""
    if isinstance(error, RuntimeError):  # also when no thread can be started
        return not isinstance(error, RecursionError)
    return isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM


@contextmanager
def left_to_the_audit() -> Iterator[None]:
    """For what may fail: the audit meets the same, and says it better. The rest is still tried.

    That there is not enough memory, though, is what this process is to find out.
    """
    try:
        yield
    except Exception as error:
        if is_shortage(error):
            raise


class TriedRows:
    """Counts what files hold, each of them once, and what is unpacked, each time that it is."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seen: set[str] = set()
        self._stored = self._largest = self._unpacked = 0
        self.is_sure = True
        """Whether all files could be read."""
        self._began = time.process_time(), time.monotonic()

    def read(self, file: str, size: int, pieces: Callable[[], Iterable[int]]) -> None:
        """Read a file of that size; ``pieces`` gives the sizes of what it unpacks to, on the way.

        :class:`MemoryError` when that is more than :mod:`seamark.limits` allows. A file that cannot
        be read is left to the audit, which is then not :attr:`sure <is_sure>` what it meets.
        """
        if file not in self._seen:
            if is_hollow(_LOCAL.sub("", file)):
                raise MemoryError(f"{file} is mostly a hole: little of it is stored")
            self._seen.add(file)
            self._stored += size
            self._largest = max(self._largest, size)
            self._raise_limits()
        was_sure, self.is_sure = self.is_sure, False
        with left_to_the_audit():
            for piece in pieces():
                self._unpacked += piece
                if self._unpacked > limits_by_size.most_tried(self._stored):
                    raise MemoryError(
                        f"{self._stored} bytes of files unpack to more than {self._unpacked}"
                    )
            self.is_sure = was_sure

    def _raise_limits(self) -> None:
        """Allow what the files that were read until now, and this one, may take together."""
        processor, clock = self._began
        seconds = limits.TABLE_SECONDS + self._stored // limits.TRIED_BYTES_PER_SECOND
        seconds -= math.floor(time.process_time() - processor)
        if seconds <= 0:
            raise MemoryError("they take more processor time than files of their size")
        patience = self._patience + self._stored // limits.TRIED_BYTES_PER_SECOND_BY_THE_CLOCK
        limit_this_process(
            limits.TABLE_MEMORY + limits.TRIED_MEMORY_RATIO * self._largest,
            seconds,
            patience - (time.monotonic() - clock),
        )
