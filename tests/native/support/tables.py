"""Logs of tables as Delta Lake and Iceberg write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

QUERY: Final = "00000000-0000-0000-0000-000000000001"

Commits = Sequence[tuple[str, int] | None]
"""For each commit the query and its batch, or None for a commit of something else."""


def delta_table(root: Path, commits: Commits) -> list[int]:
    """Its versions."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    for number, commit in enumerate(commits):
        actions: list[object] = [{"commitInfo": {"operation": "STREAMING UPDATE"}}]
        if commit is not None:
            app, version = commit
            actions.append({"txn": {"appId": app, "version": version, "lastUpdated": 1}})
        actions.append({"add": {"path": f"{number}.parquet", "size": 1, "dataChange": True}})
        text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
        (log / f"{number:020}.json").write_text(f"{text}\n")
    return list(range(len(commits)))


def iceberg_table(
    root: Path, commits: Commits, *, expired: int = 0, current: int | None = None
) -> list[int]:
    """Its snapshots; the first ones may have expired."""
    metadata = iceberg_metadata(commits)
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    metadata["current-snapshot-id"] = ids[-1 if current is None else current]
    metadata["snapshots"] = metadata["snapshots"][expired:]
    folder = root / "metadata"
    folder.mkdir(parents=True)
    (folder / "v3.metadata.json").write_text(json.dumps(metadata))
    return ids


def iceberg_metadata(commits: Commits) -> dict[str, Any]:
    """What a metadata file says, as far as it matters here."""
    ids = [8_000_000_000_000_000_000 + number for number in range(len(commits))]
    snapshots = []
    for number, commit in enumerate(commits):
        summary = {"operation": "append"}
        if commit is not None:
            summary["spark.sql.streaming.queryId"] = commit[0]
            summary["spark.sql.streaming.epochId"] = str(commit[1])
        snapshot = {"snapshot-id": ids[number], "timestamp-ms": number, "summary": summary}
        if number:
            snapshot["parent-snapshot-id"] = ids[number - 1]
        snapshots.append(snapshot)
    return {"format-version": 2, "current-snapshot-id": ids[-1], "snapshots": snapshots}
