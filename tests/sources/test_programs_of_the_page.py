"""The programs of docs/sources.md that read tables run as they stand there."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.spark.java import java_home
from tests.pipeline.support.workloads import values_in
from tests.test_docs import printed_by, program

pytestmark = pytest.mark.spark

ORDERS = pa.table({"id": [1, 2, 3], "amount": [50, 100, 900]})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    import pyspark

    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        pytest.skip("available_now is refused for Python sources before Spark 4.2")


def code_of(name: str, root: Path) -> str:
    return program("docs/sources.md", name).replace("/data/", f"{root}/")


def test_a_delta_table_is_read_into_another_one(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    (tmp_path / "lake").mkdir()
    deltalake.write_deltalake(tmp_path / "lake/orders", ORDERS)
    assert printed_by(code_of("orders_from_delta.py", tmp_path)) == ["epoch 1"]
    found = deltalake.DeltaTable(tmp_path / "lake/large_orders").to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == [2, 3]


def test_an_iceberg_table_is_read_from_the_catalog_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog import load_catalog

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    (tmp_path / "lake").mkdir()
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", ORDERS.schema).append(ORDERS)
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    assert printed_by(code_of("orders_from_iceberg.py", tmp_path)) == ["epoch 1"]
    assert sorted(row["id"] for row in values_in(tmp_path / "large_orders")) == [2, 3]
