"""What is remembered of one checkpoint, whatever its manifest says."""

from __future__ import annotations

import time

import pytest

from seamark.store import open_store
from seamark.store.inspection import scan
from seamark.ui.bounds import LONGEST_NOTE, MOST_NAMES
from seamark.ui.points import Point, damage_of, percentile, point_of, status_of
from tests.ui.support.stores import epoch_manifest


def test_a_point_has_the_figures_of_its_manifest() -> None:
    with open_store("memory://") as store:
        made = epoch_manifest(7, newest=7, now_ms=int(time.time() * 1000))
        store.save(made)
        point = point_of(next(scan(store)))
    assert (point.id, point.epoch, point.at_ms) == (7, 7, made.timestamp_ms)
    assert point.phases == made.timings
    assert point.took == pytest.approx(sum((made.timings or {}).values()))
    assert point.lag["trades"] > 0
    assert point.rows == {"bars": 120, "large": 31}
    assert point.is_settled
    assert point.is_full


def test_a_manifest_with_very_many_names_and_long_texts_makes_a_small_point() -> None:
    timings = {f"{'x' * 5000}{number}": 0.1 for number in range(1000)}
    changes = {"extra": {"timings": timings, "timeline": "t" * 5000}}
    with open_store("memory://") as store:
        store.save(epoch_manifest(1, newest=1, now_ms=1, **changes))
        point = point_of(next(scan(store)))
    assert len(point.phases) <= MOST_NAMES
    assert max(map(len, point.phases)) <= LONGEST_NOTE
    assert len(point.timeline or "") <= LONGEST_NOTE + 1


def test_a_checkpoint_whose_parent_is_gone_or_damaged_is_damaged_too() -> None:
    from seamark.store.owner import Owner

    child = Point(2, parent_id=1)
    assert damage_of(child, {}, {2}) == "its parent 1 is gone"
    assert damage_of(child, {1: Point(1, damage="torn")}, {1, 2}) is not None
    assert damage_of(child, {1: Point(1)}, {1, 2}) is None
    assert status_of(child, Owner(), {}, {2}) == "damaged"
    assert status_of(child, Owner(superseded=((2, 2),)), {}, {2}) == "superseded"


@pytest.mark.parametrize(("share", "expected"), [(0.5, 3.0), (0.95, 5.0), (0.0, 1.0)])
def test_percentiles(share: float, expected: float) -> None:
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], share) == expected
    assert percentile([], share) is None
