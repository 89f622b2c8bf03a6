"""A file is found in its pack also when a changed pipeline has given it another path."""

from __future__ import annotations

from hashlib import sha256

import pytest

from seamark.capture.file_index import StoredFile
from seamark.capture.packed_files import entries_of
from seamark.errors import DamageError
from seamark.state.pack import PackBuilder, read_index


def pack(**contents: bytes) -> bytes:
    builder = PackBuilder()
    builder.add_all([*contents], [*contents.values()], compress=True)
    return b"".join(builder.finish())


def known(data: bytes) -> StoredFile:
    return StoredFile(len(data), sha256(data).digest())


def found(packed: bytes, **files: StoredFile) -> dict[str, str]:
    entries = entries_of(files, read_index(packed, len(packed)))
    return {path: entry.key for path, entry in entries}


def test_a_file_is_found_under_its_path_and_else_by_what_it_holds() -> None:
    packed = pack(a=b"one", b=b"two")
    assert found(packed, a=known(b"one"), moved=known(b"two")) == {"a": "a", "moved": "b"}


def test_operators_that_have_exchanged_their_places_each_get_their_own_bytes() -> None:
    packed = pack(a=b"one", b=b"two")
    assert found(packed, a=known(b"two"), b=known(b"one")) == {"a": "b", "b": "a"}


def test_one_file_may_be_restored_to_several_paths() -> None:
    assert found(pack(a=b"one"), x=known(b"one"), y=known(b"one")) == {"x": "a", "y": "a"}


def test_bytes_that_the_pack_does_not_hold_are_damage_under_whatever_path() -> None:
    for path in ("a", "b"):
        with pytest.raises(DamageError, match="is not in the pack"):
            found(pack(a=b"one"), **{path: known(b"other")})
