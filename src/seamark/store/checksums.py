"""The three rules by which a manifest's ``state_checksum`` covers inline and external state."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from seamark.manifest import CheckpointManifest


class ChecksumRule(StrEnum):
    """What a ``state_checksum`` was computed over."""

    EXTERNAL = "external"
    """the bytes of the sidecar"""
    INLINE = "inline"
    """names and base64 texts of the inline operators"""
    MIXED = "mixed"
    """the hexadecimal inline hash, then the bytes of the sidecar"""


def rule_for(manifest: CheckpointManifest, has_sidecar: bool) -> ChecksumRule | None:
    """The rule that we write by; None when there is no state at all."""
    if has_sidecar:
        return ChecksumRule.MIXED if manifest.has_inline_state else ChecksumRule.EXTERNAL
    return ChecksumRule.INLINE if manifest.has_inline_state else None


def inline_checksum(manifest: CheckpointManifest) -> str:
    """SHA-256 over ``name NUL base64 NUL`` of each inline operator, names in byte order."""
    hasher = hashlib.sha256()
    states = manifest.operator_states
    for name in sorted((n for n, op in states.items() if not op.external), key=str.encode):
        hasher.update(b"%b\x00%b\x00" % (name.encode(), (states[name].state_b64 or "").encode()))
    return hasher.hexdigest()


def sidecar_hasher(manifest: CheckpointManifest, rule: ChecksumRule) -> hashlib._Hash:
    """A hasher that gives the checksum once the sidecar's bytes were fed to it."""
    if rule is ChecksumRule.MIXED:
        return hashlib.sha256(inline_checksum(manifest).encode())
    return hashlib.sha256()
