"""What looks wrong in a manifest, as far as the document alone shows.

Tests: ``tests/manifest/test_checkpoint_manifest.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from seamark._common.checks import unsafe_name, unsafe_path
from seamark.errors import DamageError
from seamark.limits import LARGEST_GENERATION
from seamark.manifest.facts import FACTS, is_object_name

if TYPE_CHECKING:
    from seamark.manifest.checkpoint_manifest import CheckpointManifest


def manifest_findings(manifest: CheckpointManifest, expected_vnode_count: int | None) -> list[str]:
    """All findings, one sentence each; empty when nothing looks wrong."""
    return [
        *_missing_basics(manifest),
        *_topology(manifest),
        *_vnodes(manifest, expected_vnode_count),
        *_lineage(manifest),
        *_ranges(manifest),
        *unsafe_names(manifest),
        *wrong_facts(manifest, only_shown=False),
        *wrong_facts(manifest, only_shown=True),
    ]


def _missing_basics(m: CheckpointManifest) -> Iterator[str]:
    if m.version == 0:
        yield "manifest version is 0"
    if m.checkpoint_id == 0:
        yield "checkpoint_id is 0"
    if m.epoch == 0:
        yield "epoch is 0"
    if m.timestamp_ms == 0:
        yield "timestamp_ms is 0 (missing creation time)"


def _topology(m: CheckpointManifest) -> Iterator[str]:
    if m.sink_commit_statuses:
        for sink in m.sink_epochs:
            if sink not in m.sink_commit_statuses:
                yield f"sink '{sink}' has epoch but no commit status"
    if m.source_names:
        named = frozenset(m.source_names)
        for source in m.source_offsets:
            if source not in named:
                yield f"source_offsets contains '{source}' not in source_names"


def _vnodes(m: CheckpointManifest, expected: int | None) -> Iterator[str]:
    if m.vnode_count == 0:
        yield "vnode_count is 0 (missing or legacy checkpoint)"
    elif expected is not None and m.vnode_count != expected:
        yield (f"vnode_count mismatch: checkpoint has {m.vnode_count}, runtime expects {expected}")


def _lineage(m: CheckpointManifest) -> Iterator[str]:
    if m.is_incremental and m.parent_id is None:
        yield "incremental checkpoint has no parent_id"
    if m.parent_id is not None and m.parent_id >= m.checkpoint_id:
        yield f"parent_id {m.parent_id} is not older than checkpoint {m.checkpoint_id}"


def _ranges(m: CheckpointManifest) -> Iterator[str]:
    if m.state_bytes is None:
        return
    for name, op in m.operator_states.items():
        end = op.external_offset + op.external_length
        if op.external and end > m.state_bytes:
            yield (
                f"operator '{name}' refers to bytes {op.external_offset} to {end} "
                f"of a state of {m.state_bytes} bytes"
            )


def unrestorable(m: CheckpointManifest, state_bytes: int | None) -> Iterator[str]:
    """Why nothing can be restored from a manifest, given the length of its sidecar."""
    yield from wrong_facts(m, only_shown=False)
    if m.epoch == 0 or m.checkpoint_id == 0:
        yield "epoch or checkpoint_id is 0 - likely corrupted"
    if m.is_incremental and not 0 < (m.parent_id or 0) < m.checkpoint_id:
        yield "it is incremental without an older parent"
    yield from _odd_objects(m)
    yield from _overlaps(m)
    for name, op in m.operator_states.items():
        try:
            op.decode_inline()
        except DamageError as error:
            yield f"operator '{name}': {error.what}"
        end = op.external_offset + op.external_length
        if op.external and state_bytes is not None and end > state_bytes:
            yield f"operator '{name}' refers to bytes outside of the state"


def _odd_objects(m: CheckpointManifest) -> Iterator[str]:
    """Shared objects that cannot be, or that would be read several times."""
    names: set[str] = set()
    for shared in m.shared_objects:
        if not is_object_name(shared.name):
            yield f"it names {shared.name[:100]!r}, which cannot be a shared object"
            return
        if shared.name in names:
            yield f"it names the shared object {shared.name} twice"
            return
        names.add(shared.name)


def _overlaps(m: CheckpointManifest) -> Iterator[str]:
    """Bytes of the sidecar that would be read for several operators."""
    ranges = sorted(
        (op.external_offset, op.external_length, name)
        for name, op in m.operator_states.items()
        if op.external and op.external_length
    )
    for (offset, length, name), (following, _, other) in pairwise(ranges):
        if following < offset + length:
            yield f"operators {name!r} and {other!r} refer to the same bytes of the state"
            return


def unsafe_names(m: CheckpointManifest) -> Iterator[str]:
    """Names and paths that could lead out of their directory."""
    groups = {
        "source": {*m.source_names, *m.source_offsets, *m.source_watermarks},
        "sink": {*m.sink_names, *m.sink_epochs, *m.sink_commit_statuses},
        "table": set(m.table_offsets),
        "operator": {*m.operator_states, *m.inflight_data},
    }
    for what, names in groups.items():
        for name in sorted(names):
            if problem := unsafe_name(name):
                yield f"{what} name {name!r} {problem}"
    for what, path in (
        ("table_store_checkpoint_path", m.table_store_checkpoint_path),
        ("state_object", m.extra.get("state_object")),
    ):
        if path is None:
            continue
        problem = unsafe_path(path) if isinstance(path, str) else "is not a path"
        if problem:
            yield f"{what} {path!r} {problem}"


def wrong_generation(m: CheckpointManifest) -> str | None:
    """Why the generation is invalid. Checked first: it decides whether a manifest counts."""
    value = m.extra.get("generation")
    if value is None or (value.__class__ is int and 0 <= value <= LARGEST_GENERATION):
        return None
    return "its field 'generation' is not a number of a claim"


def wrong_facts(m: CheckpointManifest, *, only_shown: bool) -> Iterator[str]:
    """Fields of our own with a value of another type than Seamark writes.

    That is damage in a field that a restore uses. In one that is only shown it harms nothing.
    """
    for name, fact in FACTS.items():
        if fact.type_text and fact.is_only_shown is only_shown and fact.is_wrong_in(m):
            yield f"its field '{name}' is not {fact.type_text}"
