"""The versions of tables that a plan joins streams with.

Spark fixes what a table consists of when it is read, so a version holds for every epoch of a run.

Tests: ``tests/spark/test_static_tables.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError

from seamark._redaction import redacted
from seamark.manifest import ConnectorCheckpoint
from seamark.spark.plans.hidden_parameters import asked
from seamark.spark.plans.trees import class_name, each

_OF_A_CONNECTOR: Final = ("DataSourceV2Relation", "DataSourceV2ScanRelation")


@dataclass(frozen=True)
class StaticPart:
    """A static table in a plan whose version can be told."""

    place: tuple[str, ...]
    """Its folders, or its name in a catalog."""
    version: ConnectorCheckpoint

    @property
    def folder(self) -> str:
        """What to call it when nobody gave it a name."""
        return self.place[0].rstrip("/").rsplit("/", 1)[-1] if self.place else "table"


def table_versions(
    plan: Any, names: Mapping[tuple[str, ...], str] | None = None
) -> dict[str, ConnectorCheckpoint]:
    """The version of each static table below a plan, by its name or that of its folder.

    Of a table that is made of files it is the list of those; of one whose connector knows versions
    (Iceberg does, since Spark 4.1) that version. Tables of other kinds have none.
    """
    versions: dict[str, ConnectorCheckpoint] = {}
    for part in static_parts(plan):
        name = (names or {}).get(part.place, part.folder)
        while name in versions and versions[name].metadata != part.version.metadata:
            name += "+"
        versions[name] = part.version
    return versions


def static_parts(plan: Any) -> Iterator[StaticPart]:
    """The static tables below a plan whose version can be told."""
    for leaf in each(plan.collectLeaves()):
        if leaf.isStreaming():
            continue
        try:
            if class_name(leaf) == "LogicalRelation":
                yield _of_files(leaf.relation().location())
            elif class_name(leaf) in _OF_A_CONNECTOR and (part := _of_connector(leaf.table())):
                yield part
        except Py4JError:
            continue  # a relation of another kind, a database table for one, or an older Spark


def place_of(leaf: Any) -> str:
    """Where the table is that a leaf reads; the empty text where that is not told, or in memory."""
    for tell in (_folders, _in_database, _in_catalog, _of_metastore):
        try:
            return redacted(tell(leaf))
        except Py4JError:
            continue  # a table of another kind
    return ""


def _folders(leaf: Any) -> str:
    return ", ".join(str(root.toString()) for root in each(leaf.relation().location().rootPaths()))


def _in_database(leaf: Any) -> str:
    return str(leaf.relation().jdbcOptions().tableOrQuery())


def _in_catalog(leaf: Any) -> str:
    return str(leaf.table().name())


def _of_metastore(leaf: Any) -> str:
    return str(leaf.tableMeta().identifier().unquotedString())


def identity_of(leaf: Any) -> Any:
    """The object that stays the same when Spark copies a leaf; None when it has no such object."""
    for member in ("relation", "table", "rdd"):
        if (known := asked(leaf, member)) is not None:
            return known
    rows = asked(leaf, "data")
    return None if rows is None or rows.isEmpty() else rows  # without rows all have the same one


def _of_files(location: Any) -> StaticPart:
    roots = tuple(str(root.toString()) for root in each(location.rootPaths()))
    files = sorted(str(file) for file in location.inputFiles())
    digest = hashlib.sha256("\n".join(files).encode()).hexdigest()
    version = ConnectorCheckpoint(
        offsets={"files": str(len(files)), "listing_sha256": digest},
        metadata={"path": redacted(", ".join(roots))},
    )
    return StaticPart(roots, version)


def _of_connector(table: Any) -> StaticPart | None:
    version = table.version()
    if version is None:
        return None
    name, table_id = str(table.name()), table.id()
    metadata = {"path": redacted(name)}
    if table_id is not None:
        metadata["table_id"] = str(table_id)
    return StaticPart((name,), ConnectorCheckpoint({"version": str(version)}, metadata=metadata))
