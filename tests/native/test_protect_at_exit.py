"""A program with a protected query ends as it would without: no stack trace, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.WARNING)
import seamark
from seamark.spark.java import use_java
use_java()
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
query = (rows.writeStream.format("noop").trigger(processingTime="20 milliseconds")
         .option("checkpointLocation", sys.argv[1] + "/job").start())
protection = seamark.protect(query, sys.argv[1] + "/store")
while protection.status().checkpoints < 3:
    time.sleep(0.05)
{ending}
print("end")
"""


@pytest.mark.spark
@pytest.mark.sampled(1)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "ending",
    ["pass", "query.stop()", "spark.stop()", "spark.sparkContext._gateway.shutdown()"],
)
def test_a_program_ends_without_a_stack_trace_of_its_protection(
    tmp_path: Path, ending: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{ending}", ending), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert (done.returncode, done.stdout.split()[-1]) == (0, "end"), done.stderr[-4000:]
    for trace in ("ListenerBus", "Traceback", "while sending command"):
        assert trace not in done.stderr, done.stderr[-8000:]
