"""Where the history of a pipeline's epochs stands, and why a batch may not start.

On its own because recovery fills it in and the epoch protocol goes on with it.

Tests: ``tests/pipeline/test_stored_plans.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seamark.manifest import CheckpointManifest
from seamark.spark.batch_log import Plan


class Interrupted(Exception):
    """The query has to stop before this batch. Not a failure."""


class PlanDiffers(Interrupted):
    """Spark planned other rows for a batch than a sink shows for it already."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"batch {batch} has to run on the rows that it was planned for before")
        self.batch = batch


@dataclass
class EpochHistory:
    """Where the history of epochs stands."""

    timeline: str
    generation: int
    next_id: int
    newest: CheckpointManifest | None = None
    first_batch: int = 0
    """The first batch of an empty history; more than 0 for an adopted query."""
    links: int = 0
    """How many checkpoints the newest one builds on."""
    full_bytes: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)
    """Batches that have to run on a plan that was made before."""
    ahead: dict[str, int] = field(default_factory=dict)
    """Sinks that show later epochs than the newest checkpoint, and up to which."""
    planned_again: set[int] = field(default_factory=set)
    """Batches for which the query was started again on the plan that was made before."""
