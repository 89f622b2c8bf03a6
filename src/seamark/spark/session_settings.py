"""Settings of a user's Spark session, changed while something is planned and put back after it.

Tests: ``tests/pipeline/test_shared_state.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock: Final = threading.Lock()


@contextmanager
def session_settings(
    spark: SparkSession, changes: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Change settings within the block. A query keeps the ones that it is started with.

    ``defaults`` apply only where the user has set nothing. One thread at a time changes a session:
    another one would take these values for the user's own.
    """
    with _lock:
        unset = {k: v for k, v in (defaults or {}).items() if spark.conf.get(k, None) is None}
        changes = {**unset, **changes}
        before = {name: spark.conf.get(name, None) for name in changes}
        for name, value in changes.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
