"""Reference tables: what a stream is joined with that is not a stream.

Tests: ``tests/pipeline/test_changed_pipelines.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError

from seamark._redaction import redacted
from seamark.manifest import ConnectorCheckpoint


def table_versions(plan: Any) -> dict[str, ConnectorCheckpoint]:
    """What each file-based table below a plan consists of, by the last part of its path.

    Spark lists a table's files when it is read and keeps that list for the whole run, so the
    version holds for every epoch of it. Tables of other kinds have no version.
    """
    versions: dict[str, ConnectorCheckpoint] = {}
    for roots, files in _file_relations(plan):
        base = roots[0].rstrip("/").rsplit("/", 1)[-1] if roots else "table"
        name = base
        while name in versions and versions[name].metadata["path"] != redacted(", ".join(roots)):
            name += "+"
        digest = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
        versions[name] = ConnectorCheckpoint(
            offsets={"files": str(len(files)), "listing_sha256": digest},
            metadata={"path": redacted(", ".join(roots))},
        )
    return versions


def _file_relations(plan: Any) -> Iterator[tuple[list[str], list[str]]]:
    """(root paths, files) of each static table that is made of files."""
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.isStreaming() or leaf.getClass().getSimpleName() != "LogicalRelation":
            continue
        try:
            location = leaf.relation().location()
            roots = location.rootPaths().iterator()
            paths = []
            while roots.hasNext():
                paths.append(str(roots.next().toString()))
            yield paths, [str(file) for file in location.inputFiles()]
        except Py4JError:
            continue  # a relation of another kind, a database table for one
