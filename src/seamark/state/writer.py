"""Writing one state checkpoint: tasks bring states, the manifest makes them count.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import msgspec

from seamark._common.checks import unsafe_path
from seamark.blobs.contract import Buffer
from seamark.errors import InvalidInputError, RefusedError
from seamark.state.chains import (
    LONGEST_CHAIN,
    Chain,
    PartitionKey,
    as_seen_from,
    is_due_for_rebase,
    needs_snapshot,
)
from seamark.state.layout import (
    CheckpointId,
    CheckpointManifestV2,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    SourceOffsetEntry,
)
from seamark.state.resolution import resolve
from seamark.state.task import StateTask, TaskReceipt


class StateWriter:
    """One checkpoint in the making. Nothing of it counts before :meth:`commit`.

    ``with`` abandons it unless it was committed.
    """

    def __init__(
        self,
        checkpoint_id: CheckpointId,
        epoch: int,
        lineage: list[CheckpointManifestV2],
        own_task: StateTask,
        publish: Callable[[CheckpointManifestV2], None],
        *,
        rebase: bool = False,
        longest_chain: int = LONGEST_CHAIN,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.epoch = epoch
        self._base: dict[PartitionKey, Chain] = resolve(lineage) if lineage else {}
        self._parent = lineage[0].checkpoint_id if lineage else None
        self._rebase = rebase or (bool(lineage) and is_due_for_rebase(lineage, longest_chain))
        self._longest = longest_chain
        self._task = own_task
        self._publish = publish
        self._receipts: dict[str, TaskReceipt] = {}
        self._forgotten: set[PartitionKey] = set()
        self._finished = False

    def needs_snapshot(self, operator: str, partition: int) -> bool:
        """Whether this partition must be put as a snapshot and not as a delta."""
        place = (operator, partition)
        chain = None if place in self._forgotten else self._base.get(place)
        return needs_snapshot(chain, self._longest)

    def put(
        self,
        operator: str,
        partition: int,
        state: Buffer | Iterable[Buffer],
        *,
        is_delta: bool = False,
    ) -> None:
        """Bring the state of one partition. Partitions that are not put stay as they were."""
        if is_delta and self.needs_snapshot(operator, partition):
            raise self._refused_delta(operator, partition)
        self._task.put(operator, partition, state, is_delta=is_delta)

    def add(self, receipt: TaskReceipt) -> None:
        """Take in what a task has written, in whatever process it ran."""
        if receipt.checkpoint_id != self.checkpoint_id:
            raise InvalidInputError(
                f"the receipt is of checkpoint {receipt.checkpoint_id}, not {self.checkpoint_id}"
            )
        if receipt.task in self._receipts and self._receipts[receipt.task] != receipt:
            raise InvalidInputError(f"the task {receipt.task!r} has sent two different receipts")
        self._receipts[receipt.task] = receipt

    def forget(self, operator: str, partition: int | None = None) -> None:
        """Leave out an operator or partition that is no longer there."""
        self._forgotten |= {
            place for place in self._base if place[0] == operator and partition in (None, place[1])
        }

    def commit(
        self,
        *,
        watermark: int | None = None,
        source_offsets: dict[str, SourceOffsetEntry] | None = None,
        **fields: Any,
    ) -> CheckpointManifestV2:
        """Write the manifest: from here on the checkpoint exists."""
        if self._finished:
            raise InvalidInputError(f"checkpoint {self.checkpoint_id} is committed or abandoned")
        self.add(self._task.finish())
        self._finished = True
        written = self._written()
        full = self._parent is None or self._rebase or bool(self._forgotten)
        if full:
            for place, chain in self._base.items():
                if place not in self._forgotten:
                    self._carry_over(place, chain, written)
        manifest = CheckpointManifestV2.new(
            self.checkpoint_id,
            self.epoch,
            operators=_by_operator(written),
            source_offsets=source_offsets or {},
            parent_id=None if full else self._parent,
            watermark=watermark,
            total_size_bytes=_new_bytes(written),
            **fields,
        )
        self._publish(manifest)
        return manifest

    def abandon(self) -> None:
        """Give up. What was uploaded is nobody's."""
        self._finished = True
        self._task.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            self.abandon()

    def _written(self) -> dict[PartitionKey, list[PartitionSnapshotEntry]]:
        """What all tasks brought, one entry a partition."""
        written: dict[PartitionKey, list[PartitionSnapshotEntry]] = {}
        for receipt in self._receipts.values():
            for operator, entry in receipt.entries:
                place = (operator, entry.partition_id)
                if problem := unsafe_path(entry.path):
                    raise InvalidInputError(f"the receipt's path {entry.path!r} {problem}")
                first = written.get(place, [entry])[0]
                if (first.sha256, first.is_delta) != (entry.sha256, entry.is_delta):
                    raise InvalidInputError(
                        f"operator {operator!r} partition {entry.partition_id} was brought by two"
                        " tasks, with different bytes"
                    )
                if entry.is_delta and self.needs_snapshot(*place):
                    raise self._refused_delta(*place)
                written[place] = [entry]
        return written

    def _carry_over(
        self,
        place: PartitionKey,
        chain: Chain,
        written: dict[PartitionKey, list[PartitionSnapshotEntry]],
    ) -> None:
        """Name what an older checkpoint wrote, instead of writing it again."""
        new = written.get(place, [])
        if new and not new[0].is_delta:
            return
        written[place] = [*as_seen_from(self.checkpoint_id, chain), *new]

    def _refused_delta(self, operator: str, partition: int) -> RefusedError:
        return RefusedError(
            f"operator {operator!r} partition {partition} needs a snapshot",
            hint="There is none to build on, or its chain of deltas has become too long. "
            "needs_snapshot() says so beforehand.",
        )


def _by_operator(
    written: dict[PartitionKey, list[PartitionSnapshotEntry]],
) -> dict[str, OperatorSnapshotEntry]:
    partitions: dict[str, list[PartitionSnapshotEntry]] = {}
    for place in sorted(written):
        partitions.setdefault(place[0], []).extend(written[place])
    return {
        operator: OperatorSnapshotEntry(entries, sum(e.size_bytes for e in entries))
        for operator, entries in partitions.items()
    }


def _new_bytes(written: dict[PartitionKey, list[PartitionSnapshotEntry]]) -> int:
    return sum(
        entry.size_bytes
        for entries in written.values()
        for entry in entries
        if entry.origin is msgspec.UNSET
    )
