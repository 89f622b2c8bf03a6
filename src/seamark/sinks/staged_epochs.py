"""Where an attempt stages an epoch until it is published or applied.

::

    {path}/_seamark/staging/{attempt}/epoch=000042/

Tests: ``tests/sinks/test_view_staging.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from seamark._common.files import require_inside, sync_folder
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError
from seamark.sinks.contract import Receipt
from seamark.sinks.epoch_folder import folder_name
from seamark.sinks.folders import is_there, names_in, remove_tree, sync_if_there
from seamark.sinks.schema_checks import check_token

_STAGING: Final = "_seamark/staging"


def attempt_folder(path: str, attempt: str) -> str:
    """Where an attempt writes its rows."""
    return f"{path}/{_STAGING}/{check_token(attempt, 'an attempt')}"


def staging_folder(path: str, attempt: str, epoch: int) -> str:
    """Where an epoch is until it is published."""
    return f"{attempt_folder(path, attempt)}/{folder_name(epoch)}"


@contextmanager
def staging_into(folder: str, below: str) -> Iterator[None]:
    """Clear away what an earlier try of the same attempt has left; afterwards the folder exists."""
    with translate_os_errors("staging into", folder):
        require_inside(below, folder)
        remove_tree(os.path.dirname(folder))
        os.makedirs(os.path.dirname(folder))
    yield
    with translate_os_errors("staging into", folder):
        os.makedirs(folder, exist_ok=True)  # an epoch without rows may have no folder


def staged_attempts(path: str) -> list[str]:
    """Tokens that something is staged under."""
    folder = f"{path}/{_STAGING}"
    with translate_os_errors("listing", folder):
        return names_in(folder)


def remove_staged(path: str, attempt: str) -> None:
    """Remove what was staged under a token; harmless when nothing was."""
    folder = attempt_folder(path, attempt)
    with translate_os_errors("removing", folder):
        require_inside(path, folder)
        if is_there(folder):
            remove_tree(folder)
            sync_if_there(os.path.dirname(folder))


@contextmanager
def making_durable(path: str, receipt: Receipt) -> Iterator[str]:
    """Gives the folder of a staged epoch, and afterwards makes the names that lead to it durable.

    :class:`DamageError` when it is gone.
    """
    folder = staging_folder(path, receipt.attempt, receipt.epoch)
    if not os.path.isdir(folder):
        raise DamageError(
            f"what was staged for epoch {receipt.epoch} is gone",
            where=folder,
            hint="Has another writer, or somebody else, removed it? Start again.",
        )
    with translate_os_errors("making durable", folder):
        yield folder
        while folder != path:
            folder = os.path.dirname(folder)
            sync_folder(folder)
