"""All that a progress store promises, put together from its chapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from seamark.progress import SourceCheckpointStore
from seamark.testing.conformance.progress_checkpoints import ProgressCheckpoints
from seamark.testing.conformance.progress_configuration import (
    ProgressClearing,
    ProgressConfiguration,
)
from seamark.testing.conformance.progress_data import ProgressData
from seamark.testing.conformance.progress_examples import OpenStore
from seamark.testing.conformance.progress_nesting import ProgressNesting
from seamark.testing.conformance.progress_results import ProgressResults
from seamark.testing.conformance.progress_sessions import ProgressSessions
from seamark.testing.conformance.progress_sharing import ProgressHandles, ProgressThreads


class ProgressSuite(
    ProgressCheckpoints,
    ProgressResults,
    ProgressConfiguration,
    ProgressClearing,
    ProgressData,
    ProgressSessions,
    ProgressNesting,
    ProgressThreads,
    ProgressHandles,
):
    """What :class:`seamark.progress.SourceCheckpointStore` promises over any backend.

    A subclass gives the fixture ``open_store``: each call opens the same store, which is empty
    when a test starts, as another process would have it. Only one handle at a time is opened to
    write; those with ``read_only=True`` are opened alongside it.
    """

    is_persistent: ClassVar[bool] = True
    """False for a store that does not outlive its process."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("override this fixture: a new handle on the same, empty store")

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[SourceCheckpointStore]:
        with open_store() as opened:
            yield opened

    @pytest.fixture
    def reader(
        self, store: SourceCheckpointStore, open_store: OpenStore
    ) -> Iterator[SourceCheckpointStore]:
        with open_store(read_only=True) as opened:
            yield opened
