"""What Spark fails with is recognised by the classes of its causes, and told with what to do."""

from __future__ import annotations

import time

import pytest

from seamark.errors import RefusedError, SeamarkError, SourceUnavailableError
from seamark.spark.failures import exception_classes, explained, said_by
from seamark.spark.missing_connectors import missing_connector


class Failure(Exception):
    """As PySpark's: a message, and the stack trace of the JVM beside it."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self._stackTrace = trace


KAFKA = "org.apache.kafka.common.errors"


def trace(cause: str) -> str:
    return (
        "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query failed\n"
        "\tat org.apache.spark.sql.execution.streaming.StreamExecution.run(StreamExecution:351)\n"
        "Caused by: java.util.concurrent.ExecutionException: it failed\n"
        "\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture:396)\n"
        f"Caused by: {cause}\n"
        "\t... 12 more\n"
    )


def test_the_classes_of_all_causes_are_found() -> None:
    assert exception_classes(trace(f"{KAFKA}.TimeoutException: no node")) == [
        "org.apache.spark.sql.streaming.StreamingQueryException",
        "java.util.concurrent.ExecutionException",
        f"{KAFKA}.TimeoutException",
    ]


@pytest.mark.parametrize(
    ("cause", "what", "hint"),
    [
        (f"{KAFKA}.TimeoutException: describeTopics", "does not answer", "kafka.bootstrap.servers"),
        (f"{KAFKA}.UnknownTopicOrPartitionException: x", "does not know a topic", "subscribe"),
        (f"{KAFKA}.SaslAuthenticationException: no", "refuses the login", "kafka.sasl"),
        (f"{KAFKA}.SslAuthenticationException: no", "refuses the login", "kafka.ssl"),
        (f"{KAFKA}.TopicAuthorizationException: no", "does not allow", "READ"),
        (
            "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls",
            "cannot use its options",
            "kafka.bootstrap.servers",
        ),
    ],
)
def test_a_source_that_cannot_be_read_is_told_by_its_class_and_its_address(
    cause: str, what: str, hint: str
) -> None:
    failure = Failure("[STREAM_FAILED] Query failed with exception", trace(cause))
    found = explained(failure, {"trades": "kafka.bootstrap.servers=broker:9092"})
    assert isinstance(found, SourceUnavailableError)
    assert found.exit_code == 7
    assert what in found.what
    assert "source 'trades': kafka.bootstrap.servers=broker:9092" in (found.where or "")
    assert hint in (found.hint or "")
    assert found.__cause__ is failure


@pytest.mark.parametrize("cause", ["UnknownHostException: db.example", "ConnectException: refused"])
def test_another_server_that_does_not_answer_is_not_taken_for_kafka(cause: str) -> None:
    failure = Failure(f"[STREAM_FAILED] {cause}", trace(f"java.net.{cause}"))
    found = explained(failure, {"trades": "kafka.bootstrap.servers=broker:9092"})
    assert "a server that the query reads from or writes to does not answer" in found.what
    assert cause in (found.where or "")
    assert "broker" not in str(found)


def test_a_python_process_that_starts_too_slowly_is_not_taken_for_a_server() -> None:
    cause = (
        "org.apache.spark.SparkException: Python worker failed to connect back.\n"
        "Caused by: java.net.SocketTimeoutException: Accept timed out"
    )
    found = explained(Failure(f"[STREAM_FAILED] {cause}", trace(cause)))
    assert "Python process" in found.what
    assert not isinstance(found, SourceUnavailableError)


def test_lost_rows_and_other_failures_are_told_as_before() -> None:
    lost = explained(
        Failure("some data may have been lost: set failOnDataLoss to false", trace(""))
    )
    assert "rows that the next epoch needs are gone" in lost.what
    other = explained(Failure("java.lang.IllegalStateException: odd"), {"trades": "x"})
    assert other.what == "Spark stopped the query"


def test_files_of_another_folder_are_told_with_the_way_on() -> None:
    wrong = "Wrong basePath /data/in2 for the root path: file:/data/in/1.json SQLSTATE: XXKST"
    found = explained(Failure(f"[STREAM_FAILED] Query terminated with exception: {wrong}"))
    assert isinstance(found, RefusedError)
    assert "another folder" in found.what
    assert wrong.partition(" SQLSTATE")[0] in (found.where or "")
    assert "/data/in2/*" in (found.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/data.\nCaused by: "
        "java.io.IOException: No space left on device",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.\n"
        "Caused by: java.io.IOException: Disk quota exceeded",
    ],
)
def test_a_disk_that_spark_finds_full_is_an_outage_like_one_that_we_do(text: str) -> None:
    error = explained(Failure(text))
    assert error.exit_code == 7
    assert "disk is full" in error.what
    assert "Make room" in str(error.hint)


def test_state_of_another_shape_is_not_blamed_on_the_working_copy() -> None:
    for condition in (
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
        "STATE_STORE_STATE_SCHEMA_FILES_THRESHOLD_EXCEEDED",
    ):
        found = explained(Failure(f"[{condition}] Provided schema doesn't match"))
        assert isinstance(found, RefusedError)
        assert "working copy" not in str(found)
    assert "working copy" in str(explained(Failure("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] x")))


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure", "sql-kafka"),
        ("Failed to find data source: delta. Please find packages", "delta-spark"),
        ("java.lang.NoClassDefFoundError: org/apache/commons/pool2/impl/X", "sql-kafka"),
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem", "cloud"),
        ('UnsupportedFileSystemException: No FileSystem for scheme "s3a"', "cloud"),
        ("Failed to find the data source: nats.", "the package of the connector"),
    ],
)
def test_a_missing_connector_names_its_package_and_the_setting(text: str, package: str) -> None:
    found = missing_connector(text)
    assert found is not None
    assert package in (found.hint or "")
    assert "spark.jars.packages" in (found.hint or "")


def test_a_missing_class_that_is_no_connector_is_left_in_sparks_words() -> None:
    assert missing_connector("java.lang.NoClassDefFoundError: com/example/Mine") is None
    assert missing_connector("an ordinary failure") is None


def test_what_was_going_on_is_told_with_the_failure() -> None:
    failure = Failure("[UNRESOLVED_COLUMN] no_such_column")
    failure.add_note("while sink 'lake' was written in epoch 4")
    found = explained(failure)
    assert isinstance(found, SeamarkError)
    assert "while sink 'lake' was written in epoch 4: [UNRESOLVED_COLUMN]" in (found.where or "")


def test_of_what_spark_says_its_number_and_its_advice_to_lose_state_are_left_out() -> None:
    advice = " If the stream job is restarted with a change, clear the existing state."
    told = said_by(Failure(f"[CANNOT_LOAD.ALL] It is gone.{advice}  SQLSTATE: 58030 \nmore"))
    assert (told.condition, told.line) == ("CANNOT_LOAD.ALL", "It is gone.")
    other = "It is gone. If the stream job is restarted with it, it is gone again."
    assert said_by(Failure(f"[CANNOT_LOAD.ALL] {other}")).line == other


@pytest.mark.parametrize(
    ("unit", "size"),
    [
        (" ", 40_000),
        ("\t", 40_000),
        ("\n", 40_000),
        ("SQLSTATE: x ", 40_000),
        ("STATE_STORE_", 80_000),
        (" If the stream job is restarted with ", 400_000),
    ],
)
def test_a_long_text_of_spark_takes_time_by_its_length_and_not_by_its_square(
    unit: str, size: int
) -> None:
    def seconds(length: int) -> float:
        text = f"[STREAM_FAILED] x{unit * (length // len(unit))}y"
        before = time.thread_time()
        said_by(Failure(text))
        explained(Failure(text))
        return time.thread_time() - before

    shorter = max(seconds(size // 8), 0.001)
    assert min(seconds(size), seconds(size)) < 24 * shorter
