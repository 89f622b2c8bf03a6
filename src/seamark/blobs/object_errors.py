"""Errors of obstore in Seamark's own words, without a secret in them.

Tests: ``tests/store/test_opening.py``, ``tests/store/test_faults.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from seamark._redaction import Redactor
from seamark.errors import (
    DamageError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
)

_NO_BUCKET: Final = re.compile(
    "NoSuchBucket|ContainerNotFound|(bucket|container) does not exist", re.IGNORECASE
)
_GONE: Final = re.compile("<Code>(NoSuchKey|BlobNotFound)</Code>")
_NO_TIME: Final = re.compile(r"year -?\d+ is out of range")
"""What Python says of a time that it cannot hold; a service may name any."""
_ASKED_THE_MACHINE: Final = re.compile(
    "/latest/(?:api/token|meta-data)|/computeMetadata/|/metadata/identity/"
)
"""Where clients of S3, Google Cloud Storage and Azure ask for a machine's own credentials."""
_HAPPENED_NOT: Final = (PermissionDeniedError, UnauthenticatedError, NotSupportedError)
_ADVICE: Final = {
    "PermissionDeniedError": "The credentials lack a permission on this prefix.",
    "UnauthenticatedError": "The credentials are missing, wrong or expired.",
}


@contextmanager
def translated_errors(
    doing: str, key: str, url: str, redact: Redactor, *, write: bool = False
) -> Iterator[None]:
    """Turn an obstore error into one of ours.

    The original is not chained: its text may hold a signed URL.
    """
    try:
        yield
    except (AlreadyExistsError, PreconditionError, DamageError, StoreUnavailableError):
        raise
    except FileNotFoundError as error:
        # a wrong bucket must not look like an empty store
        if not _NO_BUCKET.search(str(error)):
            raise
        raise StoreUnavailableError(
            f"{doing} {key} failed: the bucket or container does not exist",
            where=url,
            hint="Check the URL and the account, or create the bucket.",
        ) from None
    except NotSupportedError as error:
        raise RefusedError(
            f"{doing} {key}: the store does not support it: {plain_message(error, redact)}",
            where=url,
        ) from None
    except ValueError as error:
        brief = plain_message(error, redact)
        if _NO_TIME.search(str(error)):
            told = f"{doing} {key} failed: a time that cannot be: {brief}"
            raise StoreUnavailableError(told, where=url) from None
        # obstore refuses more names than we do, as those with control characters
        raise DamageError(f"{key!r} cannot be the name of an object: {brief}", where=url) from None
    except (BaseError, OSError) as error:
        maybe = write and not isinstance(error, _HAPPENED_NOT)
        raise (OutcomeUnknownError if maybe else StoreUnavailableError)(
            f"{doing} {key} failed: {plain_message(error, redact)}",
            where=url,
            hint=_advice(error),
        ) from None


def was_removed(error: StoreUnavailableError) -> bool:
    """Whether a value was removed after its first bytes had come.

    The connection broke, and the client asked for the rest.
    """
    return _GONE.search(error.what) is not None


def _advice(error: Exception) -> str | None:
    if _ASKED_THE_MACHINE.search(str(error)):
        return (
            "No credentials were given, and this machine has none of its own. Give them by the "
            "environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or by "
            "storage_options."
        )
    return _ADVICE.get(type(error).__name__)


def plain_message(error: Exception, redact: Redactor) -> str:
    """The error's own text without its debug dump and without secrets."""
    return redact(str(error).split("Debug source", 1)[0].strip())
