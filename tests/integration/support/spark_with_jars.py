"""A Spark of another environment with a table format's own jars, to read what our sinks wrote."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import ServerUnavailable

PYTHON = "SEAMARK_SPARK_4_0_PYTHON"
"""The interpreter of an environment with PySpark 4.0; by default that of ``make matrix``."""
_CHILD = Path(__file__).resolve().with_name("spark_with_jars_child.py")
_OLDEST = _CHILD.parents[3] / ".venv-oldest/bin/python"


class SparkWithJars:
    """The other Spark, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _ask(self, **request: Any) -> list[list[Any]]:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self.answer()
        assert "error" not in answer, answer["error"]
        rows: list[list[Any]] = answer["rows"]
        return rows

    def answer(self) -> dict[str, Any]:
        """The next line that is an answer: jars write to the same place."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        return {"error": f"the other Spark has ended with {self._process.wait()}"}

    def sql(self, statement: str) -> list[list[Any]]:
        return self._ask(sql=statement)

    def load(self, kind: str, path: str, **options: str) -> list[list[Any]]:
        return self._ask(format=kind, path=path, options=options)


@contextmanager
def spark_with_jars(package: str, **conf: str) -> Iterator[SparkWithJars]:
    """Start it. :class:`ServerUnavailable` when there is none, or its jars cannot be fetched."""
    python = Path(os.environ.get(PYTHON, _OLDEST))
    if not python.exists():
        raise ServerUnavailable(
            f"there is no PySpark 4.0; 'make matrix' sets one up, or name its python in {PYTHON}"
        )
    told = json.dumps({"spark.jars.packages": package, **conf})
    process = subprocess.Popen(
        [str(python), str(_CHILD), told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME")},
    )
    with process:
        try:
            spark = SparkWithJars(process)
            if "error" in (first := spark.answer()):
                raise ServerUnavailable(f"Spark with {package} did not start: {first['error']}")
            yield spark
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(120)
