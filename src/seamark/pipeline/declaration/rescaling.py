"""What another number of state partitions means for each operator of a pipeline.

Spark pins the number with the first batch. An upgrade can change it: the state of every operator
with a key is rewritten. One without a key has all its rows in one partition and stays as it is.

Tests: ``tests/pipeline/test_rescaling.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from seamark.capture.checkpoint_contents import Chain
from seamark.checkpoint_dir.operators import MOST_PARTITIONS, StatefulOperator
from seamark.manifest import CheckpointManifest
from seamark.native.repartition_rules import OLDEST, impossible
from seamark.pipeline.declaration.operator_matching import (
    DescribedOperator,
    DescribedPipeline,
    Fate,
    UpgradeRow,
)
from seamark.pipeline.declaration.upgrade_plan import UpgradePlan
from seamark.spark.batch_log import SHUFFLE_PARTITIONS, log_text, parse_offsets
from seamark.store import CheckpointStore

_LIMIT: Final = "limit"
_AGGREGATION: Final = "aggregation"


def with_other_partitions(
    plan: UpgradePlan,
    checkpoint: CheckpointManifest,
    structure: Mapping[str, Any],
    spark_version: str,
) -> UpgradePlan:
    """The plan for a pipeline whose state may get another number of partitions. Pure."""
    had, wanted = checkpoint.state_partitions, int(structure["state_partitions"])
    if wanted in (0, had):
        return plan
    keyed = {
        operator.name
        for operator in DescribedPipeline(structure).operators
        if operator.number in plan.origins and not keeps_one_partition(operator)
    }
    rows = [
        _rescaled(row, f"{had} → {wanted} partitions")
        if row.what == "operator" and row.fate is Fate.CARRIED and row.name in keyed
        else row
        for row in plan.rows
    ]
    why = _why_not(had, wanted, spark_version) if keyed or plan.rewritten else ""
    if plan.rewritten:
        why = why or "an aggregation gets other functions; make one change after the other"
    if why:
        rows.insert(0, _refused(had, wanted, why))
    return replace(plan, rows=tuple(rows), partitions=wanted)


def keeps_one_partition(operator: DescribedOperator) -> bool:
    """Whether all rows of an operator are in one partition, however many there are."""
    is_grouped = operator.kind.startswith(_AGGREGATION)
    return operator.kind == _LIMIT or (is_grouped and operator.details.get("keys") == [])


def refused_partitions(
    plan: UpgradePlan, store: CheckpointStore, checkpoint: CheckpointManifest
) -> UpgradePlan:
    """The plan, with a refusal when the state in the checkpoint cannot be spread differently."""
    wanted = plan.partitions
    if wanted is None or not any(row.fate is Fate.RESCALED for row in plan.rows):
        return plan
    chain = Chain.load(store, checkpoint)
    path = f"offsets/{checkpoint.batch}"
    offsets = chain.small.get(path)
    if offsets is None:
        return plan  # who carries the plan out says what is wrong with the checkpoint
    conf = {str(k): str(v) for k, v in parse_offsets(log_text(path, offsets)).conf.items()}
    labels = (label.partition("-") for label in (chain.index.operators if chain.index else ()))
    carried = set(plan.origins.values())
    operators = [
        StatefulOperator(int(number), name, [], 0)
        for number, _, name in labels
        if int(number) in carried
    ]
    if (problem := impossible(conf, operators)) is None:
        return plan
    row = _refused(checkpoint.state_partitions, wanted, problem.why)
    return replace(plan, rows=(row, *plan.rows))


def _why_not(had: int, wanted: int, spark_version: str) -> str:
    version = tuple(int(part) for part in spark_version.split(".")[:2] if part.isdigit())
    if version < OLDEST:
        return (
            f"that needs Spark {OLDEST[0]}.{OLDEST[1]} or newer, and this is {spark_version or '?'}"
        )
    if max(had, wanted) > MOST_PARTITIONS:
        return f"no state has more than {MOST_PARTITIONS} partitions"
    return ""


def _rescaled(row: UpgradeRow, change: str) -> UpgradeRow:
    why = f"{change}; {row.why}" if row.why else change
    return replace(row, fate=Fate.RESCALED, why=why)


def _refused(had: int, wanted: int, why: str) -> UpgradeRow:
    return UpgradeRow(
        "pipeline",
        "state partitions",
        Fate.REFUSED,
        f"{had} → {wanted}: {why}",
        f"Set {SHUFFLE_PARTITIONS} to {had}.",
    )
