"""A folder that only a store names does not keep Spark busy for as long as its files like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import limits
from seamark.audit import files
from seamark.errors import StoreUnavailableError
from seamark.spark.row_digests import digests_by
from tests.audit.support.pipelines import audited, ten_epochs
from tests.audit.test_logins import of_table
from tests.support.slow_jobs import rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("file_format", "kind", "is_limited"),
    [
        ("json", "decimal(38,18)", True),
        ("csv", "decimal(9,0)", True),
        ("json", "array<struct<n:decimal(10,2)>>", True),
        ("json", "double", False),
        ("parquet", "decimal(38,18)", False),
    ],
)
def test_a_text_with_decimal_numbers_has_a_limit_unless_its_folder_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file_format: str,
    kind: str,
    is_limited: bool,
) -> None:
    """Spark computes all digits of ``1e400000000``."""
    found = of_table("files", str(tmp_path))
    history = replace(found, columns=(("n", kind),), options={"format": file_format})
    given: list[bool] = []

    class Reader(files._FolderReader):
        def __init__(self, *about: Any, is_limited: bool) -> None:
            super().__init__(*about, is_limited=is_limited)
            given.append(is_limited)

    monkeypatch.setattr(files, "_FolderReader", Reader)
    spark: Any = None
    for is_named in (True, False):
        list(files.read_files(spark, history, is_named=is_named))
    assert given == [False, is_limited]


@pytest.mark.spark
def test_only_folders_that_are_not_named_and_not_all_readable_have_a_limit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ten_epochs(spark, tmp_path)

    def slowly(*asked: Any) -> Any:
        rest(spark, 3)
        return digests_by(*asked)

    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 1)
    monkeypatch.setattr(files, "digests_by", slowly)
    assert not audited(spark, store).is_damaged
    broken = next((tmp_path / "out" / "epoch=000003").glob("part-*"))
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(StoreUnavailableError, match="--target trades="):
        audited(spark, store)
    monkeypatch.setattr(files, "digests_by", digests_by)
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 60)
    assert audited(spark, store).is_damaged
