"""All that a checkpoint store promises, put together from its chapters."""

from __future__ import annotations

import pytest

from seamark.blobs.contract import Blobs
from seamark.store import CheckpointStore
from seamark.store.layout import Layout, ObjectLayout
from seamark.testing.conformance.examples import OpenHandle
from seamark.testing.conformance.store_claims import StoreClaims
from seamark.testing.conformance.store_damage import StoreDamage
from seamark.testing.conformance.store_ids import StoreIds
from seamark.testing.conformance.store_names import StoreNames
from seamark.testing.conformance.store_orphans import StoreOrphans
from seamark.testing.conformance.store_recovery import StoreRecovery
from seamark.testing.conformance.store_retention import StoreRetention
from seamark.testing.conformance.store_saving import StoreSaving
from seamark.testing.conformance.store_state import StoreState
from seamark.testing.conformance.store_updates import StoreUpdates


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
