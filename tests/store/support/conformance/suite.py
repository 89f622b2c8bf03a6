"""All that a checkpoint store promises, put together from its chapters."""

from __future__ import annotations

import pytest

from seamark.blobs.contract import Blobs
from seamark.store import CheckpointStore
from seamark.store.layout import Layout, ObjectLayout
from tests.store.support.conformance.claims import StoreClaims
from tests.store.support.conformance.damage import StoreDamage
from tests.store.support.conformance.ids import StoreIds
from tests.store.support.conformance.names import StoreNames
from tests.store.support.conformance.orphans import StoreOrphans
from tests.store.support.conformance.recovery import StoreRecovery
from tests.store.support.conformance.retention import StoreRetention
from tests.store.support.conformance.saving import StoreSaving
from tests.store.support.conformance.state import StoreState
from tests.store.support.conformance.updates import StoreUpdates
from tests.store.support.examples import OpenHandle


class StoreConformance(
    StoreSaving,
    StoreState,
    StoreUpdates,
    StoreIds,
    StoreClaims,
    StoreRetention,
    StoreOrphans,
    StoreDamage,
    StoreRecovery,
    StoreNames,
):
    """What a checkpoint store promises, one test per promise, on a backend of your choice.

    A subclass gives the fixture ``blobs``: the backend under the store, fresh and empty; bytes are
    harmed through it. ``layout`` names the keys. ``open_handle`` opens the store once more each
    time it is called; override it when a second handle should be a second backend object.
    """

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError("override this fixture with a fresh, empty backend")

    @pytest.fixture
    def layout(self) -> Layout:
        return ObjectLayout()

    @pytest.fixture
    def open_handle(self, blobs: Blobs, layout: Layout) -> OpenHandle:
        def opened(*, keep: int | None = None, vnode_count: int | None = None) -> CheckpointStore:
            return CheckpointStore(blobs, layout, keep=keep, vnode_count=vnode_count)

        return opened
