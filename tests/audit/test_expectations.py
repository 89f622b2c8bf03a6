"""What a sink has to show follows from the checkpoints that count, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.audit import kafka
from seamark.audit.expectations import EpochRows, SinkHistory, histories_of, whole_number
from seamark.audit.kafka import _ends_in
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.sinks.read_point import ReadPoint
from seamark.spark.row_digests import FORMULA, RowDigest
from seamark.store.manifest_scan import ScannedCheckpoint


def own(epoch: int) -> RowDigest:
    return RowDigest(epoch, f"{epoch:032x}")


def total(first: int, last: int) -> RowDigest:
    return sum((own(epoch) for epoch in range(first, last + 1)), RowDigest.empty())


def checkpoint(
    number: int,
    epoch: int | None = None,
    *,
    since: int = 1,
    committed: bool = True,
    superseded: bool = False,
    damage: str | None = None,
    digested: bool = True,
    formula: int = FORMULA,
    **fields: Any,
) -> ScannedCheckpoint:
    epoch = epoch or number
    upto = total(since, epoch)
    digest = {
        "rows": own(epoch).rows,
        "digest": own(epoch).digest,
        "since": since,
        "total_rows": upto.rows,
        "total_digest": upto.digest,
        "formula": formula,
    }
    status = SinkCommitStatus.committed() if committed else SinkCommitStatus.pending()
    manifest = CheckpointManifest.new(
        number,
        epoch=epoch,
        sink_names=["bars"],
        sink_commit_statuses={"bars": status},
        structure={"sinks": {"bars": {"kind": "files", "target": "/x", "columns": [["n", "int"]]}}},
        output_digests={"bars": digest} if digested else None,
        **fields,
    )
    return ScannedCheckpoint(number, manifest, damage, superseded=superseded)


def history(*newest_first: ScannedCheckpoint) -> SinkHistory:
    (found,) = histories_of(newest_first)
    return found


def test_epochs_are_told_in_their_order_with_kind_target_and_columns() -> None:
    found = history(checkpoint(3), checkpoint(2), checkpoint(1))
    assert [each.epoch for each in found.epochs] == [1, 2, 3]
    assert (found.kind, found.target, found.columns) == ("files", "/x", (("n", "int"),))
    assert found.expected(1, 3) == total(1, 3)
    assert found.expected(2, 2) == own(2)


def test_pruned_epochs_are_known_by_their_sum() -> None:
    found = history(checkpoint(9), checkpoint(8))
    assert found.expected(1, 7) == total(1, 7)
    assert found.expected(1, 8) == total(1, 8)
    assert found.expected(2, 7) is None, "nothing tells epoch 1 from the others"
    assert found.expected(3, 3) is None


def test_what_was_given_up_or_is_damaged_says_nothing() -> None:
    gone = checkpoint(3, 3, superseded=True, since=1)
    found = history(checkpoint(5, 3), checkpoint(4, 2), gone, checkpoint(2), checkpoint(1))
    assert [(each.epoch, each.checkpoint_id) for each in found.epochs] == [(1, 1), (2, 4), (3, 5)]
    found = history(checkpoint(3), checkpoint(2, damage="broken"), checkpoint(1))
    assert [each.epoch for each in found.epochs] == [1, 3]
    assert found.expected(2, 2) == own(2), "the totals around it tell"


def test_an_epoch_that_is_not_committed_yet_is_not_expected() -> None:
    found = history(checkpoint(3, committed=False), checkpoint(2), checkpoint(1))
    assert found.newest.epoch == 2
    found = history(checkpoint(3), checkpoint(2, committed=False), checkpoint(1))
    assert found.newest.epoch == 3
    assert len(found.epochs) == 3, "no pipeline goes on before"


def test_totals_of_another_target_and_epochs_without_a_digest_end_it() -> None:
    found = history(checkpoint(4, since=3), checkpoint(3, since=3), checkpoint(2), checkpoint(1))
    assert [each.epoch for each in found.epochs] == [3, 4]
    assert found.since == 3
    found = history(checkpoint(3, since=3), checkpoint(2, digested=False), checkpoint(1))
    assert [each.epoch for each in found.epochs] == [3]


def test_a_digest_of_another_formula_is_as_good_as_none() -> None:
    found = history(checkpoint(3, since=3), checkpoint(2, formula=1), checkpoint(1, formula=1))
    assert [each.epoch for each in found.epochs] == [3]
    assert history(checkpoint(1, formula=FORMULA + 1)).epochs == ()


def test_without_any_digest_it_says_so() -> None:
    found = history(checkpoint(1, digested=False))
    assert (found.epochs, found.note) == ((), "no checkpoint has a digest of its rows")
    assert histories_of([]) == []


def test_two_checkpoints_of_one_epoch_are_one_and_know_together_what_to_read() -> None:
    point = {"kind": "files", "target": "/x", "at": {"epoch": 2}}
    found = history(checkpoint(3, 2), checkpoint(2, read_points={"bars": point}), checkpoint(1))
    assert [each.epoch for each in found.epochs] == [1, 2]
    assert found.newest.point is not None
    late = history(checkpoint(2, late_read_points={"1": {"bars": point}}), checkpoint(1))
    assert late.epochs[0].point is not None


@pytest.mark.parametrize(
    "columns", ["n int", [["n"]], [["n", 3]], [3], {"n": "int"}, [["n", "int", "x"]]]
)
def test_columns_of_anybody_are_not_believed(columns: Any) -> None:
    one = checkpoint(1)
    assert one.manifest is not None
    structure = {"sinks": {"bars": {"kind": "files", "columns": columns}}}
    changed = ScannedCheckpoint(
        1, one.manifest.replace(structure=structure), None, superseded=False
    )
    assert history(changed).columns == ()


@pytest.mark.parametrize("epoch", ["9" * 5000, "-1", "²", "1.0", str(2**63), " 1"])
def test_what_no_epoch_can_be_called_is_left_out(epoch: str) -> None:
    odd = checkpoint(2, late_read_points={epoch: {"bars": {"kind": "files", "target": "/x"}}})
    assert [each.epoch for each in history(odd, checkpoint(1)).epochs] == [1, 2]


@pytest.mark.parametrize("number", ["9" * 5000, -1, True, 1.5, 2**70, None, {}, "²"])
def test_a_number_that_no_table_has_is_none(number: object) -> None:
    assert whole_number(number) is None
    assert _ends_in(at(end_offsets={"trades": {"0": number}})) is None
    if isinstance(number, str):
        assert _ends_in(at(end_offsets={"trades": {number: 7}})) is None


@pytest.mark.parametrize("ends", [None, 5, [], {}, {"trades": None}, {"trades": [1]}])
def test_ends_that_are_no_offsets_are_none(ends: object) -> None:
    assert _ends_in(at(end_offsets=ends)) is None


def test_ends_are_read_with_and_without_a_topic() -> None:
    assert _ends_in(at(end_offsets={"trades": {"0": 7}})) == {"trades": {0: 7}}
    assert _ends_in(at(topic="trades", end_offsets={"0": 7})) == {"trades": {0: 7}}


def at(**members: object) -> EpochRows:
    point = ReadPoint("kafka", "trades", members)
    return EpochRows(epoch=1, checkpoint_id=1, own=own(1), since=1, total=total(1, 1), point=point)


@pytest.mark.parametrize("named", [None, "mine:9092"])
def test_a_login_is_never_sent_to_servers_that_only_a_checkpoint_names(
    monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    asked: list[tuple[str, object]] = []

    def ask(servers: str, ends: object, options: object, **_: object) -> dict[str, Any]:
        asked.append((servers, options))
        return {}

    monkeypatch.setattr(kafka, "first_offsets", ask)
    monkeypatch.setattr(kafka, "kafka_records", lambda *given, **more: iter(ask(*given, **more)))
    monkeypatch.setattr(kafka, "compacted_topics", lambda *given: {*ask(*given)})
    ends = {"bootstrap": "theirs:9092", "end_offsets": {"trades": {"0": 7}}}
    points = {"bars": {"kind": "kafka", "target": "trades", "at": ends}}
    found = history(checkpoint(2, read_points=points), checkpoint(1, read_points=points))
    login = {"sasl.password": "hunter2"}
    spark: Any = None
    list(kafka.read_kafka(spark, found, named, login))
    assert asked == [(named or "theirs:9092", login if named else {})] * 3
