"""From a URL to a store, and what is no URL of one."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from seamark.errors import InvalidInputError
from seamark.progress import SourceCheckpoint, open_progress


def test_a_store_in_memory_without_a_name_is_nobody_elses() -> None:
    with open_progress("memory://") as one, open_progress("memory://") as other:
        one.stage_checkpoint("s", 1)
        assert other.read_all_checkpoints() == {}


def test_a_store_in_memory_with_a_name_is_shared_while_anybody_has_it() -> None:
    one, other = open_progress("memory://shared/orders"), open_progress("memory://shared/orders")
    with open_progress("memory://shared") as third:
        one.stage_checkpoint("s", 1)
        assert other.read_checkpoint("s") == SourceCheckpoint(1)
        assert third.read_checkpoint("s") is None
    del one, other
    gc.collect()
    with open_progress("memory://shared/orders") as again:
        assert again.read_all_checkpoints() == {}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/data/progress",
        "file:///data/progress",
        "sqlite:///data/progress",
        "rocksdb://data/progress",
        "rocksdb:data/progress",
        "rocksdb:///data/a%00b",
        "rocksdb:///data?sync=no",
        "rocksdb://user@/data",
        "memory://a?b=c",
        "redis://[::1/0?namespace=n",
        "redis://localhost:port/0?namespace=n",
        "redis://localhost/0?namespace=",
    ],
)
def test_what_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_progress(url)


def test_a_url_says_where_the_store_is(tmp_path: Path) -> None:
    with open_progress(f"rocksdb://{tmp_path}/progress") as store:
        assert store.url == f"rocksdb://{tmp_path}/progress"
    with open_progress("memory://orders") as store:
        assert store.url == "memory://orders"
