"""Outputs are compared where both pipelines had the same rows, and nowhere else in silence."""

from __future__ import annotations

from typing import Any

import msgspec

from seamark.manifest import CheckpointManifest
from seamark.manifest.origins import ForkOrigin
from seamark.pipeline.comparison import (
    ComparedStore,
    Comparison,
    Inputs,
    Verdict,
    compare,
    rows_after,
)
from seamark.spark.row_digests import FORMULA, RowDigest


def rows(*numbers: int) -> RowDigest:
    """A digest of made-up rows; additive as the real ones."""
    total = sum(number * 1_000_003 for number in numbers)
    return RowDigest(len(numbers), f"{total:032x}")


class History:
    """A store whose epochs each read rows and write rows."""

    def __init__(self, timeline: str, forked_from: History | None = None, epoch: int = 0) -> None:
        self.timeline = timeline
        self.url = f"/{timeline}"
        self.manifests: list[CheckpointManifest] = []
        self.total, self.since = RowDigest.empty(), epoch + 1
        self.fork = None
        self.next = epoch + 1
        if forked_from is not None:
            self.fork = msgspec.to_builtins(
                ForkOrigin(
                    url=forked_from.url, checkpoint_id=1, timeline=forked_from.timeline, epoch=epoch
                )
            )
            self.manifests.append(
                CheckpointManifest.new(
                    1, epoch=epoch, timeline=timeline, fork=self.fork, structure={}
                )
            )

    def ran(self, read: str, written: RowDigest | None, at: str | None = None) -> History:
        """One more epoch; ``at`` is the position after it."""
        fields: dict[str, Any] = {}
        if written is not None:
            self.total += written
            fields["output_digests"] = {
                "bars": {
                    "rows": written.rows,
                    "digest": written.digest,
                    "since": self.since,
                    "total_rows": self.total.rows,
                    "total_digest": self.total.digest,
                    "formula": FORMULA,
                }
            }
        self.manifests.insert(
            0,
            CheckpointManifest.new(
                self.next + 1,
                epoch=self.next,
                timeline=self.timeline,
                fork=self.fork,
                structure={"name": self.timeline},
                sink_names=["bars"],
                inputs={"trades": {"read": read, **({"at": at} if at else {})}},
                **fields,
            ),
        )
        self.next += 1
        return self


def compared(a: History, b: History, first: int = 0, last: int | None = None) -> Comparison:
    return compare(
        ComparedStore(a.url, tuple(a.manifests)),
        ComparedStore(b.url, tuple(b.manifests)),
        first,
        last,
    )


def test_a_fork_that_does_the_same_is_equal_from_the_fork_on() -> None:
    a = History("a").ran("1", rows(1)).ran("2", rows(2)).ran("3", rows(3))
    b = History("b", a, 1).ran("2", rows(2)).ran("3", rows(3))
    found = compared(a, b)
    assert found.is_related
    assert found.since == 1
    assert [each.epoch for each in found.epochs] == [2, 3]
    assert not found.is_different
    assert found.cumulated is None


def test_the_epoch_and_the_output_that_differ_are_named() -> None:
    a = History("a").ran("1", rows(1)).ran("2", rows(2)).ran("3", rows(3))
    b = History("b", a, 1).ran("2", rows(2)).ran("3", rows(4))
    found = compared(a, b)
    assert found.is_different
    assert [each.epoch for each in found.differing] == [3]
    assert found.differing[0].outputs[0].sink == "bars"
    assert not compared(a, b, last=2).is_different
    assert compared(a, b, 3, 3).is_different


def test_epochs_on_other_rows_are_not_compared_but_all_rows_up_to_one_position_are() -> None:
    a = History("a").ran("1", rows(1), "p1").ran("2", rows(2), "p2").ran("3", rows(3), "p3")
    b = History("b", a, 1).ran("2+3", rows(2, 3), "p3")
    found = compared(a, b)
    assert [each.inputs for each in found.epochs] == [Inputs.OTHER]
    assert found.epochs[0].outputs == ()
    assert found.cumulated is not None
    assert (found.cumulated.a_epoch, found.cumulated.b_epoch) == (3, 2)
    assert found.cumulated.outputs[0].verdict is Verdict.EQUAL
    assert not found.is_different
    assert "do not line up" in " ".join(found.notes)
    wrong = History("b", a, 1).ran("2+3", rows(2, 4), "p3")
    assert compared(a, wrong).is_different


def test_without_a_common_position_nothing_is_claimed() -> None:
    a = History("a").ran("1", rows(1), "p1").ran("2", rows(2), "p2")
    b = History("b", a, 1).ran("x", rows(7), "p9")
    found = compared(a, b)
    assert found.cumulated is None
    assert not found.is_different
    assert "no position" in " ".join(found.notes)


def test_epochs_without_digests_are_told_and_not_called_equal() -> None:
    a = History("a").ran("1", rows(1)).ran("2", None)
    b = History("b", a, 1).ran("2", rows(2))
    found = compared(a, b)
    assert found.epochs[0].outputs[0].verdict is Verdict.UNKNOWN
    assert "no digests" in " ".join(found.notes)


def test_digests_of_another_formula_are_not_compared() -> None:
    a = History("a").ran("1", rows(1)).ran("2", rows(2))
    b = History("b", a, 1).ran("2", rows(2))
    bars = {**msgspec.to_builtins(b.manifests[0].output_digests)["bars"], "formula": 1}
    b.manifests[0] = b.manifests[0].replace(output_digests={"bars": bars})
    assert compared(a, b).epochs[0].outputs[0].verdict is Verdict.UNKNOWN


def test_two_forks_of_one_origin_are_compared_from_the_later_one_on() -> None:
    a = History("a").ran("1", rows(1)).ran("2", rows(2))
    b = History("b", a, 1).ran("2", rows(2)).ran("3", rows(3))
    c = History("c", a, 2).ran("3", rows(4))
    found = compared(b, c)
    assert found.since == 1
    assert [each.epoch for each in found.epochs] == [3]
    assert [each.epoch for each in found.differing] == [3]


def test_stores_that_have_nothing_to_do_with_each_other_are_told() -> None:
    found = compared(History("a").ran("1", rows(1)), History("b").ran("1", rows(1)))
    assert not found.is_related
    assert not found.is_different


def test_the_past_of_the_origin_may_be_pruned() -> None:
    a = History("a").ran("1", rows(1), "p1").ran("2", rows(2), "p2").ran("3", rows(3), "p3")
    b = History("b", a, 1).ran("2+3", rows(2, 3), "p3")
    a.manifests = a.manifests[:1]  # only epoch 3 is left, with the totals since epoch 1
    found = compared(a, b)
    assert found.cumulated is not None
    assert found.cumulated.outputs[0].verdict is Verdict.UNKNOWN
    assert not found.is_different


class Counted(dict[int, CheckpointManifest]):
    """Epochs that are looked up a few times, and not once for each number that there could be."""

    def __contains__(self, epoch: object) -> bool:
        self.asked = getattr(self, "asked", 0) + 1
        assert self.asked < 100
        return super().__contains__(epoch)


def test_an_epoch_of_a_very_high_number_costs_no_more_than_any_other() -> None:
    far = History("a")
    far.next, far.since = 10**18, 0
    epochs = Counted({m.epoch: m for m in far.ran("1", rows(1)).manifests})
    assert rows_after(epochs, 0, 10**18) == {}


def test_outputs_are_gone_through_once_however_many_there_are() -> None:
    store = ComparedStore("/a", tuple(History("a").ran("1", rows(1)).manifests))
    assert store.sinks is store.sinks
    assert store.manifests[0].output_digests is store.manifests[0].output_digests


def test_outputs_without_digests_are_told_once_and_not_for_every_epoch() -> None:
    outputs = ["bars", *(f"out {number}" for number in range(100))]
    a, b = History("a"), History("b")
    for epoch in range(20):
        for each in (a, b):
            each.ran(str(epoch), rows(epoch) if epoch else None)
            each.manifests[0] = each.manifests[0].replace(sink_names=outputs)
    found = compared(a, b)
    assert [[each.sink for each in epoch.outputs] for epoch in found.epochs[:3]] == [
        [],
        ["bars"],
        ["bars"],
    ]
    assert [epoch.undigested for epoch in found.epochs[:3]] == [101, 100, 100]
    assert found.undigested == tuple(outputs[1:])
    assert "no digests" in found.notes[-2]
    assert found.notes[-1] == "100 of 101 outputs have no digest in any such epoch"


def test_an_output_with_digests_of_another_formula_on_both_sides_is_still_named() -> None:
    a, b = History("a").ran("1", rows(1)), History("b").ran("1", rows(1))
    for each in (a, b):
        bars = {**msgspec.to_builtins(each.manifests[0].output_digests)["bars"], "formula": 1}
        each.manifests[0] = each.manifests[0].replace(output_digests={"bars": bars})
    found = compared(a, b).epochs[0]
    assert [(each.sink, each.verdict) for each in found.outputs] == [("bars", Verdict.UNKNOWN)]
    assert found.undigested == 0
