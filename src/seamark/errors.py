"""Every error that Seamark raises, and the exit code that each one gives the command line.

::

    SeamarkError                      1  something went wrong
    ├── InvalidInputError             1  an argument cannot be what was given (ValueError)
    ├── DamageError                   3  stored bytes are proven wrong or missing
    ├── CheckpointNotFoundError       4  there is no such checkpoint (LookupError)
    ├── FencedError                   5  another writer owns the store
    ├── RefusedError                  6  it could be done, but it would lose or endanger something
    │   ├── FormatTooNewError         6  written by a newer Seamark
    │   ├── LineageError              6  a sink shows something else than the checkpoint says
    │   └── PositionUnavailable       6  a source no longer has what is to be read again
    ├── SourceUnavailableError        7  a source does not answer, or not to us (OSError)
    │   └── SourceSilentError         7  it gives no answer at all: it may later
    └── StoreUnavailableError         7  an I/O error that proves nothing about the data (OSError)
        └── OutcomeUnknownError       7  a write may or may not have happened

An error says what happened, where, and what to do next. The three parts are kept apart
(``what``, ``where``, ``hint``) so that a terminal can lay them out and a program can log them.
None of them ever holds a password or key: what looks like one is hidden when the error is made.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

from typing import ClassVar, Self

from seamark._control_characters import escape_controls
from seamark._redaction import redacted


class SeamarkError(Exception):
    """The root of all errors of this package."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = redacted(what)
        self.where = redacted(where) if where else where
        self.hint = redacted(hint) if hint else hint
        super().__init__(self.what)

    def __str__(self) -> str:
        parts = (part for part in (self.what, self.where, self.hint) if part)
        # a traceback shows it as it is, and names may come from anybody's store
        return escape_controls("\n  ".join(parts), lines=True)

    def as_value(self) -> Self:
        """Itself, to be kept: without the frames that it was raised in, and what they had read."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # keyword arguments survive the trip between processes
        return (_rebuild, (type(self), self.what, self.where, self.hint))


class InvalidInputError(SeamarkError, ValueError):
    """An argument is outside what the call accepts; nothing was read or written."""


class DamageError(SeamarkError):
    """Stored bytes are proven to be wrong, torn or missing."""

    exit_code = 3


class CheckpointNotFoundError(SeamarkError, LookupError):
    """The store answered, and it has no such checkpoint."""

    exit_code = 4


class FencedError(SeamarkError):
    """Another writer owns the store, or won the race for this id; nothing here was decided."""

    exit_code = 5


class RefusedError(SeamarkError):
    """The operation would lose data or void a guarantee, so it was not done."""

    exit_code = 6


class FormatTooNewError(RefusedError):
    """The store was written by a newer Seamark than this one."""


class LineageError(RefusedError):
    """A sink and the checkpoints have different histories; nothing was changed in either."""


class PositionUnavailable(RefusedError):
    """A source's past is gone: it cannot be read again from the position that was asked for.

    ``source``, ``requested`` and ``earliest`` (a position that can still be read, when the source
    knows one) are for programs; the text says the same.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        source: str | None = None,
        requested: bytes | None = None,
        earliest: bytes | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.source = source
        self.requested = requested
        self.earliest = earliest

    def __reduce__(self) -> tuple[object, ...]:
        arguments = (self.what, self.where, self.hint, self.source, self.requested, self.earliest)
        return (_rebuild_position, arguments)


class SourceUnavailableError(SeamarkError, OSError):
    """A source cannot be reached, refuses the login, or does not know what is to be read."""

    exit_code = 7


class SourceSilentError(SourceUnavailableError):
    """A source gives no answer, and nothing says that it never will: it is worth asking again."""


class StoreUnavailableError(SeamarkError, OSError):
    """The store did not answer properly. That proves nothing about what it holds."""

    exit_code = 7


class OutcomeUnknownError(StoreUnavailableError):
    """A write was sent and its outcome could not be learned, not even by reading back."""


def _rebuild_position(
    what: str,
    where: str | None,
    hint: str | None,
    source: str | None,
    requested: bytes | None,
    earliest: bytes | None,
) -> PositionUnavailable:
    return PositionUnavailable(
        what, where=where, hint=hint, source=source, requested=requested, earliest=earliest
    )


def _rebuild(
    cls: type[SeamarkError], what: str, where: str | None, hint: str | None
) -> SeamarkError:
    return cls(what, where=where, hint=hint)
