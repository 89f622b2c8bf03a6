"""What a pipeline is, as a structure that can be compared with what it was.

Made of names, formats, targets, columns and options that are known to be harmless. Settings that
only say how fast something runs are not part of it, and nothing secret is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from seamark.pipeline.compile import Compiled
from seamark.progress.config_hashing import explain_change
from seamark.spark.plan import SourceInfo

Policy = Literal["strict", "warn", "auto_reset"]
Structure = dict[str, Any]


def structure_of(
    name: str,
    output_mode: str,
    sources: Mapping[str, SourceInfo],
    compiled: Compiled,
    state_partitions: int,
) -> Structure:
    """The structure of a compiled pipeline."""
    read = dict.fromkeys(compiled.leaves)
    return {
        "name": name,
        "output_mode": output_mode,
        "state_partitions": state_partitions if compiled.is_stateful else 0,
        "sources": {
            source: {"format": sources[source].format, "options": sources[source].options}
            for source in read
        },
        "sinks": {
            output.name: {
                "kind": described.kind,
                "target": described.target,
                "options": dict(described.options),
                "columns": [[f.name, f.dataType.simpleString()] for f in output.df.schema.fields],
            }
            for output in compiled.outputs
            for described in [output.sink.describe()]
        },
        "operators": list(compiled.operators),
    }


class Fit(Enum):
    """How a pipeline fits the checkpoint that it is to go on from."""

    SAME = "same"
    GOES_ON = "goes on"
    REFUSED = "refused"
    RESET = "reset"


@dataclass(frozen=True)
class Verdict:
    """What follows from comparing two structures."""

    fit: Fit
    changes: list[str] = field(default_factory=list)
    hint: str = ""


def compare(old: Structure | None, new: Structure, policy: Policy) -> Verdict:
    """Whether a pipeline may go on from a checkpoint of structure ``old``. Pure.

    A sink may be added. What else differs is refused by ``strict``; ``warn`` lets everything pass
    that Spark can go on with, and ``auto_reset`` starts anew.
    """
    if old is None or old == new:
        return Verdict(Fit.SAME)
    changes = explain_change(old, new)
    impossible = _impossible(old, new)
    if not impossible and _only_added_sinks(old, new):
        return Verdict(Fit.GOES_ON, changes)
    if policy == "auto_reset":
        return Verdict(Fit.RESET, changes)
    if impossible:
        return Verdict(Fit.REFUSED, changes, hint=f"{impossible} {_WAYS_OUT}")
    if policy == "warn":
        return Verdict(Fit.GOES_ON, changes)
    return Verdict(
        Fit.REFUSED,
        changes,
        hint="Undo the change, or accept it once with policy='warn', or start anew with "
        "policy='auto_reset' (sinks take back what they have shown and every row is read again).",
    )


_WAYS_OUT = (
    "Undo the change, or give the changed pipeline a store of its own, or start anew with "
    "policy='auto_reset'."
)


def _impossible(old: Structure, new: Structure) -> str:
    """Why Spark cannot go on at all, or the empty text."""
    if set(old["sources"]) != set(new["sources"]):
        return "Spark cannot add or remove a source of a checkpoint."
    if old["operators"] != new["operators"]:
        return (
            "State belongs to the operators that made it, and Spark tells them apart by the order "
            "in which their sinks are declared."
        )
    if old["state_partitions"] != new["state_partitions"]:
        return (
            f"State is kept in {old['state_partitions']} partitions "
            f"(spark.sql.shuffle.partitions), and Spark cannot change that on the way."
        )
    if old["output_mode"] != new["output_mode"]:
        return "The output mode decides what the state holds."
    return ""


def _only_added_sinks(old: Structure, new: Structure) -> bool:
    kept = {name: new["sinks"].get(name) for name in old["sinks"]}
    return {**new, "sinks": kept} == old
