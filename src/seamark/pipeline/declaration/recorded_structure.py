"""The structure in a manifest, read with care: others may have written or damaged it.

Tests: ``tests/pipeline/test_compatibility.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.spark.plans.computation import FORM


class _Source(msgspec.Struct):
    format: str = ""
    options: dict[str, Any] = {}


class _Sink(msgspec.Struct):
    kind: str = ""
    target: str = ""
    options: dict[str, Any] = {}
    columns: list[tuple[str, str]] = []


class _Operator(msgspec.Struct):
    operator: str
    keys: list[str | dict[str, str]] = []
    functions: list[str] = []
    order: list[int] | None = None
    state: dict[str, str] = {}
    inputs: dict[str, str] = {}
    details: dict[str, str] = {}
    watermarks: list[str] = []
    computation: str = ""

    def __post_init__(self) -> None:
        if self.order is not None and len({*self.order}) < len(self.order):
            raise ValueError("a function comes twice in the order of the state")


class _Topology(msgspec.Struct):
    output_mode: str
    state_partitions: int
    sources: dict[str, _Source]
    sinks: dict[str, _Sink]
    operators: list[str]


class _Computations(msgspec.Struct):
    computes: dict[str, list[_Operator]] = {}
    shares: dict[str, str] | None = None
    reads: dict[str, list[str]] | None = None


def require_readable(checkpoint: CheckpointManifest) -> None:
    """:class:`DamageError` when what a checkpoint says about its pipeline cannot be compared."""
    structure = checkpoint.structure
    if structure is None:
        return
    try:
        msgspec.convert(structure, _Topology)
        if structure.get("form") == FORM:
            msgspec.convert(structure, _Computations)
    except msgspec.ValidationError as error:
        raise DamageError(
            f"checkpoint {checkpoint.checkpoint_id} does not say in a known way what its pipeline "
            "was",
            where=str(error),
            hint="Nothing was changed. Restore the store from a copy, or roll back to an earlier "
            "checkpoint.",
        ) from error
