"""Which Delta tables this sink can write to, and by which name it refuses the others.

Executors write the files, so nothing may be demanded of the rows that only an engine of Delta's own
computes or checks.

Tests: ``tests/sinks/test_delta_features.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import RefusedError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HARMLESS: Final = frozenset(
    (
        *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "columnMapping"),
        *("changeDataFeed", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType"),
    )
)
"""Features that cost nothing until a table uses them; what uses them is looked at by itself."""

_NAMES: Final = {
    "rowTracking": "row tracking",
    "identityColumns": "identity columns",
    "inCommitTimestamp": "in-commit timestamps",
    "clustering": "liquid clustering",
    "typeWidening": "type widening",
    "allowColumnDefaults": "column defaults",
    "domainMetadata": "domain metadata",
    "icebergCompatV1": "Iceberg compatibility",
    "icebergCompatV2": "Iceberg compatibility",
}
_WITH_FEATURES: Final = 7
_WITH_IDENTITY: Final = 6


@dataclass(frozen=True)
class TableFacts:
    """What a table demands of its writers."""

    writer_version: int
    features: frozenset[str]
    configuration: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]

    def is_set(self, name: str) -> bool:
        """Whether a property of the table is true."""
        return self.configuration.get(name, "").lower() == "true"

    @property
    def is_append_only(self) -> bool:
        return self.is_set("delta.appendOnly")

    @property
    def has_deletion_vectors(self) -> bool:
        return "deletionVectors" in self.features


def facts_of(table: DeltaTable) -> TableFacts:
    """What the table demands."""
    import json

    protocol = table.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    fields = json.loads(table.schema().to_json())["fields"]
    configuration = {k: v for k, v in table.metadata().configuration.items() if v is not None}
    return TableFacts(protocol.min_writer_version, frozenset(features), configuration, fields)


def refuse_features(facts: TableFacts, mode: str, where: str) -> None:
    """:class:`RefusedError` that names what stands in the way. Pure."""
    for reason in _reasons(facts, mode):
        raise RefusedError(
            f"this Delta table cannot be written to in mode {mode!r}: it has {reason}",
            where=where,
            hint="Write to a table without it, and have an engine that knows it copy the rows.",
        )


def _reasons(facts: TableFacts, mode: str) -> Iterator[str]:
    if facts.writer_version > _WITH_FEATURES:
        yield f"writer version {facts.writer_version}, which is not known"
    mapping = facts.configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        yield f"column mapping (by {mapping})"
    if facts.is_set("delta.enableRowTracking"):
        yield "row tracking"
    for name in facts.configuration:
        if name.startswith("delta.constraints."):
            yield f"the constraint {name.removeprefix('delta.constraints.')!r}"
    for path, field in _all_fields(facts.fields):
        yield from _column_reasons(path, field.get("metadata") or {})
    for feature in sorted(facts.features - _HARMLESS, key=lambda f: (f == "domainMetadata", f)):
        yield f"{_NAMES.get(feature, 'a feature that is not known')} ({feature})"
    if facts.writer_version == _WITH_IDENTITY:
        yield f"writer version {_WITH_IDENTITY}, so it may have identity columns"
    if mode != "append":
        yield from _reasons_to_keep_rows(facts, mode)


def _reasons_to_keep_rows(facts: TableFacts, mode: str) -> Iterator[str]:
    if facts.is_append_only:
        yield "delta.appendOnly"
    if facts.has_deletion_vectors:
        yield "deletion vectors"
    if mode == "upsert" and facts.is_set("delta.enableChangeDataFeed"):
        yield "a change data feed"


def _column_reasons(path: str, metadata: Mapping[str, Any]) -> Iterator[str]:
    if "delta.generationExpression" in metadata:
        yield f"the generated column {path!r}"
    if any(name.startswith("delta.identity.") for name in metadata):
        yield f"the identity column {path!r}"
    if "delta.invariants" in metadata:
        yield f"an invariant on the column {path!r}"
    if "__CHAR_VARCHAR_TYPE_STRING" in metadata:
        yield f"the column {path!r} of type {metadata['__CHAR_VARCHAR_TYPE_STRING']}"


def _all_fields(
    fields: Sequence[Mapping[str, Any]], above: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in fields:
        path = f"{above}{field['name']}"
        yield path, field
        yield from _nested(field.get("type"), path)


def _nested(kind: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(kind, Mapping):
        return
    yield from _all_fields(kind.get("fields", ()), f"{path}.")
    for part in ("elementType", "keyType", "valueType"):
        yield from _nested(kind.get(part), f"{path}.{part.removesuffix('Type')}")
