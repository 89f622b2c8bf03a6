"""Opening what the ``spark`` commands are pointed at.

Tests: ``tests/cli/test_spark_inspect.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.opening import open_directory
from seamark.cli.common_options import settings
from seamark.cli.store_argument import local_path, opened_store
from seamark.store import CheckpointStore


@contextmanager
def opened_directory(path: str) -> Iterator[Directory]:
    """The directory at a path or URI; storage options are for object stores only."""
    is_local = local_path(path) is not None or path.startswith("file:")
    directory = open_directory(path, None if is_local else settings().storage_options)
    try:
        yield directory
    finally:
        directory.close()


@contextmanager
def target_store(url: str) -> Iterator[CheckpointStore]:
    """The store that checkpoints are taken into; made when it is not there."""
    with opened_store(url, must_exist=False) as store:
        yield store
