"""One text names a store and a checkpoint, and never takes a part of a name for an id."""

from __future__ import annotations

import pytest

from seamark.errors import InvalidInputError
from seamark.store.checkpoint_address import CheckpointAddress


@pytest.mark.parametrize(
    ("text", "store", "checkpoint_id"),
    [
        ("/data/trades", "/data/trades", None),
        ("/data/trades@58", "/data/trades", 58),
        ("/data/trades@latest", "/data/trades", None),
        ("s3://bucket/trades@0058", "s3://bucket/trades", 58),
        ("/data/me@home", "/data/me@home", None),
        ("/data/of@2026@latest", "/data/of@2026", None),
        ("abfss://c@a.dfs.core.windows.net/x@7", "abfss://c@a.dfs.core.windows.net/x", 7),
    ],
)
def test_a_checkpoint_is_what_stands_behind_the_last_at_sign(
    text: str, store: str, checkpoint_id: int | None
) -> None:
    assert CheckpointAddress.parse(text) == CheckpointAddress(store, checkpoint_id)


@pytest.mark.parametrize("text", ["", "/data/trades@0", "/data/trades@99999999999999999999"])
def test_what_cannot_name_a_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        CheckpointAddress.parse(text)
