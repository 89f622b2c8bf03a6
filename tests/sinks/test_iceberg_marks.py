"""The mark of an epoch tells what is to be done with a committable."""

from __future__ import annotations

import time
from collections import deque

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from seamark.errors import DamageError
from seamark.sinks.contract import Identity
from seamark.sinks.iceberg.marks import Mark, Next, Output, judged, parsed, was_taken_away
from seamark.table_formats.iceberg_lineage import lineage

MARK = Mark("t1", 5, "f5", "a5", 77)


def wanted(epoch: int, timeline: str = "t1", attempt: str = "") -> Identity:
    return Identity(timeline, epoch, f"f{epoch}", attempt or f"a{epoch}")


def shown(epoch: int, timeline: str = "t1") -> Mark:
    return Mark(timeline, epoch, f"f{epoch}", f"a{epoch}", 0)


def test_a_mark_comes_back_out_of_its_text() -> None:
    assert parsed(MARK.text) == MARK


@pytest.mark.parametrize("text", ["", "a:b", "t1:five:f5:a5:77", "t1:5:f5:a5:77:more"])
def test_a_mark_that_cannot_be_read_is_damage(text: str) -> None:
    with pytest.raises(DamageError, match="cannot be read"):
        parsed(text)


@pytest.mark.parametrize(
    ("mark", "identity", "record", "expected"),
    [
        (None, wanted(1), None, Next.COMMIT),
        (MARK, wanted(6), None, Next.COMMIT),
        (MARK, wanted(6, "t2"), None, Next.COMMIT),
        (MARK, wanted(5), None, Next.ALREADY_SHOWN),
        (MARK, wanted(5, attempt="other"), None, Next.ANOTHER_SHOWN),
        (MARK, wanted(5, "t2"), None, Next.ANOTHER_SHOWN),
        (MARK, wanted(4), shown(4), Next.ALREADY_SHOWN),
        (MARK, wanted(4, "t2"), shown(4), Next.ANOTHER_SHOWN),
        (MARK, wanted(4, "t2"), shown(4, "t2"), Next.ALREADY_SHOWN),
        (MARK, wanted(4), None, Next.ALREADY_SHOWN),
        (MARK, wanted(4, "t2"), None, Next.ANOTHER_SHOWN),
    ],
)
def test_an_epoch_is_committed_only_when_it_is_later_than_the_mark(
    mark: Mark | None, identity: Identity, record: Mark | None, expected: Next
) -> None:
    assert judged(mark, identity, record) is expected


def test_no_two_outputs_share_a_property() -> None:
    names = [("a.b", "c"), ("a", "b.c"), ("a/b", "c"), ("a%2Eb", "c"), ("ä", "c")]
    made = {Output(*pair).property_name for pair in names}
    assert len(made) == len(names)
    assert Output("trades", "bars").property_name == "seamark.trades.bars"


def metadata_with(parents: dict[int, int | None], current: int) -> TableMetadata:
    made = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///table"
    )
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": parent,
                "sequence-number": number,
                "timestamp-ms": number,
                "manifest-list": "none",
                "summary": {"operation": "append"},
            }
        )
        for number, parent in parents.items()
    ]
    refs = {"main": SnapshotRef.model_validate({"snapshot-id": current, "type": "branch"})}
    changed = {"snapshots": snapshots, "current_snapshot_id": current, "refs": refs}
    return made.model_copy(update=changed)


@pytest.mark.parametrize("parents", [{1: 2, 2: 1}, {2: 2}, {1: 3, 2: 1, 3: 2}])
def test_snapshots_that_go_in_a_circle_are_damage_and_have_an_end(
    parents: dict[int, int | None],
) -> None:
    metadata = metadata_with(parents, current=2)
    with pytest.raises(DamageError, match="go in a circle"):
        deque(lineage(metadata))
    with pytest.raises(DamageError, match="go in a circle"):
        was_taken_away(metadata, 99)


def test_the_way_through_many_snapshots_takes_time_in_proportion_to_them() -> None:
    """pyiceberg looks through the whole list for each parent: minutes for as many as these."""
    count = 50_000
    metadata = metadata_with({n: n - 1 or None for n in range(1, count + 1)}, current=count)
    start = time.process_time()
    assert len(deque(lineage(metadata))) == count
    assert time.process_time() - start < 5
