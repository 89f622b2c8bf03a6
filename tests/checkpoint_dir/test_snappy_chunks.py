"""No memory is taken for what a file in Snappy merely claims."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seamark.checkpoint_dir.formats.snappy_chunks import require_true_sizes
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_references import require_version_inside
from seamark.errors import DamageError
from tests.checkpoint_dir.support.samples import sample

_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_CLAIMS = {
    "stored": _HEAD + struct.pack(">i", (1 << 29) - 1) + b"abc",
    "plain": _HEAD + struct.pack(">i", 7) + b"\xff\xff\xff\xff\x07ab",
    "negative": _HEAD + struct.pack(">i", -1) + b"abc",
    "torn": _HEAD + b"\x00\x00",
}


def test_what_spark_writes_is_as_long_as_it_says() -> None:
    data = sample("snappy/2.delta")
    require_true_sizes(data)
    require_true_sizes(data * 2)  # one stream after the other


@pytest.mark.parametrize("data", _CLAIMS.values(), ids=_CLAIMS)
def test_a_chunk_that_claims_more_than_there_is_is_damage(data: bytes) -> None:
    with pytest.raises(DamageError):
        require_true_sizes(data)


def test_a_changelog_that_claims_too_much_is_not_given_to_spark(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write("state/0/0/1_aa.changelog", _CLAIMS["stored"])
    no_spark = object()  # whatever is asked of it fails
    with pytest.raises(DamageError, match="claims 536870911 bytes") as caught:
        require_version_inside(copy, [0], 1, no_spark)  # type: ignore[arg-type]
    assert "1_aa.changelog" in str(caught.value)
