"""Work grows with what the checkpoints say, not with its square."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark import limits
from seamark._common.arrow_tables import sized_tables
from seamark.audit import iceberg, kafka
from seamark.audit.expectations import EpochRows, SinkHistory, histories_of
from seamark.audit.files import _parts, _shown
from seamark.audit.verdicts import Result, Shown, verdict_of
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.manifest.parts import SinkCommitStatus
from seamark.sinks import consistent_cut, epoch_ranges
from seamark.sinks.consistent_cut import choose_cut
from seamark.sinks.read_point import ReadPoint
from seamark.spark.row_digests import RowDigest
from seamark.store.manifest_scan import ScannedCheckpoint
from seamark.testing.conformance.sink_examples import receipt
from tests.audit.test_logins import of_table
from tests.sinks.support import iceberg as tables

MANY = 20_000
SEVERAL = 4_000


@contextmanager
def little_work(seconds: float = 4) -> Iterator[None]:
    """Less processor time than this; the square of the number took a multiple of it."""
    before = time.process_time()
    yield
    assert time.process_time() - before < seconds


def checkpoint(number: int, **fields: Any) -> ScannedCheckpoint:
    made = CheckpointManifest.new(number, epoch=fields.pop("epoch", number), **fields)
    return ScannedCheckpoint(number, made, None, superseded=False)


def names(count: int) -> list[str]:
    return [f"s{number}" for number in range(count)]


def test_very_many_sinks_of_one_checkpoint_are_each_looked_up_once() -> None:
    structure = {"sinks": {name: {"kind": "files", "target": name} for name in names(MANY)}}
    one = checkpoint(1, sink_names=names(MANY), structure=structure)
    with little_work():
        cut = choose_cut("memory://", [one], None)
        histories = histories_of([one])
    assert [sink.target for sink in cut.sinks] == names(MANY)
    assert [history.target for history in histories] == names(MANY)


def test_a_sink_that_a_checkpoint_names_many_times_is_told_once() -> None:
    structure = {"sinks": {name: {"kind": "files", "target": name} for name in names(3)}}
    repeated = [name for name in reversed(names(3)) for _ in range(MANY)]
    one = checkpoint(1, sink_names=repeated, structure=structure)
    cut = choose_cut("memory://", [one], None)
    assert [sink.sink for sink in cut.sinks] == ["s2", "s1", "s0"]
    assert [history.sink for history in histories_of([one])] == ["s2", "s1", "s0"]


def test_very_many_sinks_before_very_many_checkpoints_are_not_compared_with_each() -> None:
    point = {"kind": "delta", "target": "t", "only_newest": True}
    old = checkpoint(1, sink_names=names(SEVERAL))
    late = {"1": {"s0": point, "s1": {"kind": 1}}}
    newer = [
        checkpoint(
            number,
            late_read_points=late,
            sink_commit_statuses={"s0": SinkCommitStatus.committed()} if number == 7 else {},
        )
        for number in range(SEVERAL, 1, -1)
    ]
    with little_work():
        cut = choose_cut("memory://", [*newer, old], 1)
    assert len(cut.sinks) == SEVERAL
    assert cut["s0"].note == "it shows its newest epoch only, which is 7 by now"
    assert cut["s1"].point is None


def test_damaged_checkpoints_are_not_compared_with_each_of_the_others() -> None:
    damaged = [
        ScannedCheckpoint(number, None, "damaged", superseded=False)
        for number in range(2 * SEVERAL, SEVERAL, -1)
    ]
    pending = [checkpoint(number, epoch=5) for number in range(SEVERAL, 0, -1)]
    with little_work(), pytest.raises(LookupError):
        choose_cut("memory://", [*damaged, *pending], 9)


def test_checkpoints_of_one_epoch_are_put_together_once() -> None:
    point = {"kind": "delta", "target": "t"}
    same = [
        checkpoint(n, epoch=5, sink_names=["s7"], read_points={f"s{n}": point})
        for n in range(SEVERAL, 0, -1)
    ]
    with little_work():
        (sink,) = choose_cut("memory://", same, 5).sinks
        histories_of(same)
    assert sink.point is not None


def test_the_record_of_merged_epochs_is_read_once_however_sinks_spell_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[str] = []
    read_merged = epoch_ranges.read_merged

    def noted(folder: str) -> epoch_ranges.MergedEpochs | None:
        read.append(folder)
        return read_merged(folder)

    monkeypatch.setattr(epoch_ranges, "read_merged", noted)
    folder = tmp_path / "t" / epoch_ranges.range_name(10)
    folder.mkdir(parents=True)
    epoch_ranges.write_merged(str(folder), [receipt(number, "a") for number in range(1, 8)])
    (tmp_path / "link").symlink_to("t")
    spelled = ("t", "/t", "./t", "t/", "t/.//.", "../{}/t", "t/../t", "link")
    points = {
        name: {
            "kind": "files",
            "target": f"{tmp_path}/{way.format(tmp_path.name)}",
            "at": {"epoch": 3, "epochs_per_folder": 10},
        }
        for name, way in zip(names(len(spelled)), spelled, strict=True)
    }
    one = checkpoint(1, sink_names=list(points), read_points=points)
    spans = epoch_ranges.MergedSpans()
    sinks = [
        consistent_cut._unless_merged(sink, spans)
        for sink in choose_cut("memory://", [one], None).sinks
    ]
    assert len(read) == 1
    assert {sink.note for sink in sinks} == {
        "its epochs up to 7 were merged and can only be read together"
    }


def history(epochs: int, digest: Callable[[int], RowDigest]) -> SinkHistory:
    rows = (
        EpochRows(epoch=n, checkpoint_id=n, own=digest(n), since=1, total=digest(n))
        for n in range(1, epochs + 1)
    )
    return SinkHistory(sink="s", kind="files", target="/t", epochs=tuple(rows))


def test_very_many_epochs_are_each_looked_up_once() -> None:
    known = history(MANY, lambda n: RowDigest(n, f"{n:032x}"))
    expected, found = RowDigest(2 * MANY, "a" * 32), RowDigest(MANY + 1, "b" * 32)
    with little_work():
        assert len(list(_parts(known, {}, []))) == MANY
        ((first, last, _),) = _parts(known, {}, [(1, MANY)])
        verdicts = {
            verdict_of(Shown(first=n, last=n, expected=expected, found=found), known).result
            for n in range(MANY)
        }
    assert (first, last) == (1, MANY)
    assert verdicts == {Result.LOST}


def test_the_partitions_of_a_topic_are_not_noted_again_for_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def point(epoch: int) -> ReadPoint:
        parts = range(5_000) if epoch == 1 else range(1)
        ends = {"topic": "t", "end_offsets": {str(part): epoch for part in parts}}
        return ReadPoint("kafka", "t", ends)

    def counted(_: object, several: list[dict[str, Any]]) -> dict[int, RowDigest]:
        return {record[kafka._EPOCH]: RowDigest(1, "0" * 32) for record in several}

    records = ({"topic": "t", "partition": 0, "offset": n} for n in range(1, 300))
    monkeypatch.setattr(kafka, "first_offsets", lambda *_: {"t": {0: 9}})
    monkeypatch.setattr(kafka, "compacted_topics", lambda *_: set())
    monkeypatch.setattr(kafka, "kafka_records", lambda *_, **__: records)
    monkeypatch.setattr(kafka._Records, "digests", counted)
    known = history(300, lambda n: RowDigest(n, f"{n:032x}"))
    known = replace(known, epochs=tuple(replace(e, point=point(e.epoch)) for e in known.epochs))
    spark: Any = None
    tracemalloc.start()
    try:
        shown = list(kafka.read_kafka(spark, known, None, {}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20
    assert [each.found.rows for each in shown if each.found is not None] == [1] * 291
    assert [each.last for each in shown if "does not keep" in each.note] == list(range(2, 10))


def test_folders_of_merged_epochs_are_read_together() -> None:
    known = history(40, lambda n: RowDigest(n, f"{n:032x}"))
    folders = {n: f"/t/{n}" for n in (10, 20, *range(21, 41))}
    parts = list(_parts(known, folders, [(11, 20), (1, 10)]))
    assert parts == [(1, 10, [10]), (11, 20, [20]), *((n, n, [n]) for n in range(21, 41))]


def test_epochs_that_were_merged_with_newer_ones_than_the_checkpoints_are_told() -> None:
    known = history(40, lambda n: RowDigest(n, f"{n:032x}"))
    folders = {n: f"/t/{n}" for n in (*range(1, 31), 45)}
    *_, (first, last, numbers) = _parts(known, folders, [(31, 45)])
    assert (first, last, numbers) == (31, 45, [])
    shown = _shown(known, first, last, numbers, {}, folders, {})
    assert verdict_of(shown, known).result is Result.UNCOMPARED
    assert "merged with newer epochs" in shown.note


def test_a_metadata_file_that_unpacks_to_very_much_is_read_only_if_the_user_names_it(
    tmp_path: Path,
) -> None:
    text = Path(tables.make_table(tmp_path).metadata_location.removeprefix("file://")).read_bytes()
    place = tmp_path / "v1.gz.metadata.json"
    place.write_bytes(gzip.compress(text + b" " * limits.TABLE_TEXT_FLOOR))
    found = of_table("iceberg", "c.n.t", metadata_location=f"file://{place}")
    for store in ("", str(tmp_path)):
        with pytest.raises(RefusedError, match="unpacks to more than"):
            iceberg._opened(found, {}, None, store)
    opened = iceberg._opened(found, {}, f"file://{place}", "")
    assert opened is not None
    assert opened[0].metadata.format_version == 2


def test_very_many_small_batches_are_counted_once_each() -> None:
    one = pa.RecordBatch.from_pydict({"n": [1]})
    with little_work():
        tables_made = list(sized_tables(one for _ in range(MANY)))
    assert [table.num_rows for table in tables_made] == [MANY]
