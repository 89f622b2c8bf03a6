"""What a checkpoint store is made of, for the modules of this package that work on whole stores."""

from __future__ import annotations

from typing import NamedTuple

from seamark.blobs.contract import Blobs
from seamark.store.layout import OWNER_KEY, Layout
from seamark.store.manifests import Manifests
from seamark.store.ownership import Ownership
from seamark.store.partitioned import PartitionedStates
from seamark.store.plans import Plans
from seamark.store.sidecars import States
from seamark.store.validator import Inspector


class Parts(NamedTuple):
    """One object kind each, over one backend."""

    blobs: Blobs
    layout: Layout
    manifests: Manifests
    states: States
    partitioned: PartitionedStates
    ownership: Ownership
    inspector: Inspector
    plans: Plans

    @classmethod
    def of(cls, blobs: Blobs, layout: Layout, vnode_count: int | None) -> Parts:
        """The parts of the store that a backend holds. Reads nothing."""
        manifests = Manifests(blobs, layout)
        states = States(blobs, layout)
        ownership = Ownership(blobs, manifests)
        partitioned = PartitionedStates(blobs, manifests, ownership)
        inspector = Inspector(manifests, states, partitioned, ownership, vnode_count)
        plans = Plans(blobs, ownership)
        return cls(blobs, layout, manifests, states, partitioned, ownership, inspector, plans)

    def is_store(self) -> bool:
        """Whether anything shows that this is a store, and not a folder of somebody else's."""
        return (
            self.blobs.stat(OWNER_KEY) is not None
            or bool(self.manifests.ids())
            or bool(self.states.entries())
        )
