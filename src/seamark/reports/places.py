"""Whether a path or URL is a store, a directory of a Spark query, or nothing of the kind.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from urllib.parse import unquote, urlsplit

from seamark.blobs.addresses import refuse_broken_url
from seamark.errors import CheckpointNotFoundError, StoreUnavailableError


def require_path(url: str, what: str) -> None:
    """Refuse a local path that does not exist; a remote one is only checked when it is read."""
    path = local_path(url)
    if path is None:
        return
    refuse_broken_url(url)
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(
            f"there is no {what} at {url}: no such directory", hint="Is the path right?"
        ) from None
    except OSError as error:
        raise StoreUnavailableError(
            f"the {what} at {url} cannot be reached: {error.strerror}",
            hint="That says nothing about what it holds. May this user read it?",
        ) from None
    if not stat.S_ISDIR(kind):
        raise CheckpointNotFoundError(
            f"there is no {what} at {url}: it is a file", hint="Is the path right?"
        )


def refuse_spark_directory(url: str) -> None:
    """Refuse the ``checkpointLocation`` of a query, which is not one of our stores."""
    path = local_path(url)
    if path is not None and is_spark_directory(path):
        raise CheckpointNotFoundError(
            "this is the checkpoint directory of a Spark query, not a store",
            where=url,
            hint=f"'seamark spark inspect {shlex.quote(url)}' shows what is in it; "
            f"'seamark spark snapshot {shlex.quote(url)} STORE' takes it into a store.",
        )


def is_spark_directory(path: str) -> bool:
    """Whether a folder is the ``checkpointLocation`` of a query, and not one of our stores."""
    own_names = ("owner.json", "checkpoints", "manifests")
    if any(os.path.exists(f"{path}/{name}") for name in own_names):
        return False
    return os.path.isdir(f"{path}/offsets") and os.path.isfile(f"{path}/metadata")


def local_path(url: str) -> str | None:
    """The path that a path or ``file:`` URL means; None for anything else."""
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url) else url
