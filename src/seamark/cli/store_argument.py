"""Opening the store that a command is pointed at.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seamark.cli.commands import settings
from seamark.reports.places import local_path, refuse_spark_directory, require_path
from seamark.store import CheckpointStore, open_store


@contextmanager
def opened_store(url: str, *, must_exist: bool = True) -> Iterator[CheckpointStore]:
    """The store at a path or URL; :class:`CheckpointNotFoundError` for a path that is not there.

    An empty directory is an empty store.
    """
    if must_exist:
        require_path(url, "store")
        refuse_spark_directory(url)
    # a command may name a local and a remote place; the options are for the remote one
    options = settings().storage_options if local_path(url) is None else None
    with open_store(url, storage_options=options or None) as store:
        yield store
