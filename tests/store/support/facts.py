"""What is known before an accident, and the operations that it may hit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from seamark.manifest.facts import SharedObject
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan

Open = Callable[[], CheckpointStore]


@dataclass
class Facts:
    """What callers were told before the accident, and what the accident may have changed."""

    decided: dict[int, int] = field(default_factory=dict)
    """id → epoch of every save that returned."""
    may_appear: set[int] = field(default_factory=set)
    may_vanish: set[int] = field(default_factory=set)
    pinned: set[int] = field(default_factory=set)
    superseded: set[int] = field(default_factory=set)
    may_be_superseded: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    """ids whose sink was recorded as committed"""
    generation: int = 0
    """of the last claim that returned"""
    boundary: int = 0
    """what the last prune that returned has removed"""
    plans: dict[int, StoredPlan] = field(default_factory=dict)
    """epoch → the plan that its function was called with"""
    objects: list[SharedObject] = field(default_factory=list)
    """Shared objects that checkpoints name."""
    source: CheckpointStore | None = None
    """What is copied from."""


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs in peace, ``act`` is what the accident hits."""

    name: str
    prepare: Callable[[Open, Facts], CheckpointStore]
    act: Callable[[CheckpointStore, Facts], None]
