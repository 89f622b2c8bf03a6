"""Java classes of our own reach the tasks of a Spark that knows nothing of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from seamark.spark.executor_classes import executor_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm

_ADDS = """
package seamark.tests;

public class Adds implements org.apache.spark.api.java.function.Function {
  private final String what;

  public Adds(String what) {
    this.what = what;
  }

  public Object call(Object to) {
    return new Added().of((String) to, what);
  }

  static class Added {
    String of(String to, String what) {
      return to + what;
    }
  }
}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "java_sources"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "Adds.java").write_text(_ADDS)
    (folder / "Wrong.java").write_text("public class Wrong { int twice() { return no; } }")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "java_sources", raising=False)
    return "java_sources"


def test_a_class_is_used_by_tasks_with_the_arguments_of_each_object(
    spark: SparkSession, package: str
) -> None:
    context: Any = spark.sparkContext
    for what in ("!", "?"):
        adds = executor_object(spark, package, "Adds", what)
        words = context._jsc.parallelize(["a", "b"], 2).map(adds).collect()
        assert list(words) == [f"a{what}", f"b{what}"]
    jars = [jar for jar in context._jsc.sc().listJars().mkString(" ").split() if "Adds" in jar]
    assert len(jars) == 1, "it was added more than once"


def test_a_class_that_cannot_be_compiled_is_an_error(spark: SparkSession, package: str) -> None:
    with pytest.raises(Py4JJavaError, match="CompileException"):
        executor_object(spark, package, "Wrong")
