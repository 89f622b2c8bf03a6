"""Every epoch records how many rows each output has and which, whatever its sink does with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from seamark import Pipeline, open_store
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import OutputDigest
from seamark.pipeline.epoch.output_digests import carried_digests, recorded_digests
from seamark.sinks import FileSink, ForeachBatchSink, MemorySink
from seamark.sinks.contract import receipt_of
from seamark.spark import observed_digests
from seamark.spark.row_digests import RowDigest, digest_of
from seamark.store.inspection import scan
from tests.cli.support.running import Cli
from tests.pipeline.support.workloads import (
    EPOCHS,
    KINDS,
    orders,
    providers_for,
    put_file,
    run,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.sinks.contract import Epoch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def digests_in(store: Path) -> dict[int, dict[str, OutputDigest]]:
    """By epoch: what its newest checkpoint says."""
    with open_store(store) as opened:
        manifests = [opened.load_by_id(number) for number in opened.list_ids()]
    return {m.epoch: m.output_digests or {} for m in manifests if m is not None}


def as_shown(spark: SparkSession, folder: Path, epoch: int) -> RowDigest:
    rows = spark.read.parquet(str(folder / f"epoch={epoch:06}"))
    return digest_of(rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_has_the_digest_of_what_its_sinks_show(
    spark: SparkSession, input_folder: Path, tmp_path: Path, kind: str
) -> None:
    provider = providers_for(kind)[-1]
    run(spark, kind, provider, input_folder, tmp_path, keep=100)
    digests = digests_in(tmp_path / "store")
    assert len(digests) > EPOCHS
    totals: dict[str, RowDigest] = {}
    for epoch, by_sink in sorted(digests.items()):
        for sink, digest in by_sink.items():
            shown = as_shown(spark, tmp_path / sink, epoch)
            assert (digest.rows, digest.digest) == (shown.rows, shown.digest), (sink, epoch)
            total = totals[sink] = totals.get(sink, RowDigest.empty()) + shown
            assert (digest.total_rows, digest.total_digest) == (total.rows, total.digest)
            assert digest.since == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["windowed", "outer-join", "sessions", "deduplicated"])
def test_runs_partitionings_and_providers_have_equal_digests(
    spark: SparkSession, input_folder: Path, tmp_path: Path, kind: str
) -> None:
    found = []
    for number, provider in enumerate((providers_for(kind)[0], providers_for(kind)[-1])):
        root = tmp_path / str(number)
        more = {"spark.sql.session.timeZone": "Asia/Tokyo"} if number else {}
        with settings_of(spark, {"spark.sql.shuffle.partitions": str(2 + number), **more}):
            options: dict[str, Any] = {"keep": 100, "coalesce": number + 1}
            run(spark, kind, provider, input_folder, root, **options)
        found.append(digests_in(root / "store"))
    assert found[0] == found[1]


def several_actions(rows: DataFrame, _: int) -> None:
    rows.count()
    rows.limit(1).collect()
    rows.collect()


def only_the_first_row(rows: DataFrame, _: int) -> None:
    rows.take(1)


def none_at_all(rows: DataFrame, _: int) -> None:
    pass


@pytest.mark.parametrize("function", [several_actions, only_the_first_row, none_at_all])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.sampled(2)
def test_a_function_may_do_with_its_rows_what_it_likes(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    function: Callable[[DataFrame, int], None],
    beside: bool,
) -> None:
    p = Pipeline("functions", tmp_path / "store", keep=100)
    source = p.source("orders", orders(spark, input_folder))
    p.sink("called", source.select("id", "v"), ForeachBatchSink(function))
    if beside:
        p.sink("files", source.select("id", "v"), FileSink(tmp_path / "files"))
    p.run(available_now=True)
    digests = digests_in(tmp_path / "store")
    rows = spark.read.schema("id int, v int").json(str(input_folder / "orders"))
    total = digests[max(digests)]["called"]
    assert (total.total_rows, total.total_digest) == (digest_of(rows).rows, digest_of(rows).digest)
    if beside:
        assert all(each["called"] == each["files"] for each in digests.values())


class Quiet(MemorySink):
    """Reads all its rows, and in a way that Spark tells no listener of."""

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        df.rdd.count()
        self._last = receipt_of(epoch, attempt)
        self._staged[attempt] = (self._last, [])


@pytest.mark.parametrize("takes_classes", [True, False])
def test_every_epoch_is_digested_whatever_spark_tells_and_takes(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    takes_classes: bool,
) -> None:
    if not takes_classes:
        monkeypatch.setattr(observed_digests, "_sums", lambda _: None)
    p = Pipeline("quiet", tmp_path / "store", keep=100)
    p.sink("rows", p.source("orders", orders(spark, input_folder)), Quiet())
    p.run(available_now=True)
    digests = digests_in(tmp_path / "store")
    assert {each["rows"].since for each in digests.values()} == {1}
    assert digests[max(digests)]["rows"].total_rows > 100


def test_without_digests_nothing_is_recorded_and_with_them_rows_are_shown(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(spark, "stateless", "hdfs", input_folder, tmp_path / "off", digests=False, keep=100)
    assert set(map(len, digests_in(tmp_path / "off" / "store").values())) == {0}
    run(spark, "stateless", "hdfs", input_folder, tmp_path / "on", keep=100)
    cli, store = Cli(capsys), tmp_path / "on" / "store"
    shown = cli.document("show", store, "latest")["sinks"]["main"]["digest"]
    assert shown["rows"] == 1
    assert shown["total_rows"] > 300
    assert cli("show", store, "latest") == 0
    assert "· 1 row" in cli.out
    listed = cli.document("list", store)["checkpoints"]
    assert listed[-1]["rows"].keys() == {"main", "large"}
    assert listed[-1]["rows"]["main"] == 60 > listed[-1]["rows"]["large"] > 0
    first, last = listed[-1]["id"], listed[0]["id"]
    written = cli.document("diff", store, str(first), str(last))["rows"]
    assert written["main"] == shown["total_rows"] - 60


def test_an_epoch_that_is_run_again_has_the_digest_that_it_had(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    run(spark, "windowed", "hdfs", input_folder, tmp_path, keep=100)
    before = digests_in(tmp_path / "store")
    newest = max((tmp_path / "store" / "checkpoints").glob("checkpoint_*"))
    manifest = newest / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])
    run(spark, "windowed", "hdfs", input_folder, tmp_path, keep=100)
    after = digests_in_readable(tmp_path / "store")
    assert after == before


def test_an_audit_does_not_call_rows_edited_that_a_second_computation_does_not_repeat(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions as f

    def run_epoch(number: int) -> None:
        put_file(tmp_path / "in", number, [{"v": number}])
        p = Pipeline("rows", tmp_path / "store", keep=100)
        rows = p.source("in", spark.readStream.schema("v long").json(str(tmp_path / "in")))
        p.sink("drawn", rows.withColumn("r", f.rand()), FileSink(tmp_path / "drawn"))
        p.sink("plain", rows, FileSink(tmp_path / "plain"))
        p.run()

    for number in range(3):
        run_epoch(number)
    newest = max((tmp_path / "store" / "checkpoints").glob("checkpoint_*"))
    (newest / "manifest.json").write_bytes(b"{")
    run_epoch(3)
    digests = digests_in_readable(tmp_path / "store")[4]
    assert {name: each.computed_again for name, each in digests.items()} == {
        "drawn": (3,),
        "plain": (),
    }
    cli = Cli(capsys)
    assert cli("audit", tmp_path / "store") == 0
    assert "epoch 3 lost its checkpoint and was computed again" in cli.out


def digests_in_readable(store: Path) -> dict[int, dict[str, OutputDigest]]:
    with open_store(store) as opened:
        manifests = [one.manifest for one in scan(opened) if one.manifest and not one.damage]
    return {m.epoch: m.output_digests or {} for m in manifests}


# pure


def structure(target: str = "/a", columns: str = "n") -> dict[str, Any]:
    return {"sinks": {"bars": {"kind": "files", "target": target, "columns": [[columns, "int"]]}}}


def parent(**fields: Any) -> CheckpointManifest:
    digests = recorded_digests({"bars": RowDigest(2, "1" * 32)}, 4, structure(), None)
    return CheckpointManifest.new(
        4, epoch=4, structure=structure(), output_digests=digests, **fields
    )


@pytest.mark.parametrize(
    ("now", "since", "total"),
    [(structure(), 4, 5), (structure(target="/b"), 5, 3), (structure(columns="m"), 5, 3)],
)
def test_totals_go_on_where_the_same_columns_go_to_the_same_place(
    now: dict[str, Any], since: int, total: int
) -> None:
    recorded = recorded_digests({"bars": RowDigest(3, "2" * 32)}, 5, now, parent())
    assert recorded is not None
    assert (recorded["bars"]["since"], recorded["bars"]["total_rows"]) == (since, total)
    carried = carried_digests(parent(), now, {"bars": "bars"})
    assert (carried is not None) == (since == 4)


def test_totals_of_a_renamed_output_go_on_at_the_target_that_it_keeps() -> None:
    now = {"sinks": {"candles": structure()["sinks"]["bars"]}}
    carried = carried_digests(parent(), now, {"candles": "bars"})
    assert carried == {"candles": msgspec.to_builtins(parent().output_digests)["bars"]}
    assert carried_digests(parent(), now, {}) is None


def test_an_epoch_without_a_digest_ends_the_totals() -> None:
    silent = parent().replace(output_digests=None)
    recorded = recorded_digests({"bars": RowDigest(3, "2" * 32)}, 5, structure(), silent)
    assert cast("dict[str, Any]", recorded)["bars"]["since"] == 5


def test_digests_of_another_formula_are_not_added_to() -> None:
    digests = {"bars": {**msgspec.to_builtins(parent().output_digests)["bars"], "formula": 1}}
    earlier = parent().replace(output_digests=digests)
    recorded = recorded_digests({"bars": RowDigest(3, "2" * 32)}, 5, structure(), earlier)
    assert cast("dict[str, Any]", recorded)["bars"]["since"] == 5
    assert carried_digests(earlier, structure(), {"bars": "bars"}) == digests
