"""What a checkpoint store is made of, for the modules of this package that work on whole stores."""

from __future__ import annotations

from typing import NamedTuple

from seamark.blobs.contract import Blobs
from seamark.store.layout import OWNER_KEY, Layout
from seamark.store.manifests import Manifests
from seamark.store.ownership import Ownership
from seamark.store.partitioned_state import PartitionedStates
from seamark.store.plans import Plans
from seamark.store.references import References
from seamark.store.shared_objects import SharedObjects
from seamark.store.sidecars import Sidecars
from seamark.store.validation import Validator


class StoreParts(NamedTuple):
    """One object kind each, over one backend."""

    blobs: Blobs
    layout: Layout
    manifests: Manifests
    sidecars: Sidecars
    partitioned: PartitionedStates
    shared: SharedObjects
    ownership: Ownership
    validator: Validator
    plans: Plans

    @classmethod
    def of(cls, blobs: Blobs, layout: Layout, vnode_count: int | None) -> StoreParts:
        """The parts of the store that a backend holds. Reads nothing."""
        manifests = Manifests(blobs, layout)
        sidecars = Sidecars(blobs, layout)
        ownership = Ownership(blobs, manifests)
        references = References(manifests, ownership)
        partitioned = PartitionedStates(blobs, ownership, references)
        shared = SharedObjects(blobs, ownership, references)
        return cls(
            blobs,
            layout,
            manifests,
            sidecars,
            partitioned,
            shared,
            ownership,
            Validator(manifests, sidecars, partitioned, shared, ownership, vnode_count),
            Plans(blobs, ownership),
        )

    def is_store(self) -> bool:
        """Whether anything shows that this is a store, and not a folder of somebody else's."""
        return (
            self.blobs.stat(OWNER_KEY) is not None
            or bool(self.manifests.ids())
            or bool(self.sidecars.entries())
        )
