"""A sink that shows what was written is not called damaged, whatever the pipeline does meanwhile
and whichever of its checkpoints are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.audit import auditing, kafka
from seamark.audit.auditing import Access, _Reading
from seamark.audit.expectations import SinkHistory, histories_of
from seamark.audit.files import _parts
from seamark.audit.postgres import _by_epoch
from seamark.audit.tables import TableVersions, compare_table
from seamark.audit.verdicts import Result, Shown, verdict_of
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.sinks.read_point import ReadPoint
from seamark.spark.row_digests import RowDigest
from seamark.store import CheckpointStore, Owner
from seamark.store.consistent_read import Overtaken
from seamark.store.inspection import scan
from seamark.store.manifest_scan import ScannedCheckpoint
from tests.audit.test_expectations import checkpoint, history, own, total

NO_DIGEST = RowDigest.empty().digest


class Table(TableVersions):
    """A table of one version for each epoch."""

    def __init__(self, newest: int, *, replaces: bool = False) -> None:
        self._newest, self._replaces = newest, replaces

    def version_of(self, known: Any) -> int | None:
        return int(known.epoch)

    def newest(self) -> int | None:
        return self._newest

    def added(self, version: int) -> RowDigest | None:
        return own(version)

    def whole(self, version: int) -> RowDigest | None:
        return own(version) if self._replaces else total(1, version)

    def count(self, version: int) -> int | None:
        return None


def results(found: SinkHistory, shown: list[Shown]) -> list[tuple[str, Result]]:
    verdicts = [verdict_of(each, found) for each in shown]
    return [(each.epochs, each.result) for each in verdicts if each.result is not Result.UNCOMPARED]


def of_mode(found: SinkHistory, mode: str) -> SinkHistory:
    return SinkHistory(
        sink="bars",
        kind="delta",
        target="/x",
        options={"mode": mode},
        epochs=found.epochs,
        pending=found.pending,
        given_up=found.given_up,
    )


DECIDED = history(checkpoint(3, committed=False), checkpoint(2), checkpoint(1))
PINNED = history(checkpoint(9), checkpoint(8), checkpoint(2))


# an epoch that is decided, and whose sink may have committed it or not


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("newest", [2, 3])
def test_an_epoch_that_is_committed_and_not_yet_recorded_is_no_damage(
    mode: str, newest: int
) -> None:
    found = of_mode(DECIDED, mode)
    shown = list(compare_table(found, Table(newest, replaces=mode == "overwrite")))
    assert {result for _, result in results(found, shown)} == {Result.OK}
    assert ("epoch 3 already" in verdict_of(shown[-1], found).text) == (newest == 3)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_of_an_epoch_that_nobody_has_decided_are_damage(mode: str) -> None:
    found = of_mode(DECIDED, mode)
    shown = list(compare_table(found, Table(4, replaces=mode == "overwrite")))
    assert results(found, shown)[-1][1].is_damage
    assert shown[-1].is_of_now, "it is read again if the pipeline has gone on"


# epochs that a rollback has given up, and that only the next start takes back

GIVEN_UP = [checkpoint(n, superseded=True) for n in (5, 4, 3)]
ROLLED_BACK = checkpoint(6, epoch=2, shown_as="t1")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("saved", [[ROLLED_BACK], []], ids=["rolled back", "died meanwhile"])
@pytest.mark.parametrize("newest", [2, 4, 5])
def test_what_a_rollback_has_given_up_is_no_damage_until_the_next_start(
    mode: str, saved: list[ScannedCheckpoint], newest: int
) -> None:
    found = of_mode(history(*saved, *GIVEN_UP, checkpoint(2), checkpoint(1)), mode)
    shown = list(compare_table(found, Table(newest, replaces=mode == "overwrite")))
    assert {result for _, result in results(found, shown)} == {Result.OK}
    text = verdict_of(shown[-1], found).text
    assert (f"up to {newest}, which a rollback has given up" in text) == (newest > 2)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_was_given_up_is_damage_once_another_epoch_was_decided(mode: str) -> None:
    again = checkpoint(7, epoch=3)
    found = of_mode(history(again, ROLLED_BACK, *GIVEN_UP, checkpoint(2), checkpoint(1)), mode)
    shown = list(compare_table(found, Table(5, replaces=mode == "overwrite")))
    assert results(found, shown)[-1][1].is_damage


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_that_no_epoch_has_had_are_damage_after_a_rollback_too(mode: str) -> None:
    found = of_mode(history(ROLLED_BACK, *GIVEN_UP, checkpoint(2), checkpoint(1)), mode)
    for newest in (1, 6):
        shown = list(compare_table(found, Table(newest, replaces=mode == "overwrite")))
        assert results(found, shown)[-1][1].is_damage


def test_counted_rows_may_be_those_of_the_next_epoch_too() -> None:
    counted = RowDigest(DECIDED.newest.total.rows + own(3).rows, NO_DIGEST)
    shown = Shown(
        first=1,
        last=2,
        expected=DECIDED.newest.total,
        found=counted,
        is_counted=True,
        ahead=DECIDED.total_ahead,
    )
    assert results(DECIDED, [shown]) == [("1 to 2", Result.OK)]


class Scans:
    """Counts how often a store is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(auditing, "scan", self)

    def __call__(self, store: CheckpointStore) -> Iterator[ScannedCheckpoint]:
        self.count += 1
        return scan(store)


def saved(store: CheckpointStore, one: ScannedCheckpoint) -> CheckpointManifest:
    assert one.manifest is not None
    return store.save(one.manifest)


@pytest.mark.parametrize("layout", ["folders", "objects"])
def test_an_audit_looks_again_when_an_epoch_was_decided_or_committed_meanwhile(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = Scans(monkeypatch)
    with open_store(tmp_path if layout == "folders" else "memory://") as store:
        for number in (1, 2):
            saved(store, checkpoint(number))
        (before,) = histories_of(scan(store))
        nobody: Any = None
        reading = _Reading(store, nobody, Access(), None)
        assert reading._again(before) is None
        pending = saved(store, checkpoint(3, committed=False))
        decided = reading._again(before)
        assert decided is not None
        assert decided.pending is not None
        assert (decided.newest.epoch, decided.pending.epoch) == (2, 3)
        assert reading._again(decided) is None
        committed = {"bars": SinkCommitStatus.committed()}
        store.update_manifest(pending.replace(sink_commit_statuses=committed))
        now = reading._again(decided)
        assert now is not None
        assert (now.newest.epoch, now.pending) == (3, None)
        saved(store, checkpoint(4))
        assert (again := reading._again(now)) is not None
        assert again.newest.epoch == 4
        assert reading._again(again) is None
        read = scans.count
        assert reading._again(again) is None
        assert scans.count == read, "nothing has changed since"


def test_a_decision_that_the_pointer_has_not_followed_is_seen(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        saved(store, checkpoint(1))
        pointer = (tmp_path / "checkpoints" / "latest.txt").read_bytes()
        (before,) = histories_of(scan(store))
        nobody: Any = None
        reading = _Reading(store, nobody, Access(), None)
        for _ in range(3):
            assert reading._again(before) is None
        saved(store, checkpoint(2))
        (tmp_path / "checkpoints" / "latest.txt").write_bytes(pointer)
        assert reading._again(before) is not None


def test_the_store_is_read_again_for_all_tables_that_look_damaged_and_not_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scans = Scans(monkeypatch)
    names = [f"s{number}" for number in range(40)]
    sinks = {name: {"kind": "delta", "target": "/nowhere/t", "columns": []} for name in names}
    digest = checkpoint(1).manifest
    assert digest is not None
    assert digest.output_digests is not None
    (rows,) = digest.output_digests.values()
    with open_store("memory://") as store:
        store.save(
            CheckpointManifest.new(
                1,
                epoch=1,
                sink_names=names,
                structure={"sinks": sinks},
                sink_commit_statuses=dict.fromkeys(names, SinkCommitStatus.committed()),
                output_digests=dict.fromkeys(names, rows),
            )
        )
        monkeypatch.setattr(_Reading, "_shown", lambda *_: [replace(LOST, first=1, last=1)])
        nobody: Any = None
        found = auditing.audit(store, nobody)
    assert [sink.is_damaged for sink in found.sinks] == [True] * len(names)
    assert scans.count <= 3


class Looks(_Reading):
    """Reads that find one thing after the other, beside a store that may be rolled back."""

    def __init__(self, kind: str, *looks: Shown, timelines: tuple[str, ...] = ("a",)) -> None:
        store: Any = self
        super().__init__(store, store, Access(), None)
        self.history = replace(history(checkpoint(2), checkpoint(1)), kind=kind)
        self.left, self._timelines = list(looks), list(timelines)

    def owner(self) -> Owner:
        timeline = self._timelines.pop(0) if len(self._timelines) > 1 else self._timelines[0]
        return Owner(timeline=timeline)

    def _shown(self, _: SinkHistory) -> list[Shown]:
        return [self.left.pop(0)]

    def _again(self, _: SinkHistory) -> SinkHistory | None:
        return None

    def result(self) -> Result:
        (verdict,) = self.audited(self.history, self.owner()).verdicts
        return verdict.result


def test_the_store_is_not_read_again_for_each_folder_that_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[SinkHistory] = []
    monkeypatch.setattr(Looks, "_again", lambda _, known: reads.append(known))
    assert Looks("files", LOST).result() is Result.LOST
    assert reads == []
    assert Looks("delta", LOST, LOST).result() is Result.LOST
    assert len(reads) == 2


WHOLE = Shown(first=2, last=2, expected=own(2), found=own(2))
GONE = Shown(first=2, last=2, expected=own(2), damage="a file of the table is gone")
LOST = Shown(first=2, last=2, expected=own(2), found=RowDigest.empty())


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgres", "kafka"])
@pytest.mark.parametrize("once", [GONE, LOST])
def test_what_a_table_or_topic_shows_for_a_moment_only_is_no_damage(kind: str, once: Shown) -> None:
    looks = Looks(kind, once, WHOLE)
    assert looks.result() is Result.OK
    assert looks.left == []


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgres", "kafka"])
def test_what_a_second_look_finds_too_is_damage(kind: str) -> None:
    assert Looks(kind, GONE, GONE).result() is Result.UNREADABLE
    assert Looks(kind, GONE, LOST, LOST).result() is Result.LOST
    assert Looks(kind, LOST, GONE, LOST).result() is Result.LOST, "however often that changes"


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg", "postgres", "kafka"])
def test_no_damage_is_told_by_checkpoints_that_were_given_up_meanwhile(kind: str) -> None:
    with pytest.raises(Overtaken):
        Looks(kind, LOST, timelines=("a", "b")).result()
    assert Looks(kind, WHOLE, timelines=("a", "b")).result() is Result.OK


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_a_pipeline_adds_while_a_table_is_read_is_not_looked_at(mode: str) -> None:
    class Growing(Table):
        def added(self, version: int) -> RowDigest | None:
            self._newest += 3
            return super().added(version)

        def whole(self, version: int) -> RowDigest | None:
            self._newest += 3
            return super().whole(version)

    found = of_mode(DECIDED, mode)
    shown = list(compare_table(found, Growing(3, replaces=mode == "overwrite")))
    assert {result for _, result in results(found, shown)} == {Result.OK}


def test_a_pending_epoch_of_another_target_is_not_expected() -> None:
    found = history(checkpoint(3, since=3, committed=False), checkpoint(2), checkpoint(1))
    assert found.pending is None


# checkpoints that are pruned between others, because one of them is pinned


def test_epochs_between_two_that_are_known_are_known_together() -> None:
    assert list(PINNED.stretches()) == [(1, 1), (3, 7)]
    assert PINNED.expected(3, 7) == total(3, 7)
    assert list(history(checkpoint(3), checkpoint(2), checkpoint(1)).stretches()) == []


def test_topics_are_compared_across_pruned_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(epoch: int) -> int:
        return sum(range(epoch + 1))  # an epoch has as many records as its number

    def counted(_: object, records: list[dict[str, Any]]) -> dict[int, RowDigest]:
        epochs = [record[kafka._EPOCH] for record in records]
        return {epoch: RowDigest(epochs.count(epoch), NO_DIGEST) for epoch in set(epochs)}

    records = [
        {"topic": "t", "partition": 0, "offset": offset} for offset in range(ended(2), ended(9))
    ]
    monkeypatch.setattr(kafka, "first_offsets", lambda *_: {"t": {0: 0}})
    monkeypatch.setattr(kafka, "kafka_records", lambda *_, **__: iter(records))
    monkeypatch.setattr(kafka._Records, "digests", counted)
    monkeypatch.setattr(kafka._Records, "_why_only_counted", lambda _: "only counted")
    pinned = SinkHistory(
        sink="bars",
        kind="kafka",
        target="t",
        epochs=tuple(
            type(known)(
                **{name: getattr(known, name) for name in ("epoch", "checkpoint_id", "own")},
                since=1,
                total=known.total,
                point=ReadPoint(
                    "kafka", "t", {"topic": "t", "end_offsets": {"0": ended(known.epoch)}}
                ),
            )
            for known in PINNED.epochs
        ),
    )
    spark: Any = None
    shown = list(kafka.read_kafka(spark, pinned, None, {}))
    assert results(pinned, shown) == [("3 to 8", Result.OK), ("9", Result.OK)]


def test_rows_that_a_table_has_lost_between_two_kept_checkpoints_are_missed() -> None:
    whole: dict[int | None, RowDigest] = {epoch: own(epoch) for epoch in range(1, 10)}
    assert {
        result for _, result in results(PINNED, list(_by_epoch(PINNED, whole, counted="")))
    } == {Result.OK}
    lost = {epoch: rows for epoch, rows in whole.items() if epoch != 5}
    damaged = results(PINNED, list(_by_epoch(PINNED, lost, counted="")))
    assert [epochs for epochs, result in damaged if result.is_damage] == ["3 to 7"]


@pytest.mark.parametrize("left", [range(1, 10), [1, 2, 4, 8, 9], [2, 8, 9], [8, 9]])
def test_no_folder_of_an_epoch_is_gone_without_a_word(left: list[int]) -> None:
    folders = {number: f"/x/epoch={number:06}" for number in left}
    parts = list(_parts(PINNED, folders, []))
    told = [number for first, last, _ in parts for number in range(first, last + 1)]
    assert told == list(range(1, 10))
    for first, last, numbers in parts:
        shows = sum((own(number) for number in numbers if number in folders), RowDigest.empty())
        is_whole = all(number in folders for number in range(first, last + 1))
        assert (shows == PINNED.expected(first, last)) == is_whole
