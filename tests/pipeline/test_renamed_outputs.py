"""An output that gets another name goes on at its target, exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink, KeyValueSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.upgrades import BEFORE, Counting, counts, rows_of
from tests.pipeline.support.views import shown_in
from tests.pipeline.support.workloads import clock, put_file, values_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

AT: dict[str, Any] = {"at": {"renamed": "counts", "third": "counts"}}
RENAMED: dict[str, Any] = {**AT, "policy": "evolve", "renames": {"counts": "renamed"}}


def shown_once(counting: Counting) -> None:
    """Every row of the input is counted, and no epoch shows a key twice."""
    assert counting.newest("counts") == counts(rows_of(counting.world.folder, 0, 99))
    shows = Counter((row["epoch"], row["k"]) for row in values_in(counting.root / "counts"))
    assert set(shows.values()) == {1}


def test_a_renamed_output_goes_on_at_its_target_and_again_under_a_third_name(
    counting: Counting,
) -> None:
    counting.declare("counts").run()
    counting.world.deliver(BEFORE + 1)
    counting.declare("renamed", **RENAMED).run()
    shown_once(counting)
    counting.world.deliver()
    run = counting.declare("renamed", **AT).run()  # an ordinary start knows it, too
    assert not run.report.fresh_start
    shown_once(counting)
    put_file(counting.world.folder / "orders", 90, [{"id": 1, "k": 1, "v": 1, "t": clock(0)}])
    options = {**AT, "policy": "evolve", "renames": {"renamed": "third"}}
    counting.declare("third=renamed", **options).run()
    shown_once(counting)
    receipt = FileSink(counting.root / "counts").newest()
    assert receipt is not None
    assert receipt.sink == "counts"  # the name that the target has noted in the beginning
    with open_store(counting.root / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        assert newest.target_names == {"third": "counts"}
        assert newest.sink_names == ["third"]


def test_an_epoch_that_was_decided_under_the_old_name_is_finished_under_the_new_one(
    counting: Counting,
) -> None:
    with pytest.raises(SimulatedCrash):
        counting.declare("counts", on_step=crash_at(Step.COMMIT, "before", BEFORE)).run()
    assert FileSink(counting.root / "counts").committed("", BEFORE) is None
    run = counting.declare("renamed", **RENAMED).run()
    assert run.report.finished["renamed"] == "committed from its committable"
    counting.world.deliver()
    counting.declare("renamed", **AT).run()
    shown_once(counting)


def test_the_first_epoch_after_a_rename_is_finished_when_its_commit_was_cut_off(
    counting: Counting,
) -> None:
    counting.declare("counts").run()
    counting.world.deliver()
    hook = crash_at(Step.COMMIT, "before", BEFORE + 1)
    with pytest.raises(SimulatedCrash):
        counting.declare("renamed", **RENAMED, on_step=hook).run()
    counting.world.wipe()
    counting.declare("renamed", **AT).run()
    shown_once(counting)


def test_a_rollback_to_before_the_rename_takes_back_what_was_shown_since(
    counting: Counting,
) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        before = store.list_ids()[-1]
    counting.world.deliver()
    counting.declare("renamed", **RENAMED).run()
    counting.declare("renamed", **AT).rollback(before)
    counting.declare("counts").run()
    shown_once(counting)


def test_the_former_name_is_not_given_to_another_output(counting: Counting) -> None:
    counting.declare("counts").run()
    counting.declare("renamed", **RENAMED).run()
    with open_store(counting.root / "store") as store:
        owner = store.owner()
    at = {"renamed": "counts", "counts": "elsewhere"}
    for policy in ("strict", "evolve"):
        with pytest.raises(RefusedError, match="the output 'counts' cannot have that name"):
            counting.declare("renamed", "counts=rows", at=at, policy=policy).run()
    with open_store(counting.root / "store") as store:
        assert store.owner() == owner


def test_a_view_of_an_output_that_was_renamed_goes_on(counting: Counting) -> None:
    url = f"rocksdb://{counting.root}/view"

    def view(name: str, **options: Any) -> Pipeline:
        p, source = counting.pipeline(**options)
        p.sink(name, source.groupBy("k").count(), KeyValueSink(url, key="k"))
        return p

    with pytest.raises(SimulatedCrash):
        view("counts", on_step=crash_at(Step.COMMIT, "before", BEFORE)).run()
    counting.world.deliver()
    view("renamed", policy="evolve", renames={"counts": "renamed"}).run()
    view("renamed").run()
    shows = {int(key): row["count"] for key, row in shown_in(url).items()}
    assert shows == counts(rows_of(counting.world.folder))
