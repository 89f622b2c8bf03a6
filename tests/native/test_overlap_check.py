"""Neither a store nor the directory that it holds may lie inside the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.errors import InvalidInputError
from seamark.native.overlap_check import require_apart

AZURE = "abfss://box@account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("directory", "store"),
    [
        ("/data/ck", "/data/ck"),
        ("/data/ck", "/data/ck/"),
        ("/data/ck", "/data/ck/store"),
        ("/data/ck", "/data"),
        ("/data/ck", "/"),
        ("/data/ck", "/data/other/../ck/store"),
        ("/data/a b", "file:///data/a%20b/store"),
        ("file:/data/ck", "/data/ck/store"),
        ("file:///data/a%20b", "/data/a%20b/store"),
        ("s3a://bucket/ck", "s3://bucket/ck/store"),
        ("s3://bucket/ck/", "s3://bucket"),
        ("s3://bucket/ck", "S3A://bucket//ck"),
        ("gs://bucket/ck", "gs://bucket/ck"),
        (f"{AZURE}/ck", f"{AZURE}/ck/store"),
        (f"{AZURE}/ck", "az://box/ck/store"),
    ],
)
def test_a_store_inside_or_around_the_directory_is_refused(directory: str, store: str) -> None:
    with pytest.raises(InvalidInputError, match="must not contain each other") as caught:
        require_apart(directory, store)
    assert caught.value.where == f"{store} and {directory}"


@pytest.mark.parametrize(
    ("directory", "store"),
    [
        ("/data/ck", "/data/ck-store"),
        ("/data/ck", "/data/store/ck"),
        ("/data/a b", "/data/a%20b/store"),
        ("/data/ck", "s3://data/ck"),
        ("s3a://bucket/ck", "s3://bucket/ck-store"),
        ("s3://bucket/ck", "s3://bucket2/ck"),
        ("s3://bucket/ck", "gs://bucket/ck"),
        ("hdfs://name/ck", "s3://name/ck"),
        ("hdfs://name/ck", "memory://name/ck"),
        (f"{AZURE}/ck", "abfss://box@another.dfs.core.windows.net/ck"),
        (f"{AZURE}/ck", "az://account/ck"),
    ],
)
def test_neighbours_are_fine(directory: str, store: str) -> None:
    require_apart(directory, store)


def test_a_link_does_not_hide_that_a_store_lies_inside(tmp_path: Path) -> None:
    (tmp_path / "ck").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ck")
    with pytest.raises(InvalidInputError, match="must not contain each other"):
        require_apart(str(tmp_path / "ck"), str(tmp_path / "link/store"))
    with pytest.raises(InvalidInputError, match="must not contain each other"):
        require_apart(str(tmp_path / "link"), str(tmp_path / "ck/store"))
