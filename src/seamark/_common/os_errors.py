"""Turns errors of the operating system into ours: which file, what failed, what to do next."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from seamark.errors import DamageError, OutcomeUnknownError, StoreUnavailableError


@contextmanager
def translate_os_errors(
    doing: str, path: str, unknown_outcome: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Turn an OSError into one of our errors, which names the file and what was being done."""
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


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for lack of space on the disk or in the quota."""
    cause = error.__cause__ if isinstance(error, StoreUnavailableError) else error
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def system_refusal(error: OSError) -> StoreUnavailableError | None:
    """One of our errors for what the operating system refused; None for any other OSError."""
    if error.errno not in _REFUSALS:
        return None
    where = f" {error.filename}" if error.filename else ""
    return StoreUnavailableError(
        f"the system refused access to{where or ' a file'}: {error.strerror or error}",
        hint=_ADVICE.get(error.errno),
    )


_ADVICE: Final = {
    errno.ENOSPC: "The disk is full: free some space and try again; nothing stored was harmed.",
    errno.EDQUOT: "The quota is used up: free some space and try again; nothing stored was harmed.",
    errno.EACCES: "Check the permissions of the directory.",
    errno.EPERM: "Check the permissions of the directory.",
    errno.EROFS: "The file system is mounted read-only. Choose another place, or remount it.",
    errno.EMFILE: "This process has too many open files: raise its limit ('ulimit -n').",
}
_REFUSALS: Final = frozenset(
    {
        *_ADVICE,
        errno.EIO,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EFBIG,
        errno.EBUSY,
        errno.ESTALE,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOLCK,
        errno.ETIMEDOUT,
        errno.ENAMETOOLONG,
    }
)
