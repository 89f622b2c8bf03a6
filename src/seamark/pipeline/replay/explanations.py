"""Why an epoch that was run again may have come out different. Pure, but for looking at plans.

Tests: ``tests/pipeline/test_replay_explanations.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    CompatibilityCheck,
    compare_structures,
)
from seamark.pipeline.declaration.recorded_structure import require_readable
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.replay.result import Agreement, OutputComparison
from seamark.spark.reference_tables import changed_tables
from seamark.spark.row_digests import RowDigest

_UNRECORDED = (
    "nothing that is recorded explains it: filters and plain columns are not recorded, so the code "
    "may have changed there, or rows of a source"
)


def changes_since(decided: CheckpointManifest, identity: PipelineIdentity) -> tuple[str, ...]:
    """How a pipeline differs from the one that ran an epoch, in words.

    :class:`RefusedError` when it cannot run on the state that there was: with other operators, or
    with state of another shape. The number of partitions is that of the epoch in any case.
    """
    old = decided.structure
    structure = identity.structure
    if old is not None:
        require_readable(decided)
        structure = {**structure, "state_partitions": old.get("state_partitions")}
    same_spark = (decided.spark_version or "").split(".")[:2] == identity.spark_version.split(".")[
        :2
    ]
    check = compare_structures(old, structure, "warn", same_spark=same_spark)
    if check.fit is Compatibility.REFUSED:
        raise _refused(decided, check)
    told = [] if same_spark else [f"it ran on Spark {decided.spark_version or 'unknown'}"]
    return (*check.changes, *told, *changed_tables(decided.table_offsets, identity.tables))


def _refused(decided: CheckpointManifest, check: CompatibilityCheck) -> RefusedError:
    return RefusedError(
        f"epoch {decided.epoch} cannot be run again by this pipeline: it does not fit the state "
        "that there was",
        where="; ".join(check.changes),
        hint="Run it with the pipeline as it was then. Filters, columns and functions may be other "
        "ones; sources, stateful operators and the output mode may not.",
    )


def compared(
    recorded: RowDigest | None,
    replayed: RowDigest | None,
    *,
    changes: Sequence[str],
    sources: Sequence[str],
    unrepeatable: Sequence[str],
    is_new: bool = False,
) -> OutputComparison:
    """How an output came out, with what may explain a difference, the most likely first."""
    comparison = OutputComparison(recorded=recorded, replayed=replayed)
    if comparison.agreement is Agreement.EQUAL:
        return comparison
    if comparison.agreement is Agreement.NOT_COMPARED:
        if replayed is None:
            reason = "its columns have no digest"
        elif is_new:
            reason = "the pipeline had no such output then"
        else:
            reason = "the checkpoint has no digest of it: nothing to compare with"
        return replace(comparison, reasons=(reason, *sources))
    changed = [f"the pipeline has changed: {text}" for text in changes]
    reasons = [*sources, *changed, *unrepeatable]
    return replace(comparison, reasons=tuple(reasons or [_UNRECORDED]))
