"""What a backend promises about keys: none of them leads out of its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import DamageError

LEADING_AWAY: Final = (
    "",
    ".",
    "..",
    "../a",
    "a/../../b",
    "a/..",
    "a/./b",
    "/a",
    "/etc/passwd",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\x00b",
)

_VERBS: Final[dict[str, Callable[[Blobs, str], object]]] = {
    "read": lambda blobs, key: blobs.read(key, 1 << 20),
    "stat": lambda blobs, key: blobs.stat(key),
    "stream": lambda blobs, key: blobs.stream(key, 1 << 20),
    "read_range": lambda blobs, key: blobs.read_range(key, 0, 1),
    "create": lambda blobs, key: blobs.create(key, b"x"),
    "create_stream": lambda blobs, key: blobs.create_stream(key, [b"x"]),
    "replace": lambda blobs, key: blobs.replace(key, b"y", b"x"),
    "delete": lambda blobs, key: blobs.delete([key]),
    "delete among others": lambda blobs, key: blobs.delete(["inside/a", key]),
    "delete_durably": lambda blobs, key: blobs.delete_durably([key]),
}


def _is_refused(call: Callable[[Blobs, str], object], blobs: Blobs, key: str) -> bool:
    try:
        call(blobs, key)
    except DamageError:
        return True
    return False


class BlobNames:
    """Keys that a damaged or hostile manifest may hold."""

    def test_a_key_that_leads_out_of_the_root_is_refused_by_every_verb(self, blobs: Blobs) -> None:
        blobs.create("inside/a", b"1")
        for verb, call in _VERBS.items():
            for key in LEADING_AWAY:
                assert _is_refused(call, blobs, key), f"{verb} takes {key!r}"
        assert [entry.key for entry in blobs.entries("")] == ["inside/a"]

    def test_no_folder_above_the_root_is_listed(self, blobs: Blobs) -> None:
        for prefix in ("../", "a/../../", "/", "a//", "..\\"):
            with pytest.raises(DamageError):
                blobs.entries(prefix)
            with pytest.raises(DamageError):
                blobs.folders_holding(prefix, "manifest.json")

    def test_a_percent_sign_means_nothing(self, blobs: Blobs) -> None:
        for key in ("a/%2e%2e/b", "a%2Fb", "%2e%2e%2fc"):
            assert blobs.read(key, 16) is None
            blobs.create(key, key.encode())
        for key in ("a/%2e%2e/b", "a%2Fb", "%2e%2e%2fc"):
            blob = blobs.read(key, 16)
            assert blob is not None
            assert blob.data == key.encode()
        assert blobs.read("a/b", 16) is None
        assert blobs.read("b", 16) is None
