"""Which query once wrote each of the checkpoint directories that Spark's own tests keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Fitting:
    """A query of the Scala file, and what its session and its writer are told."""

    query: str
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    has_gaps: bool = False
    """Batches are missing in its logs, so those that come next have other numbers."""
    refused_by: str = ""
    """What stock Spark of some version ends it with; any other error means a wrong query."""


_TIMED: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""A query with time-outs in processing time would run batches without data for ever."""

_FORMAT_2: Final = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}

_ASYNCHRONOUS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "0",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Without it Spark does not start where batches are missing in the logs."""

QUERIES: Final[Mapping[str, Fitting]] = {
    # Batch 4 was planned and 3 is not there, so what is restored has the rows of 4 in batch 3.
    "checkpoint-test-offsetId-commitId-inconsistent": Fitting(
        "values", options=_ASYNCHRONOUS, has_gaps=True
    ),
    # Spark 2.1 did not note in how many partitions its state is.
    "2.1.0": Fitting("count-complete", {"spark.sql.shuffle.partitions": "10"}),
    "2.3.1-flatMapGroupsWithState-state-format-1": Fitting("latest-event"),
    "2.3.1-for-multi-watermark-policy": Fitting("two-watermarks"),
    "2.3.1-streaming-aggregate-state-format-1": Fitting("count"),
    "2.3.1-without-commit-log-metadata": Fitting("windows"),
    # Spark 4.0 continues it; later ones cannot write the schema file that it lacks.
    "2.4.0-streaming-join": Fitting("join-once", refused_by="java.lang.IllegalArgumentException"),
    "2.4.3-kafka-include-headers-default": Fitting("kafka"),
    "2.4.5-for-compatibility-test-common-functions": Fitting("common-functions"),
    "2.4.5-for-compatibility-test-deduplicate": Fitting("distinct-rows"),
    "2.4.5-for-compatibility-test-statistical-functions": Fitting("statistics"),
    "2.4.5-for-compatibility-test-sum-decimal": Fitting(
        "sum-decimal", refused_by="VALUE_ROW_FORMAT_VALIDATION_FAILURE"
    ),
    "3.0.0-streaming-statestore-codec": Fitting("count"),
    "3.1.0-flatmapgroupswithstate-repartition": Fitting("groups", _TIMED),
    "3.2.0-deduplication-with-repartition": Fitting("distinct-repartitioned"),
    "3.2.0-flatmapgroupswithstate1-repartition": Fitting("groups-begun", _TIMED),
    "3.2.0-flatmapgroupswithstate2-repartition": Fitting("groups", _TIMED),
    "3.2.0-session-window-with-repartition": Fitting("sessions"),
    "3.2.0-streaming-aggregate-with-repartition": Fitting("count-repartitioned"),
    "3.3.0-streaming-deduplication": Fitting("distinct-words"),
    "3.5.1-streaming-deduplication": Fitting("distinct-words"),
    "3.5.1-streaming-join": Fitting("join-once"),
    # A version of 4.0 that was not released wrote them; no number of internal keys is noted.
    "4.0.0-tws-avro": Fitting("transform", refused_by="org.json4s.MappingException"),
    "4.0.0-tws-unsaferow": Fitting("transform", refused_by="org.json4s.MappingException"),
    "4.0.1-dedup-spark-53942": Fitting("distinct"),
    "chk%252520%252525@%252523chk": Fitting("values"),
    **{
        f"4.0.0{suffix}/{provider}/{operator}": Fitting(query, settings)
        for suffix, provider, settings in (
            ("", "hdfs", {}),
            ("", "rocksdb", {}),
            ("-checkpoint-v2", "rocksdb", _FORMAT_2),
        )
        for operator, query in (
            ("agg", "count-pairs"),
            ("dedup", "distinct-pairs"),
            ("join1", "join"),
            ("join2", "join"),
            ("limit", "limit"),
        )
    },
}
"""The query that wrote a directory, by the end of its name."""


def fitting_for(name: str) -> Fitting | None:
    """The query that once wrote the directory of a name, if it is known."""
    return next((QUERIES[end] for end in sorted(QUERIES) if name.endswith(end)), None)
