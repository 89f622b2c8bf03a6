"""Errors of the operating system, told as ours: which file, what was being done, what to do."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from seamark.errors import DamageError, OutcomeUnknownError, StoreUnavailableError


@contextmanager
def telling(
    doing: str, path: str, unknown_outcome: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Turn an OSError into one of ours that names the file and what was being done."""
    try:
        yield
    except (StoreUnavailableError, DamageError):
        raise
    except IsADirectoryError:
        raise DamageError(f"{path} is a directory where a file should be") from None
    except OSError as error:
        unknown = unknown_outcome is not None and unknown_outcome()
        kind = OutcomeUnknownError if unknown else StoreUnavailableError
        raise kind(
            f"{doing} {path} failed: {error.strerror or error}",
            hint=_ADVICE.get(error.errno or 0),
        ) from error


_ADVICE: Final = {
    errno.ENOSPC: "The disk is full: free some space and try again; nothing stored was harmed.",
    errno.EDQUOT: "The quota is used up: free some space and try again; nothing stored was harmed.",
    errno.EACCES: "Check the permissions of the store's directory.",
    errno.EROFS: "The file system is mounted read-only.",
}
