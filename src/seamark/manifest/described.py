"""What the structure in a manifest says about sinks and sources, whoever wrote it.

Tests: ``tests/manifest/test_described.py``.
"""

from __future__ import annotations

from typing import Any, Literal

from seamark.manifest.checkpoint_manifest import CheckpointManifest


def described(
    manifest: CheckpointManifest, part: Literal["sinks", "sources"]
) -> dict[str, dict[str, Any]]:
    """Each of them by its name. What is not described by an object is left out."""
    members = (manifest.structure or {}).get(part)
    if not isinstance(members, dict):
        return {}
    return {name: about for name, about in members.items() if isinstance(about, dict)}


def description_of(
    manifest: CheckpointManifest, part: Literal["sinks", "sources"], name: str
) -> dict[str, Any] | None:
    """One of them, at the same cost however many there are; None when it is not described."""
    members = (manifest.structure or {}).get(part)
    about = members.get(name) if isinstance(members, dict) else None
    return about if isinstance(about, dict) else None


def sinks_of(manifest: CheckpointManifest) -> list[str]:
    """The names of its sinks in their order, each once: a list in a document may repeat some."""
    return list(dict.fromkeys(manifest.sink_names))


def is_first_of_fork(manifest: CheckpointManifest) -> bool:
    """Whether it is the checkpoint that a fork begins with, before any epoch of its own."""
    return manifest.fork is not None and "name" not in (manifest.structure or {"name": ""})
