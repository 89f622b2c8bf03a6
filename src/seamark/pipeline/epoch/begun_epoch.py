"""An epoch that has begun and is not decided: what it has to be computed with once more.

A function gets the same key in every try of an epoch, and its target drops what comes second. So a
later try must not give it other rows: neither of a changed pipeline nor of another version of a
table.

Tests: ``tests/pipeline/test_begun_epochs.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline.declaration.compatibility import Compatibility, compare_structures
from seamark.pipeline.declaration.recorded_structure import require_readable
from seamark.pipeline.declaration.structure import PipelineIdentity, Structure
from seamark.sinks.contract import Guarantee
from seamark.spark.reference_tables import changed_tables
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan

PROMISES_NOTHING: Final = (Guarantee.AT_LEAST_ONCE, Guarantee.FOR_TRYING_OUT)
"""Of sinks that take whatever comes, and drop nothing by its key."""


def changes_since(
    stored: StoredPlan, identity: PipelineIdentity, functions: Collection[str]
) -> list[str]:
    """Why the epoch would have other rows than when it was started, in words; empty if it has not.

    ``functions`` are named as at their targets. Nothing matters to those that drop nothing by its
    key. :class:`DamageError` when what was stored of the pipeline cannot be compared.
    """
    if not drops_known_keys(identity, functions):
        return []
    changes = _changed_versions(stored.tables, identity.tables)
    if stored.structure is None or stored.structure == identity.structure:
        return changes
    started = CheckpointManifest.new(1, epoch=stored.epoch)
    try:
        require_readable(started.with_extra(structure=stored.structure))
    except DamageError as error:
        raise DamageError(
            f"the plan of epoch {stored.epoch} does not say in a known way what its pipeline was",
            where=error.where,
            hint="Restore the store from a copy, or roll the pipeline back to its newest "
            "checkpoint; bring the targets of functions back to that epoch first.",
        ) from None
    same_spark = stored.spark_version.split(".")[:2] == identity.spark_version.split(".")[:2]
    before, now = stored.structure, identity.structure
    kept = before["sinks"].keys() & now["sinks"].keys()
    check = compare_structures(
        _rows_in(before, kept), _rows_in(now, kept), "strict", same_spark=same_spark
    )
    return changes + (check.changes if check.fit is Compatibility.REFUSED else [])


def drops_known_keys(identity: PipelineIdentity, functions: Collection[str]) -> bool:
    """Whether the target of one of these functions may drop rows because it knows their key."""
    takes_all = {guarantee.value for guarantee in PROMISES_NOTHING}
    guarantees = {identity.name_at_target(sink): g for sink, g in identity.guarantees.items()}
    return not takes_all.issuperset(guarantees.get(name, "") for name in functions)


def _rows_in(structure: Structure, sinks: Collection[str]) -> Structure:
    """What says which rows these sinks get; where they go is no matter of the rows."""
    columns = {name: {"columns": structure["sinks"][name].get("columns")} for name in sinks}
    return {**structure, "sinks": columns}


def _changed_versions(
    before: Mapping[str, ConnectorCheckpoint], now: Mapping[str, ConnectorCheckpoint]
) -> list[str]:
    """Tables that are read at another version; what has none cannot be read as it was."""
    versions = {name: table for name, table in before.items() if "version" in table.offsets}
    return changed_tables(versions, now)


def next_tables(
    store: CheckpointStore, newest: CheckpointManifest | None
) -> Mapping[str, ConnectorCheckpoint]:
    """The tables that the next epoch is joined with: as it was started, or as the newest one."""
    timeline, epoch = store.owner().timeline, newest.epoch if newest is not None else 0
    known = newest.table_offsets if newest is not None else {}
    if not timeline or not (begun := store.plans.epochs_after(timeline, epoch)):
        return known
    try:
        stored = store.plans.read(timeline, min(begun))
    except (DamageError, RefusedError):
        return known  # the start says so
    return known if stored is None else {**known, **stored.tables}
