"""Runs in an environment with PySpark alone, and does as it is told by lines.

Each line on its standard input is JSON: ``{"sql": "…"}``, or ``{"format": …, "path": …}`` to read
a table. The answer is one line of JSON: the rows, or the error.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def answer_with(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer, default=str) + "\n")
    sys.stdout.flush()


def serve(conf: dict[str, str]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    answer_with({"rows": []})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "sql" in request:
                frame = spark.sql(request["sql"])
            else:
                reader = spark.read.format(request["format"]).options(**request["options"])
                frame = reader.load(request["path"])
            answer: dict[str, Any] = {"rows": [[*row] for row in frame.collect()]}
        except Exception as error:  # noqa: BLE001 - the other side raises it
            answer = {"error": str(error)[:2000]}
        answer_with(answer)
    spark.stop()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
