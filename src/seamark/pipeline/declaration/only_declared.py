"""Loading a program for the pipeline that it declares, and not to run that.

Tests: ``tests/pipeline/test_job_file.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from seamark.errors import RefusedError

_program: ContextVar[str | None] = ContextVar("seamark-program", default=None)


@contextmanager
def only_declared(program: str) -> Iterator[None]:
    """Within the block no pipeline is started."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)


def refuse_to_start() -> None:
    """:class:`RefusedError` while a program is loaded only for what it declares."""
    if (program := _program.get()) is not None:
        raise RefusedError(
            "the program starts its pipeline when it is loaded",
            where=program,
            hint="Start it below 'if __name__ == \"__main__\":', which is not run here.",
        )
