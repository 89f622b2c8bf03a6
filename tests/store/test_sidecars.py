"""The three checksum rules, against values that were computed elsewhere."""

from __future__ import annotations

import hashlib

import pytest

from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.store import open_store
from seamark.store.sidecars import checksum_prefix, inline_checksum

A = OperatorCheckpoint.inline(b"hello")
B = OperatorCheckpoint.inline(b"")
EXTERNAL = OperatorCheckpoint.in_sidecar(0, 7)

INLINE = "5012204fc7cadb3d1124bd346b101302489d46a7aa65f87c2e8df1900ade58b7"
MIXED = "f46d96e7ce78ffa453341dab0febc39dbc924a0f6f3ef19bcba574c94a713b3a"
SIDECAR_ALONE = "ac51336657e85a5f2b2bda83450e1aa06fcf43b2a11e611e97b892a4eb0b7f7f"


def manifest(**states: OperatorCheckpoint) -> CheckpointManifest:
    return CheckpointManifest.new(1, 1, operator_states=states)


def with_sidecar(m: CheckpointManifest, data: bytes) -> str:
    return hashlib.sha256(checksum_prefix(m) + data).hexdigest()


def test_inline_state() -> None:
    assert inline_checksum(manifest(a=A, b=B)) == INLINE
    with open_store("memory://") as store:
        assert store.save(manifest(a=A, b=B)).state_checksum == INLINE


def test_inline_state_does_not_depend_on_the_order_of_operators() -> None:
    assert inline_checksum(manifest(b=B, a=A)) == INLINE


def test_external_operators_are_not_part_of_the_inline_checksum() -> None:
    assert inline_checksum(manifest(a=A, b=B, c=EXTERNAL)) == INLINE


def test_mixed_state() -> None:
    assert with_sidecar(manifest(a=A, b=B, c=EXTERNAL), b"SIDECAR") == MIXED


def test_a_sidecar_beside_inline_operators_alone_is_mixed_too() -> None:
    assert with_sidecar(manifest(a=A, b=B), b"SIDECAR") == MIXED


def test_external_state() -> None:
    assert with_sidecar(manifest(c=EXTERNAL), b"SIDECAR") == SIDECAR_ALONE
    assert with_sidecar(manifest(), b"SIDECAR") == SIDECAR_ALONE


def test_no_state_has_no_checksum() -> None:
    with open_store("memory://") as store:
        assert store.save(manifest()).state_checksum is None
    assert checksum_prefix(manifest()) == checksum_prefix(manifest(c=EXTERNAL)) == b""


def test_names_are_sorted_by_their_bytes() -> None:
    # by code units of UTF-16, the second would come first
    first, second = "\uffee", "\U00010000"
    expected = inline_checksum(manifest(**{first: A, second: B}))
    assert inline_checksum(manifest(**{second: B, first: A})) == expected
    assert expected != inline_checksum(manifest(**{first: B, second: A}))


@pytest.mark.parametrize("name", ["Zeta", "naïve", "mv:peaks", ""])
def test_a_name_is_part_of_the_checksum(name: str) -> None:
    assert inline_checksum(manifest(**{name: A})) != inline_checksum(manifest(other=A))


def test_an_operator_without_any_state_counts_as_empty_text() -> None:
    assert inline_checksum(manifest(a=A, b=OperatorCheckpoint())) == INLINE
