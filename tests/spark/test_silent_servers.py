"""A server that is away is told from files that are damaged."""

from __future__ import annotations

import pytest

from seamark.errors import StoreUnavailableError
from seamark.spark.silent_servers import require_answer

JOB = (
    "An error occurred while calling o1.collectToPython.\n"
    ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading "
    "file hdfs://n/out/epoch=000001/part-0. SQLSTATE: KD001\n"
    "\tat org.apache.spark.Job.run(Job.scala)\n"
)


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: b file=/out/part-0",
        "java.net.ConnectException: Connection refused",
        "org.apache.hadoop.net.ConnectTimeoutException: 20000 millis timeout",
        "java.net.UnknownHostException: n",
    ],
)
def test_files_that_no_server_gives_are_not_called_unreadable(cause: str) -> None:
    error = Exception(f"{JOB}Caused by: {cause}\n\tat x.Y.z(Y.java)")
    with pytest.raises(StoreUnavailableError, match="does not answer") as caught:
        require_answer(error, "hdfs://n/out")
    assert cause.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.hadoop.fs.ChecksumException: Checksum error: file=/out/part-0",
        "java.lang.RuntimeException: part-0 is not a Parquet file: java.net.ConnectException",
        "java.io.EOFException: Reached the end of stream",
    ],
)
def test_damage_is_not_taken_for_a_server_that_is_away(cause: str) -> None:
    require_answer(Exception(f"{JOB}Caused by: {cause}"), "hdfs://n/out")
