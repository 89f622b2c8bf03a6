"""What topics show: the records between the offsets that end each epoch.

Tests: ``tests/integration/test_kafka_audit.py``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from seamark import limits_by_size
from seamark.audit.declared_rows import declared_schema
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.limited_targets import option_naming
from seamark.audit.untried_files import has_decimals
from seamark.audit.verdicts import Shown
from seamark.errors import StoreUnavailableError
from seamark.sinks.json_texts import JSON_OPTIONS, can_be_read_back
from seamark.sinks.kafka.reading import compacted_topics, first_offsets, kafka_records
from seamark.spark.limited_jobs import limited_jobs
from seamark.spark.row_digests import RowDigest, digests_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Ends = dict[str, dict[int, int]]
"""By topic and partition: the offset after the last record."""
_ROWS: Final = 50_000
_EPOCH: Final = "_seamark_epoch"
_MOST_PARTITIONS: Final = 1 << 31


def read_kafka(
    spark: SparkSession,
    history: SinkHistory,
    bootstrap: str | None,
    options: Mapping[str, str],
) -> Iterator[Shown]:
    """What the topics show of each epoch but the first that is known, which has no beginning.

    ``options``, which may be a login, are for servers that the caller names (``bootstrap``), and
    are never sent to those that only a checkpoint does.
    """
    ends = _known_ends(history)
    first, *rest = history.epochs
    if ends is None:
        note = "its checkpoints do not say where each epoch ends in the topics"
        yield Shown(first=first.epoch, last=history.newest.epoch, note=note)
        return
    yield Shown(first=history.since, last=first.epoch, note="nothing says where its records begin")
    if not rest:
        return
    servers = bootstrap or str(first.point.at.get("bootstrap") if first.point else "")
    options = options if bootstrap else {}
    newest = _together(ends.values())
    lows = first_offsets(servers, newest, options)
    records = kafka_records(servers, newest, options, start_offsets=ends[first.epoch])
    shape = _Records(spark, history, is_named=bool(bootstrap))
    epoch_of = _EpochOf(rest, ends, first.epoch)
    found: dict[int, RowDigest] = {}
    while several := list(islice(records, _ROWS)):
        for record in several:
            record[_EPOCH] = epoch_of(record)
        for epoch, digest in shape.digests(several).items():
            found[epoch] = found.get(epoch, RowDigest.empty()) + digest
    upto = _together([ends[first.epoch]])
    compacted: set[str] | None = None
    for before, known in pairwise(history.epochs):
        start = before.epoch + 1  # with those between them whose checkpoints are pruned
        is_cut_off = _is_cut_off(lows, upto, ends[known.epoch])
        _add(upto, ends[known.epoch])
        if is_cut_off:
            note = "the topic does not keep all of its records any more"
            yield Shown(first=start, last=known.epoch, note=note)
            continue
        is_alone = start == known.epoch
        expected = known.own if is_alone else known.total - before.total
        shown = found.get(known.epoch, RowDigest.empty())
        if shown.rows < expected.rows:
            if compacted is None:
                compacted = compacted_topics(servers, newest, options)
            # epochs whose checkpoints are pruned may have written to any of them
            if some := compacted.intersection(ends[known.epoch] if is_alone else newest):
                note = f"topic {min(some)} is compacted: of records with one key the last one stays"
                yield Shown(first=start, last=known.epoch, note=note)
                continue
        yield Shown(
            first=start,
            last=known.epoch,
            expected=expected,
            found=shown,
            note=shape.only_counted,
            is_counted=bool(shape.only_counted),
        )


def _is_cut_off(lows: Ends, starts: Ends, ends: Ends) -> bool:
    """Whether retention has removed records that lie between these offsets."""
    return any(
        starts.get(topic, {}).get(partition, 0) < min(lows.get(topic, {}).get(partition, 0), end)
        for topic, parts in ends.items()
        for partition, end in parts.items()
    )


def _known_ends(history: SinkHistory) -> dict[int, Ends] | None:
    """By epoch: where it ends in the partitions that its checkpoint names.

    In others it ends where the one before it does.
    """
    ends: dict[int, Ends] = {}
    for known in history.epochs:
        point = _ends_in(known)
        if point is None:
            return None
        ends[known.epoch] = point
    return ends


def _add(upto: Ends, ends: Ends) -> None:
    for topic, parts in ends.items():
        upto.setdefault(topic, {}).update(parts)


def _together(several: Iterable[Ends]) -> Ends:
    """Where the last of these epochs ends in every partition that was written to by then."""
    upto: Ends = {}
    for ends in several:
        _add(upto, ends)
    return upto


def _ends_in(known: EpochRows) -> Ends | None:
    at: Mapping[str, Any] = known.point.at if known.point is not None else {}
    given = at.get("end_offsets")
    by_topic = {str(at["topic"]): given} if "topic" in at else given
    if not isinstance(by_topic, dict):
        return None
    ends: Ends = {}
    for topic, parts in by_topic.items():
        if not isinstance(parts, dict):
            return None
        numbers = {whole_number(partition): whole_number(end) for partition, end in parts.items()}
        ends[topic] = {
            partition: end
            for partition, end in numbers.items()
            if partition is not None and partition < _MOST_PARTITIONS and end is not None
        }
        if len(ends[topic]) < len(parts):
            return None
    return ends or None


class _EpochOf:
    """The first of some epochs that ends after a record."""

    def __init__(self, known: list[EpochRows], ends: Mapping[int, Ends], before: int) -> None:
        """``before`` is the epoch before them."""
        self._last = known[-1].epoch
        self._steps: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
        """By partition: the ends, each above all before it, and their epochs."""
        first, *others = known
        self._add(_together([ends[before], ends[first.epoch]]), first.epoch)
        for each in others:
            self._add(ends[each.epoch], each.epoch)

    def _add(self, ends: Ends, epoch: int) -> None:
        for topic, parts in ends.items():
            for partition, end in parts.items():
                offsets, epochs = self._steps.setdefault((topic, partition), ([], []))
                if not offsets or end > offsets[-1]:
                    offsets.append(end)
                    epochs.append(epoch)

    def __call__(self, record: Mapping[str, Any]) -> int:
        offsets, epochs = self._steps.get((record["topic"], record["partition"]), ([], []))
        place = bisect_right(offsets, record["offset"])
        return epochs[place] if place < len(epochs) else self._last


def _size(record: Mapping[str, Any]) -> int:
    return len(record["key"] or b"") + len(record["value"] or b"")


class _Records:
    """Records as the rows that they were made of."""

    def __init__(self, spark: SparkSession, history: SinkHistory, *, is_named: bool) -> None:
        """``is_named`` says whether the user has named the servers, or only a checkpoint."""
        self._spark = spark
        self._target = history.target
        self._option = None if is_named else option_naming(history.sink)
        self._may_take_long = has_decimals(history)
        self._options = history.options
        self._schema = declared_schema(history.columns)
        self.only_counted = self._why_only_counted()

    def _why_only_counted(self) -> str:
        if self._schema is None:
            return "only counted: the types of its columns cannot be read from the checkpoint"
        kept = {*self._in_value(), *self._parts()}
        if lost := next((field.name for field in self._schema if field.name not in kept), None):
            return f"only counted: column {lost!r} is not part of a record"
        for field in self._schema.fields:
            if not can_be_read_back(field.dataType):
                return f"only counted: column {field.name!r} has a map whose keys are no texts"
        return ""

    def _parts(self) -> dict[str, str]:
        """Columns that are a part of the record, and which."""
        given = {
            "key": self._options.get("key"),
            "headers": self._options.get("headers"),
            "partition": self._options.get("partition"),
            "topic": self._options.get("topic_column"),
        }
        return {str(column): part for part, column in given.items() if column}

    def _in_value(self) -> list[str]:
        """Columns that are members of the value's JSON object, or the one that is the value."""
        value = self._options.get("value")
        if isinstance(value, str):
            return [value]
        if isinstance(value, list):
            return [str(name) for name in value]
        others = {c for c, part in self._parts().items() if part != "key"}
        return [name for name in self._names() if name not in others]

    def _names(self) -> list[str]:
        return [field.name for field in self._schema.fields] if self._schema is not None else []

    def digests(self, records: list[dict[str, Any]]) -> dict[int, RowDigest]:
        """By epoch: the digest of the rows."""
        rows = self._spark.createDataFrame(
            [
                (
                    record[_EPOCH],
                    record["key"],
                    record["value"],
                    record["topic"],
                    record["partition"],
                    [(name, value) for name, value in record["headers"] or ()] or None,
                )
                for record in records
            ],
            f"{_EPOCH} bigint, key binary, value binary, topic string, partition int, "
            "headers array<struct<key:string,value:binary>>",
        )
        if self.only_counted:
            counts = rows.groupBy(_EPOCH).count().collect()
            return {row[0]: RowDigest(row[1], RowDigest.empty().digest) for row in counts}
        declared = self._declared(rows)
        if self._option is None or not self._may_take_long:
            return digests_by(declared, _EPOCH)
        seconds = limits_by_size.job_seconds(sum(map(_size, records)))
        late = partial(self._too_late, seconds)
        with limited_jobs(self._spark, seconds, late):
            return digests_by(declared, _EPOCH)

    def _too_late(self, seconds: int) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"Spark has not read {_ROWS} of its records, or fewer, within {seconds} s",
            where=self._target,
            hint="Is it the right topic? One whose servers you name is read without limits: "
            f"{self._option}",
        )

    def _declared(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        assert self._schema is not None, "they are only counted then"
        schema: StructType = self._schema
        parts, members = self._parts(), self._in_value()
        is_object = not isinstance(self._options.get("value"), str)
        json_schema = StructType([schema[name] for name in members])
        parsed = f.from_json(f.col("value").cast("string"), json_schema, JSON_OPTIONS)
        selected = []
        for field in schema.fields:
            if field.name in members and is_object:
                column = parsed.getField(field.name)
            else:
                column = _payload(f.col(parts.get(field.name, "value")), field.dataType)
            selected.append(column.alias(field.name))
        return rows.select(_EPOCH, *selected)


def _payload(part: Column, kind: DataType) -> Column:
    """The value of a column that has become a part of a record."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    headers = "array<struct<key:string,value:binary>>"
    if kind.simpleString() == headers or not isinstance(kind, ArrayType | MapType | StructType):
        return part.cast(kind)
    return f.from_json(part.cast("string"), kind, JSON_OPTIONS)
