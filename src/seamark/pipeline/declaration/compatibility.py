"""Whether a pipeline may go on from what its store holds. Changes nothing, claims nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from seamark._common.retry import TRIES
from seamark.errors import PositionUnavailable, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.computed_changes import (
    NAME_THEM,
    ComputedChange,
    computed_changes,
    not_told_apart,
    rewired,
    shape_change,
    undescribed,
)
from seamark.pipeline.declaration.fork_origin import with_places
from seamark.pipeline.declaration.operator_matching import Fate, UpgradeRow
from seamark.pipeline.declaration.recorded_structure import require_readable
from seamark.pipeline.declaration.rescaling import refused_partitions, with_other_partitions
from seamark.pipeline.declaration.settings import Policy
from seamark.pipeline.declaration.source_positions import (
    check_positions,
    lost_error,
    require_topics,
)
from seamark.pipeline.declaration.structure import PipelineIdentity, Structure
from seamark.pipeline.declaration.structure_parts import StructureParts
from seamark.pipeline.declaration.target_names import sink_as_recorded, target_names
from seamark.pipeline.declaration.upgrade_plan import (
    UpgradeOptions,
    UpgradePlan,
    joined_with_itself,
    plan_upgrade,
)
from seamark.progress.configuration import explain_change
from seamark.progress.policy import Action, as_policy, outcome_of_change
from seamark.spark.plans.lossy_options import losses_changed
from seamark.spark.plans.parsing_options import parsing_changed, recorded_as
from seamark.spark.plans.value_settings import SETTINGS, settings_changed
from seamark.spark.reference_tables import changed_tables
from seamark.spark.source_gaps import Anchor, Gap, planned_texts
from seamark.store import CheckpointStore
from seamark.store.inspection import newest_checkpoint


class Compatibility(Enum):
    """How a pipeline fits the checkpoint that it would go on from."""

    SAME = "same"
    GOES_ON = "goes on"
    EVOLVES = "evolves"
    REFUSED = "refused"
    RESET = "reset"


@dataclass(frozen=True)
class CompatibilityCheck:
    """What follows from comparing two structures."""

    fit: Compatibility
    changes: list[str] = field(default_factory=list)
    hint: str = ""
    what: str = "the pipeline is not the one that this store's checkpoints were made by"
    """What a refusal says first."""
    gone: PositionUnavailable | None = None
    """The error when a source no longer has what comes next."""
    gaps: tuple[Gap, ...] = ()
    """Positions that the start moves because their rows are gone, and records."""
    upgrade: UpgradePlan | None = None
    """What becomes of every part, when the pipeline has changed and the policy is ``evolve``."""


def check_store(
    store: CheckpointStore,
    identity: PipelineIdentity,
    policy: Policy,
    reanchor: Mapping[str, Anchor] | None = None,
    upgrade: UpgradeOptions | None = None,
) -> CompatibilityCheck:
    """Compare a pipeline with the newest checkpoint that can be read.

    One that runs may read on meanwhile: rows are only gone if they come next after a checkpoint
    that is still the newest one.
    """
    owner = store.owner()
    if owner.pipeline is not None and owner.pipeline != identity.name:
        raise RefusedError(
            f"this store belongs to the pipeline {owner.pipeline!r}, not {identity.name!r}",
            where=store.url,
            hint="Give each pipeline a store of its own.",
        )
    for _ in range(TRIES):
        newest = newest_checkpoint(store)
        target_names(newest, identity.structure["sinks"], upgrade.renames if upgrade else None)
        check = check_checkpoint(newest, identity, policy, reanchor, upgrade)
        if not (check.gone or check.gaps) or newest_checkpoint(store) == newest:
            break
    if check.upgrade is not None and newest is not None and check.fit is Compatibility.EVOLVES:
        plan = refused_partitions(check.upgrade, store, newest)
        check = as_check(plan) if plan.refused else check
    if check.fit is not Compatibility.REFUSED:
        require_topics(identity)
    return check


def check_checkpoint(
    checkpoint: CheckpointManifest | None,
    identity: PipelineIdentity,
    policy: Policy,
    reanchor: Mapping[str, Anchor] | None = None,
    upgrade: UpgradeOptions | None = None,
) -> CompatibilityCheck:
    """Compare a pipeline with the checkpoint that it would go on from."""
    unclear = not_told_apart(identity.structure.get("computes") or {})
    if unclear and policy in ("strict", "evolve"):  # also while there is no state to lose
        what = "which state belongs to which operator would not be known"
        return CompatibilityCheck(Compatibility.REFUSED, unclear, NAME_THEM, what)
    if checkpoint is None:
        return compare_structures(None, identity.structure, policy)
    checkpoint = with_places(checkpoint, identity.structure)
    evolves = policy == "evolve"
    policy = "strict" if evolves else policy  # whatever it does not make fit is refused
    made_by = checkpoint.spark_version or ""
    same_spark = made_by.split(".")[:2] == identity.spark_version.split(".")[:2]
    old = checkpoint.structure
    if old != identity.structure:
        require_readable(checkpoint)
    check = compare_structures(old, identity.structure, policy, same_spark=same_spark)
    if check.fit is Compatibility.REFUSED and old is not None and policy == "strict":
        plan = upgrade_of(checkpoint, identity, upgrade, same_spark=same_spark)
        check = as_check(plan) if evolves else _with_the_way_on(check, plan)
    if check.fit in (Compatibility.REFUSED, Compatibility.RESET):
        return check
    positions = check_positions(checkpoint, identity, policy, reanchor or {})
    gone = positions.gone
    if positions.lost:
        gone = lost_error(checkpoint, positions.lost)
    if gone is not None:
        refused = _decided(policy, [*check.changes, gone.what], hint="", acceptable=False)
        return replace(refused, gone=gone)
    told = [
        *planned_texts(positions.gaps),
        *changed_tables(checkpoint.table_offsets, identity.tables),
        *identity.other_places(checkpoint.source_ids or {}),
    ]
    if not told:
        return check
    fit = Compatibility.EVOLVES if check.upgrade is not None else Compatibility.GOES_ON
    return replace(check, fit=fit, changes=[*check.changes, *told], gaps=positions.gaps)


def upgrade_of(
    checkpoint: CheckpointManifest,
    identity: PipelineIdentity,
    options: UpgradeOptions | None = None,
    *,
    same_spark: bool = True,
) -> UpgradePlan:
    """What becomes of every part when a changed pipeline goes on from a checkpoint."""
    structure = identity.structure
    plan = plan_upgrade(checkpoint.structure or {}, structure, options, same_spark=same_spark)
    plan = with_other_partitions(plan, checkpoint, structure, identity.spark_version)
    rows = list(plan.rows)
    rows += map(joined_with_itself, identity.read_apart)
    for name, status in checkpoint.sink_commit_statuses.items():
        if name not in plan.sinks.values() and not status.is_committed:
            rows.append(
                UpgradeRow(
                    "sink",
                    name,
                    Fate.REFUSED,
                    f"it does not show epoch {checkpoint.epoch} yet, which is decided",
                    "Start once with the pipeline as it was.",
                )
            )
    return replace(plan, rows=tuple(rows))


def as_check(plan: UpgradePlan) -> CompatibilityCheck:
    """What follows from a plan under ``evolve``."""
    if refused := plan.refused:
        return CompatibilityCheck(
            Compatibility.REFUSED,
            [row.text for row in refused],
            " ".join(dict.fromkeys(row.hint for row in refused if row.hint)) or _WAYS_OUT,
            upgrade=plan,
        )
    return CompatibilityCheck(
        Compatibility.EVOLVES, [row.text for row in plan.changes], upgrade=plan
    )


def _with_the_way_on(check: CompatibilityCheck, plan: UpgradePlan) -> CompatibilityCheck:
    """A refusal that names the policy with which the pipeline could go on."""
    if plan.refused:
        return check
    kept = "what stayed the same keeps its state" if plan.origins else "every source goes on"
    return replace(check, hint=f"policy='evolve' makes the change: {kept}. {check.hint}")


def _decided(
    policy: Policy, changes: list[str], *, hint: str, acceptable: bool = True
) -> CompatibilityCheck:
    """What the policy makes of changes that matter; ``hint`` is for one that refuses them."""
    action = outcome_of_change(as_policy(policy), acceptable=acceptable)
    if action is Action.REFUSE:
        return CompatibilityCheck(Compatibility.REFUSED, changes, hint)
    return CompatibilityCheck(
        Compatibility.RESET if action is Action.RESET else Compatibility.GOES_ON, changes
    )


def refuse_if_incompatible(store: CheckpointStore, check: CompatibilityCheck) -> None:
    """Raise when the pipeline may not go on."""
    if check.fit is Compatibility.REFUSED and check.gone is not None:
        raise check.gone
    if check.fit is Compatibility.REFUSED:
        raise RefusedError(
            check.what,
            where=f"{store.url}: {'; '.join(check.changes)}.",
            hint=check.hint,
        )


def compare_structures(
    old: Structure | None, new: Structure, policy: Policy, *, same_spark: bool = True
) -> CompatibilityCheck:
    """Whether a pipeline may go on from a checkpoint of structure ``old``. Pure.

    ``old`` is one that :func:`require_readable` has let pass. A sink may be added. What else
    differs is refused by ``strict``; ``warn`` lets everything pass that Spark can go on with, and
    ``auto_reset`` starts over. When another Spark described the old computations, a difference in
    the wording of an expression is reported and refuses nothing.
    """
    if old is None:
        return CompatibilityCheck(Compatibility.SAME)
    new = {**new, "sinks": _sinks_as_recorded(new.get("sinks", {}), old.get("sinks", {}))}
    if old == _as_recorded(new, old):
        return CompatibilityCheck(Compatibility.SAME)
    before, after = StructureParts(old), StructureParts(new)
    topology = explain_change(before.topology, after.topology)
    computed = [
        *_computed(before, after),
        *_moved(before, after),
        *rewired(before.reads, after.reads),
    ]
    recorded = before.form is not None
    lost, regained = losses_changed(before.may_lose, after.may_lose) if recorded else ([], [])
    parsed = parsing_changed(before.parsing, after.parsing)
    changes = [*topology, *(change.text for change in computed), *parsed, *lost, *regained]
    changes += [*settings_changed(before.settings, after.settings), *_unrecorded(before, after)]
    impossible = _impossible(before, after)
    if not (impossible or lost or parsed) and _only_added_sinks(before.topology, after.topology):
        serious = [
            change
            for change in computed
            if (same_spark or change.is_certain) and not change.is_only_told
        ]
        if not serious:
            return CompatibilityCheck(Compatibility.GOES_ON, changes)
    if impossible:
        return _decided(policy, changes, hint=f"{impossible} {_WAYS_OUT}", acceptable=False)
    return _decided(
        policy,
        changes,
        hint="Undo the change, or accept it once with policy='warn', or start over with "
        "policy='auto_reset' (sinks take back what they have shown and every row is read again)."
        + (_MIXED if computed else ""),
    )


def _as_recorded(new: Structure, old: Structure) -> Structure:
    """A structure without what the older one does not record."""
    since = ("reads", "shares", SETTINGS)
    kept = {key: value for key, value in new.items() if key not in since or key in old}
    return kept | {"sources": recorded_as(new.get("sources", {}), old.get("sources", {}))}


def _sinks_as_recorded(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sink_as_recorded(sink, old.get(name, sink)) for name, sink in new.items()}


def _computed(old: StructureParts, new: StructureParts) -> list[ComputedChange]:
    if old.form != new.form:
        return []
    kept = old.topology["sinks"].keys() & new.topology["sinks"].keys()
    return computed_changes(
        {name: operators for name, operators in old.computes.items() if name in kept},
        {name: operators for name, operators in new.computes.items() if name in kept},
    )


def _moved(old: StructureParts, new: StructureParts) -> list[ComputedChange]:
    """Outputs that take their rows from the state of another one than before."""
    if old.shares is None or new.shares is None:
        return []  # not recorded by the Seamark that made the checkpoint
    kept = old.topology["sinks"].keys() & new.topology["sinks"].keys()
    return [
        ComputedChange(f"output {name!r}: {_shared(before)} → {_shared(after)}", is_certain=True)
        for name in sorted(kept)
        if (before := old.shares.get(name)) != (after := new.shares.get(name))
    ]


def _shared(first: object) -> str:
    return "no shared state" if first is None else f"the state of {str(first)!r}"


def _unrecorded(old: StructureParts, new: StructureParts) -> list[str]:
    if old.form == new.form:
        return undescribed(old.computes, new.computes)
    if not (new.computes or any(new.may_lose.values())):
        return []
    return [
        "the checkpoint does not say what its operators compute (another Seamark made it): a "
        "changed window, delay, function or condition would not be noticed; from the next epoch "
        "on it is recorded"
    ]


_MIXED = (
    " The state in the checkpoint was made by the old computation: with 'warn', results of both "
    "are mixed until it has left the state."
)
_WAYS_OUT = (
    "Undo the change, or give the changed pipeline a store of its own, or start over with "
    "policy='auto_reset'."
)


def _impossible(before: StructureParts, after: StructureParts) -> str:
    """Why Spark cannot go on at all, or the empty text."""
    old, new = before.topology, after.topology
    if set(old["sources"]) != set(new["sources"]):
        return "Spark cannot add or remove a source of a checkpoint."
    if old["operators"] != new["operators"]:
        return (
            "State belongs to the operators that made it, and Spark tells them apart by the order "
            "in which their sinks are declared." + _as_it_was_shared(old, new)
        )
    if old["state_partitions"] != new["state_partitions"]:
        kept = f"{old['state_partitions']} partitions (spark.sql.shuffle.partitions)"
        return f"State is kept in {kept}, and Spark cannot change that on the way."
    if old["output_mode"] != new["output_mode"]:
        return "The output mode decides what the state holds."
    if before.form == after.form and (shape := shape_change(before.computes, after.computes)):
        return f"Spark cannot load state of another shape ({shape})."
    return ""


def _as_it_was_shared(old: Structure, new: Structure) -> str:
    """The way out when only the sharing of state differs, or the empty text."""
    if set(new["operators"]) < set(old["operators"]):
        return (
            " If this checkpoint was made with a copy of the state for each sink, go on with "
            "Pipeline(share_state=False)."
        )
    if set(new["operators"]) > set(old["operators"]):
        return (
            " If this checkpoint was made with one state for several sinks, go on with "
            "Pipeline(share_state=True), the default."
        )
    return ""


def _only_added_sinks(old: Structure, new: Structure) -> bool:
    kept = {name: new["sinks"].get(name) for name in old["sinks"]}
    return {**new, "sinks": kept} == old
