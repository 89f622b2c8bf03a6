"""An upgrade never gives a function the rows of an epoch that it was called with before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark import open_store
from seamark.errors import LineageError, RefusedError, StoreUnavailableError
from seamark.pipeline.recovery import upgrade
from seamark.sinks import ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.cli.support.stores import flip
from tests.pipeline.support.tables import Table, by_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.warm, pytest.mark.slow]


class Shop:
    """A pipeline of functions alone: nothing but the store remembers its epochs."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.table = Table(root / "table.db")
        (root / "in").mkdir()

    @property
    def store(self) -> Path:
        return self._root / "store"

    def add(self, number: int) -> None:
        lines = [json.dumps({"v": number * 10 + row}) for row in range(10)]
        (self._root / "in" / f"{number}.json").write_text("\n".join(lines))

    def pipeline(self, *, changed: bool, **options: Any) -> seamark.Pipeline:
        made = seamark.Pipeline("shop", self.store, policy="evolve", progress=None, **options)
        reader = self._spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
        rows = made.source("in", reader.json(str(self._root / "in")))
        made.sink("rows", rows, ForeachBatchSink(by_key(self.table), idempotent=True))
        if changed:
            once = rows.dropDuplicates(["v"])
            counted = ForeachBatchSink(lambda df, _: df.count(), idempotent=True, name="more")
            made.sink("more", once, counted)
        return made

    def require_each_row_once(self, files: int) -> None:
        assert self.table.values() == Counter(range(files * 10))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def test_an_upgrade_is_not_made_again_when_an_epoch_has_begun_after_it_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add(0)
    shop.pipeline(changed=False).run()

    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(upgrade, "save_with_retry", away)
        with pytest.raises(StoreUnavailableError):
            shop.pipeline(changed=True).run()
    shop.add(1)
    with pytest.raises(SimulatedCrash):
        shop.pipeline(changed=False, on_step=crash_at("write", "after", 2)).run()
    with pytest.raises(RefusedError, match="epoch 2 was begun"):
        shop.pipeline(changed=True).run()
    shop.pipeline(changed=False).run()  # as the error advises
    shop.pipeline(changed=True).run()
    shop.require_each_row_once(2)


def test_an_upgrade_whose_checkpoint_is_lost_is_not_made_again(shop: Shop) -> None:
    shop.add(0)
    shop.pipeline(changed=False).run()
    shop.add(1)
    shop.pipeline(changed=True).run()
    with open_store(shop.store) as store:
        ids = store.list_ids()
    for number in ids[1:]:
        flip(shop.store / f"checkpoints/checkpoint_{number:06}/manifest.json")
    for _ in range(2):  # a supervisor starts it again
        with pytest.raises((RefusedError, LineageError)):
            shop.pipeline(changed=True).run()
    shop.require_each_row_once(2)


def test_a_lost_epoch_whose_plan_is_there_is_finished_before_its_pipeline_is_changed(
    shop: Shop,
) -> None:
    shop.add(0)
    shop.pipeline(changed=False).run()
    with open_store(shop.store) as store:
        kept = store.list_ids()
    shop.add(1)
    shop.pipeline(changed=False).run()
    with open_store(shop.store) as store:
        lost = {*store.list_ids()}.difference(kept)
    for number in lost:
        flip(shop.store / f"checkpoints/checkpoint_{number:06}/manifest.json")
    with pytest.raises(RefusedError, match="epoch 2 was begun"):
        shop.pipeline(changed=True).run()
    shop.pipeline(changed=False).run()  # as the error advises
    shop.pipeline(changed=True).run()
    shop.require_each_row_once(2)
