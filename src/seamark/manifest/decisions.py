"""What never changes once a checkpoint is decided, as one digest; and the chain of such digests.

Each checkpoint has its own digest (``decision``) and that of its parent (``parent_decision``). Who
edits a manifest afterwards can make its own checksums fit, but not those of what was decided after
it. Statuses of sinks, timings and what to read are recorded later and are not part of it.

Tests: ``tests/manifest/test_decisions.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from seamark.manifest.checkpoint_manifest import NAMED_FIELDS, CheckpointManifest
from seamark.manifest.facts import FACTS

_VERSION: Final = "1"
_NAMED: Final = sorted(NAMED_FIELDS - {"sink_commit_statuses", "sink_epochs", "size_bytes"})
DECIDED_FACTS: Final = frozenset(FACTS) - {
    "self_checksum",
    "decision",
    "state_object",  # a copy elsewhere gives it another name
    "timings",
    "read_points",
    "late_read_points",
}
"""Seamark's own fields that are as they were decided. One that is new here needs a new version."""


def decision_of(manifest: CheckpointManifest) -> str:
    """The digest of a checkpoint's decision, with the version of what it is made of.

    It is the same wherever the checkpoint is kept.
    """
    decided = {name: getattr(manifest, name) for name in _NAMED}
    facts = {name: manifest.extra[name] for name in DECIDED_FACTS & manifest.extra.keys()}
    data = msgspec.json.encode([decided, facts], order="deterministic")
    return f"{_VERSION}-{hashlib.sha256(data).hexdigest()}"


def with_decision(
    manifest: CheckpointManifest, parent: CheckpointManifest | None
) -> CheckpointManifest:
    """The manifest with the digest of what it decides, chained to its parent's."""
    linked = manifest.replace(
        decision=None, parent_decision=parent.decision if parent is not None else None
    )
    # as it will be read: what was given may hold tuples, or numbers as keys
    return linked.replace(decision=decision_of(CheckpointManifest.from_json(linked.to_json())))


class Link(NamedTuple):
    """What a checkpoint says about itself and its parent, for as long as a chain is looked at."""

    parent_id: int | None
    decision: str | None
    parent_decision: str | None
    is_changed: bool
    """Whether it is not what its own digest says."""


def link_of(manifest: CheckpointManifest) -> Link:
    """The link of the chain that a checkpoint is."""
    decision = manifest.decision
    is_changed = _is_known(decision) and decision_of(manifest) != decision
    return Link(manifest.parent_id, decision, manifest.parent_decision, is_changed)


def chain_findings(links: Mapping[int, Link]) -> dict[int, str]:
    """What was changed after it was decided, by id, as far as these checkpoints prove it.

    A checkpoint without a digest was written by an earlier version, and one whose parent is not
    there any more begins a chain: neither is a finding. Nor is the digest of a newer version.
    """
    findings: dict[int, str] = {}
    for checkpoint_id, link in sorted(links.items()):
        if link.is_changed:
            findings[checkpoint_id] = "it was changed after it was decided"
            continue
        parent = links.get(link.parent_id or 0)
        if parent is None or not _is_known(link.parent_decision):
            continue
        if parent.decision != link.parent_decision:
            findings.setdefault(
                link.parent_id or 0,
                "it is not the one that was decided: "
                f"checkpoint {checkpoint_id}, which follows it, knows another one",
            )
    return findings


def edits_of(chain: Iterable[CheckpointManifest]) -> list[str]:
    """Which checkpoints of a chain are not those that were decided, in words."""
    links = {manifest.checkpoint_id: link_of(manifest) for manifest in chain}
    return [
        f"checkpoint {checkpoint_id}, which this start builds on, was edited: {finding}. "
        "'seamark verify' tells more"
        for checkpoint_id, finding in chain_findings(links).items()
    ]


def _is_known(decision: str | None) -> bool:
    """Whether this Seamark knows what the digest is made of."""
    return decision is not None and decision.startswith(f"{_VERSION}-")
