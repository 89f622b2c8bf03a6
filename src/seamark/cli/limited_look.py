"""Asking a Delta table that a store names, by a process with limited memory and time.

Nobody knows where a store comes from, nor the table that it names. A log of some hundred kilobytes
can unpack to gigabytes in more ways than can be told beforehand, so the operating system sets the
limits, as it does for ``restore --table``.

Tests: ``tests/cli/test_table_check.py``.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from seamark import errors, limits
from seamark._common.json_documents import UNREADABLE
from seamark.errors import RefusedError, SeamarkError
from seamark.sources.sequence_reader import PositionRange

_LIMITS: Final = (
    f"{limits.TABLE_MEMORY // limits.MIB} MiB of memory and {limits.TABLE_SECONDS} s of "
    "processor time"
)


class _Question(msgspec.Struct):
    source: str
    options: dict[str, str]
    line: str


class _Answer(msgspec.Struct):
    known: PositionRange | None = None
    error: str = ""
    what: str = ""
    where: str | None = None
    hint: str | None = None


def look_within_limits(source: str, options: Mapping[str, str], line: str) -> PositionRange | None:
    """Ask a DeltaSource, as ``look_at_line`` does, with the same errors.

    :class:`RefusedError` when that takes more than :mod:`seamark.limits` allows.
    """
    # allocators and threads reserve far more than they use
    frugal = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    threads = {"OMP_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "2", "RAYON_NUM_THREADS": "1"}
    asked = subprocess.run(
        [sys.executable, "-m", __name__],
        input=msgspec.json.encode(_Question(source, dict(options), line)),
        capture_output=True,
        env={**os.environ, **frugal, **threads},
        check=False,
    )
    try:
        answer = msgspec.json.decode(asked.stdout, type=_Answer)
    except UNREADABLE:
        said = asked.stderr.decode(errors="replace").strip().splitlines()
        raise RefusedError(
            f"the table of source {source!r} cannot be read with {_LIMITS}",
            where=": ".join([options.get("path", ""), *(line[:200] for line in said[-1:])]),
            hint="Is it the right one? These are the limits of a table that a store names. One "
            f"that you name is read without them: {source}.path=… in --source-config.",
        ) from None
    if answer.error:
        kind = getattr(errors, answer.error, SeamarkError)
        raise kind(answer.what, where=answer.where, hint=answer.hint)
    return answer.known


def main() -> None:
    """Answer the question at standard input."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.TABLE_MEMORY, limits.TABLE_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.TABLE_SECONDS, limits.TABLE_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    sys.stdout.buffer.write(msgspec.json.encode(_answer(question)))


def _answer(question: _Question) -> _Answer:
    from seamark.sources import DeltaSource
    from seamark.sources.position_looks import look_at_line

    try:
        known = look_at_line(question.source, DeltaSource, question.options, question.line)
    except SeamarkError as error:
        return _Answer(None, type(error).__name__, error.what, error.where, error.hint)
    return _Answer(known)


if __name__ == "__main__":
    main()
