"""What the commands say that state costs is what a real pipeline has really sent and stored."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore
import pytest

import seamark
from seamark.blobs import object_store
from seamark.capture.observed_cost import ObservedCost, observed_cost
from seamark.capture.state_cost import StateUse, estimate
from seamark.cli.app import run
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink
from seamark.store import CheckpointStore
from tests.cli.support.running import options_of
from tests.support.recording import Recording
from tests.support.servers import ObjectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm

EPOCHS: Final = 8
FULL_EVERY: Final = 5
KEYS, CHANGED, PAYLOAD = 2000, 200, 1000


@dataclass
class FinishedRun:
    """A run of a pipeline, and what it has asked of its store."""

    url: str
    server: ObjectServer
    epochs: list[Counter[str]]
    """Requests of each epoch, from its beginning to that of the next."""
    sizes: dict[str, int]
    """Bytes of every object that the bucket holds in the end."""

    def command(self, capsys: pytest.CaptureFixture[str], *words: object) -> Any:
        given = [*map(str, words), *options_of(self.server), "--json"]
        capsys.readouterr()
        assert run(given) == 0
        return json.loads(capsys.readouterr().out)

    def open(self) -> CheckpointStore:
        return seamark.open_store(self.url, storage_options=self.server.storage_options)

    def bytes_below(self, prefix: str) -> int:
        return sum(size for key, size in self.sizes.items() if key.startswith(prefix))


def write_rows(path: Path, first: int, count: int) -> None:
    """Keys with payloads that do not compress."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    payloads = [os.urandom(PAYLOAD) for _ in range(count)]
    schema = pa.schema([("k", pa.int64()), ("payload", pa.binary())])
    keys = range(first, first + count)
    pq.write_table(pa.table({"k": keys, "payload": payloads}, schema=schema), path)


@pytest.fixture(scope="module")
def finished(
    spark: SparkSession, s3: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> FinishedRun:
    """An epoch that fills the state, and others that change a tenth of it."""
    from pyspark.sql import functions as F

    folder = tmp_path_factory.mktemp("costs")
    (folder / "in").mkdir()
    for number in range(EPOCHS):
        first = 0 if number == 0 else number * CHANGED
        write_rows(folder / "in" / f"{number}.parquet", first, CHANGED if number else KEYS)
    recording, marks = Recording(), list[int]()

    def on_step(step: Step, when: str, _: int) -> None:
        if (step, when) == (Step.BEGIN, "before"):
            marks.append(len(recording.calls))

    url = s3.new_url("pipeline")
    pipeline = seamark.Pipeline(
        "costs",
        url,
        storage_options=s3.storage_options,
        working_copy=folder / "copy",
        output_mode="update",
        full_every=FULL_EVERY,
        on_step=on_step,
    )
    rows = spark.readStream.schema("k bigint, payload binary").option("maxFilesPerTrigger", 1)
    source = pipeline.source("rows", rows.parquet(str(folder / "in")))
    last = source.groupBy("k").agg(F.max("payload").alias("payload"))
    kept = last.select("k", F.length("payload"))
    pipeline.sink("out", kept, FileSink(folder / "out"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "obstore", recording.wrap(obstore, "obstore"))
        pipeline.run()
    names = [call.name for call in recording.calls]
    store = obstore.store.from_url(url, **s3.storage_options)
    sizes = {meta["path"]: meta["size"] for page in obstore.list(store) for meta in page}
    return FinishedRun(url, s3, [Counter(names[a:b]) for a, b in pairwise(marks)], sizes)


@pytest.fixture
def observed(finished: FinishedRun) -> ObservedCost:
    with finished.open() as store:
        return observed_cost(store)


def test_an_estimate_by_a_store_has_the_requests_that_were_counted(
    finished: FinishedRun, observed: ObservedCost
) -> None:
    for epoch in observed.epochs[:-1]:
        counted = finished.epochs[epoch.checkpoint_id - 1]
        assert epoch.cost.writes == counted["put"]
        if not epoch.is_full:  # a full one prunes as well
            assert epoch.cost.reads == counted["get"]


def test_an_estimate_by_figures_has_the_requests_and_bytes_of_the_real_epochs(
    finished: FinishedRun, observed: ObservedCost
) -> None:
    changed = CHANGED * PAYLOAD
    use = StateUse(
        state_bytes=KEYS * PAYLOAD,
        changed_bytes=changed,
        epochs_per_hour=60,
        stores=2,
        provider="hdfs",
        full_every=FULL_EVERY,
    )
    found = estimate(use)
    for counted in finished.epochs[1 : FULL_EVERY - 1]:
        assert (counted["put"], counted["get"]) == (found.epoch.writes, found.epoch.reads)
    assert observed.epoch is not None
    assert observed.epoch.bytes == pytest.approx(found.epoch.bytes, rel=0.15)
    # the last change of each epoch is read as well
    with_changes = KEYS * PAYLOAD + (EPOCHS - 1) * changed
    assert observed.restore.bytes == pytest.approx(with_changes, rel=0.15)
    pruned = finished.epochs[FULL_EVERY]
    before = FULL_EVERY + 1
    assert pruned["get"] - 3 <= 3 + 2 * before
    assert pruned["list"] <= 5


def test_a_restore_reads_what_was_told(finished: FinishedRun, observed: ObservedCost) -> None:
    from seamark.capture.checkpoint_contents import Chain

    recording = Recording()
    with finished.open() as store, pytest.MonkeyPatch.context() as patch:
        newest = store.load_latest()
        assert newest is not None
        chain = Chain.load(store, newest)
        assert chain.index is not None
        patch.setattr(object_store, "obstore", recording.wrap(obstore, "obstore"))
        for shared in chain.index.shared_objects:
            assert sum(len(piece) for piece in store.shared_objects.read(shared)) == shared.size
    counted = sum(call.name == "get" for call in recording.calls)
    assert observed.restore.reads == counted + len(chain.manifests)


def test_the_list_tells_the_bytes_that_the_bucket_holds(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str], observed: ObservedCost
) -> None:
    document = finished.command(capsys, "list", finished.url)
    rows = {row["id"]: row for row in document["checkpoints"]}
    shared, manifests = finished.bytes_below("shared/"), finished.bytes_below("manifests/manifest")
    assert len(rows) == EPOCHS
    assert document["stored_bytes"] == shared + manifests
    assert observed.stored_bytes == shared + manifests
    with finished.open() as store:
        seen: set[str] = set()
        for number in sorted(rows):
            manifest = store.load_by_id(number)
            assert manifest is not None
            named = {each.name for each in manifest.shared_objects}
            new = sum(finished.sizes[f"shared/{name}"] for name in named - seen)
            own = finished.sizes[f"manifests/manifest-{number:06}.json"]
            assert rows[number]["new_bytes"] == new + own
            before = sum(finished.sizes[f"shared/{name}"] for name in seen)
            assert rows[number]["referenced_bytes"] == before
            seen |= named


@pytest.mark.parametrize("number", [1, 4, FULL_EVERY + 1, EPOCHS])
def test_show_tells_new_referenced_and_read_bytes(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """The sixth has the whole index and yet stores no more than the others."""
    document = finished.command(capsys, "show", finished.url, number)
    rows = finished.command(capsys, "list", finished.url)["checkpoints"]
    row = next(row for row in rows if row["id"] == number)
    assert document["size_bytes"] == row["new_bytes"]
    assert document["referenced_bytes"] == row["referenced_bytes"]
    own = [finished.sizes[f"manifests/manifest-{i:06}.json"]
           for i in (number, *document["parents"])]  # fmt: skip
    objects = document["referenced_bytes"] + document["size_bytes"] - own[0]
    assert document["restore_reads_bytes"] == objects + sum(own)
    assert document["full"] is (number in (1, FULL_EVERY + 1))
    if number > 1:
        state = sum(about["new_bytes"] for about in document["operators"].values())
        assert state < 2 * CHANGED * PAYLOAD


def test_the_command_tells_it_as_a_table_and_as_json(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str], observed: ObservedCost
) -> None:
    document = finished.command(capsys, "estimate", finished.url)
    assert observed.epoch is not None
    assert document["epoch"]["bytes"] == observed.epoch.bytes
    assert document["checkpoints"] == EPOCHS
    assert run(["estimate", finished.url, *options_of(finished.server)]) == 0
    assert "an epoch adds" in capsys.readouterr().out
