"""Rows of state on the page: read by Spark when somebody asks, page by page, bounded."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from seamark import open_store
from seamark._common.progress_bars import Bar
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import RefusedError, SeamarkError
from seamark.native.snapshot import take_snapshot
from seamark.reports.document import Document
from seamark.ui import row_source
from seamark.ui.places import Place
from seamark.ui.row_child import Question
from seamark.ui.row_process import SparkProcess
from seamark.ui.row_source import RowsAsked, RowSource
from seamark.ui.runs import Run, Stopped
from seamark.ui.store_watch import StoreWatch
from tests.checkpoint_dir.support.directories import make_copy
from tests.native.support.inspected import make_hdfs
from tests.native.support.queries import run
from tests.pipeline.support.workloads import write_input
from tests.ui.support.serving import Client, serving, until
from tests.ui.support.stores import NASTY, fill
from tests.ui.test_checks import is_done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHERE = "/api/p/store/rows?checkpoint=2"


def operator(number: int, *stores: str) -> Document:
    one = {"operator": number, "name": "stateStoreSave", "stores": [*stores]}
    return {**one, "join": False, "variables": []}


class Canned:
    """A reader that knows its rows, and waits before it gives them if it is told to."""

    def __init__(self, rows: list[Document]) -> None:
        self.rows = rows
        self.asked: list[RowsAsked] = []
        self.go = threading.Event()
        self.go.set()

    def read(self, asked: RowsAsked, bar: Bar) -> Document:
        self.asked.append(asked)
        with bar("reading rows", 2) as advance:
            advance()
            while not self.go.wait(0.02):
                advance(0)
        page = self.rows[asked.first : asked.first + 50]
        return {
            "operator": asked.operator or 0,
            "name": "stateStoreSave",
            "batch": 1,
            "changes": None,
            "columns": [{"name": "key", "type": "struct<k:int>"}],
            "rows": page,
            "truncated": len(self.rows) > asked.first + 50,
            "first": asked.first,
            "part": "default",
            "partition": asked.partition,
            "operators": [operator(0, "default"), operator(1, "default")],
        }

    def close(self) -> None:
        self.go.set()


@pytest.fixture
def canned(tmp_path: Path) -> Iterator[tuple[Client, Canned]]:
    fill(tmp_path / "store", 2)
    rows = [{"key": {"k": n}, "value": {"count": n * 7}, "partition_id": 0} for n in range(120)]
    reader = Canned([*rows, {"key": {"k": NASTY}, "value": {NASTY: [NASTY]}, "partition_id": 1}])
    url = str(tmp_path / "store")
    watch = StoreWatch(lambda: open_store(url), url)
    place = Place("store", "store", url, lambda: watch, row_reader=lambda _: reader)
    with serving(place) as page:
        page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        yield page, reader


def test_rows_are_read_when_somebody_asks_and_shown_page_by_page(
    canned: tuple[Client, Canned],
) -> None:
    page, reader = canned
    assert "/p/store/rows?checkpoint=2" in page.text("/p/store/checkpoint/2")
    assert "Read the rows" in page.text("/p/store/rows?checkpoint=2")
    assert reader.asked == []  # an address alone reads nothing
    answer = page.post("/p/store/rows?checkpoint=2")
    assert (answer.status, answer.headers["location"]) == (303, "/p/store/rows?checkpoint=2")
    page.until(WHERE, is_done)
    shown = page.text("/p/store/rows?checkpoint=2")
    assert "Rows 1 to 50." in shown
    assert "key.k" in shown
    assert "/p/store/rows?checkpoint=2&amp;from=50" in shown
    assert "seamark spark state --from" in shown
    page.post("/p/store/rows?checkpoint=2&from=100")
    page.until(f"{WHERE}&from=100", is_done)
    last = page.text("/p/store/rows?checkpoint=2&from=100")
    assert "Rows 101 to 121, the last ones." in last
    assert "Next" not in last
    assert "<script>alert" not in last
    assert "&lt;script&gt;" in last
    before = len(reader.asked)
    page.post("/p/store/rows?checkpoint=2")  # those of a checkpoint never change
    assert len(reader.asked) == before


def test_other_operators_and_single_partitions_have_addresses_of_their_own(
    canned: tuple[Client, Canned],
) -> None:
    page, reader = canned
    page.post(WHERE)
    page.until(WHERE, is_done)
    assert "/p/store/rows?checkpoint=2&amp;operator=1" in page.text("/p/store/rows?checkpoint=2")
    page.post(f"{WHERE}&operator=1&partition=0&part=default")
    found = page.until(f"{WHERE}&operator=1&partition=0&part=default", is_done)
    assert found["document"]["operator"] == 1
    assert reader.asked[-1] == RowsAsked(checkpoint=2, operator=1, partition=0, part="default")


def test_rows_are_read_by_one_reading_at_a_time_which_can_be_stopped(
    canned: tuple[Client, Canned],
) -> None:
    page, reader = canned
    reader.go.clear()
    assert page.post(WHERE).status == 200
    assert page.post(f"{WHERE}&operator=1").status == 409
    page.until(WHERE, lambda d: d["step"] == "reading rows" and d["done"] == 1)
    assert "Reading rows" in page.text("/p/store/rows?checkpoint=2")
    page.post("/p/store/rows?checkpoint=2&stop=1")
    assert page.until(WHERE, is_done)["state"] == "stopped"
    reader.go.set()
    assert page.post(f"{WHERE}&operator=1").status == 200


@pytest.mark.parametrize(
    "query", ["checkpoint=x", "operator=-1", "partition=1e3", "from=100001", f"part={'x' * 300}"]
)
def test_an_address_that_makes_no_sense_reads_nothing(
    canned: tuple[Client, Canned], query: str
) -> None:
    page, reader = canned
    assert page.post(f"/api/p/store/rows?{query}").status == 400
    assert page(f"/p/store/rows?{query}").status == 400
    assert reader.asked == []


def test_another_site_cannot_have_rows_read(canned: tuple[Client, Canned]) -> None:
    page, reader = canned
    assert page.post(WHERE, sec_fetch_site="cross-site").status == 403
    assert reader.asked == []


def test_without_a_spark_the_page_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_hdfs(tmp_path / "native")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with serving(tmp_path / "native") as page:
        page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        assert "/p/native/rows" in page.text("/p/native")
        page.post("/p/native/rows")
        found = page.until("/api/p/native/rows", is_done)
        assert found["state"] == "failed"
        assert "seamark[spark,java]" in page.text("/p/native/rows")


# the process


def child(script: str) -> SparkProcess:
    """A process that speaks as the script says, in place of one with Spark."""
    return SparkProcess((sys.executable, "-c", f"import json, os, sys, time\n{script}"))


ECHO = """
for line in sys.stdin:
    print(json.dumps({"step": "reading", "done": 1, "total": 2}), flush=True)
    asked = json.loads(line)["asked"]
    print(json.dumps({"document": {"pid": os.getpid(), "asked": asked}}), flush=True)
"""


def question(**asked: Any) -> Question:
    return Question(url="/s", storage_options={}, is_directory=False, asked=RowsAsked(**asked))


def test_one_process_answers_one_question_after_another() -> None:
    process, run = child(ECHO), Run("rows", 0.0)
    try:
        first = process.ask(question(checkpoint=1), run.bar)
        second = process.ask(question(checkpoint=2, first=50), run.bar)
    finally:
        process.end()
    assert first["pid"] == second["pid"]
    assert (second["asked"]["checkpoint"], second["asked"]["first"]) == (2, 50)
    assert (run.step, run.done, run.total) == ("reading", 1, 2)


def test_the_process_imports_nothing_from_the_folder_that_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    process = SparkProcess()
    nowhere = Question(url="ftp://x", storage_options={}, is_directory=False, asked=RowsAsked())
    try:
        with pytest.raises(SeamarkError):
            process.ask(nowhere, Run("rows", 0.0).bar)
    finally:
        process.end()
    assert not (tmp_path / "ran").exists()


def test_a_process_that_has_ended_meanwhile_is_started_again() -> None:
    once = f"{ECHO.rstrip()}\n    break\n"
    process, run = child(once), Run("rows", 0.0)
    try:
        pids = {process.ask(question(), run.bar)["pid"] for _ in range(3)}
    finally:
        process.end()
    assert len(pids) == 3


def test_a_process_that_dies_is_an_error_and_the_next_question_has_a_new_one() -> None:
    dying = 'sys.stdin.readline(); print(json.dumps({"step": "x"}), flush=True); os._exit(9)'
    process = child(dying)
    for _ in range(2):
        with pytest.raises(SeamarkError, match="died"):
            process.ask(question(), Run("rows", 0.0).bar)


def test_what_the_other_process_says_went_wrong_keeps_its_kind() -> None:
    error = {"what": "too much", "where": "/s", "hint": "less", "type": "RefusedError"}
    process = child(f"sys.stdin.readline(); print({json.dumps(json.dumps({'error': error}))})")
    with pytest.raises(RefusedError, match="too much") as caught:
        process.ask(question(), Run("rows", 0.0).bar)
    process.end()
    assert (caught.value.where, caught.value.hint) == ("/s", "less")


def test_a_reading_that_is_stopped_ends_its_process() -> None:
    process, reading = child('print("{}", flush=True); time.sleep(600)'), Run("rows", 0.0)

    def stop() -> None:
        until(lambda: reading.step, lambda step: step is not None)
        reading.is_stopped = True

    threading.Thread(target=stop).start()
    with pytest.raises(Stopped):
        process.ask(question(), reading.bar)
    assert process._process is None


# Spark itself


@pytest.mark.warm
def test_the_rows_are_those_that_the_query_has_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_source, "STATE_ROWS", 3)
    folder = write_input(tmp_path / "in", 2)
    found = run(spark, "counted-hdfs", folder, tmp_path / "ck", tmp_path / "out")
    rows = [json.loads(row) for batch in sorted(found) for row in found[batch]]
    counts = {row["k"]: row["count"] for row in rows}  # the newest wins
    with open_store(tmp_path / "store") as store:
        take_snapshot(LocalDirectory(tmp_path / "ck"), store)
        number = store.list_ids()[-1]
    directory = RowSource(lambda: spark, directory=lambda: open_directory(tmp_path / "ck"))
    stored = RowSource(lambda: spark, store=lambda: open_store(tmp_path / "store"))
    for source, checkpoint in ((directory, None), (stored, number)):
        seen: dict[int, int] = {}
        while True:
            asked = RowsAsked(checkpoint=checkpoint, first=len(seen))
            page = source.read(asked, Run("rows", 0.0).bar)
            seen |= {row["key"]["k"]: row["value"]["count"] for row in page["rows"]}
            if not page["truncated"]:
                break
        assert seen == counts
        assert page["operators"][0]["operator"] == page["operator"] == 0
        one = source.read(RowsAsked(checkpoint=checkpoint, partition=1), Run("rows", 0.0).bar)
        assert {row["partition_id"] for row in one["rows"]} == {1}
        source.close()


@pytest.mark.spark
def test_the_page_reads_rows_in_a_spark_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_input(tmp_path / "in", 2)
    found = run(spark, "counted-hdfs", folder, tmp_path / "native", tmp_path / "out")
    rows = [json.loads(row) for batch in sorted(found) for row in found[batch]]
    with serving(tmp_path / "native") as page:
        page.until("/api/places", lambda d: d["places"][0]["looked_at_ms"])
        page.post("/api/p/native/rows")
        told = page.until("/api/p/native/rows", is_done)
        assert told["state"] == "done", told
        read = {row["key"]["k"]: row["value"]["count"] for row in told["document"]["rows"]}
        assert read == {row["k"]: row["count"] for row in rows}  # the newest wins
        assert page.text("/p/native/rows")


def test_rows_of_a_store_that_is_begun_anew_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest(directory: LocalDirectory, *_: object) -> Document:
        return {"batch": directory.newest_commit()}

    monkeypatch.setattr(row_source, "read_state", newest)
    source = RowSource(MagicMock, store=lambda: open_store(tmp_path / "store"))
    for batches in (2, 3):
        make_copy(tmp_path / f"{batches}", batches)
        with open_store(tmp_path / "store") as store:
            take_snapshot(LocalDirectory(tmp_path / f"{batches}"), store)
        page = source.read(RowsAsked(checkpoint=1), Run("rows", 0.0).bar)
        assert page["batch"] == batches - 1
        shutil.rmtree(tmp_path / "store")
    source.close()


def test_more_state_than_a_page_may_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "store", 1)
    monkeypatch.setattr(row_source, "MOST_RESTORED_BYTES", 1000)
    source = RowSource(pytest.fail, store=lambda: open_store(tmp_path / "store"))
    with pytest.raises(RefusedError, match="at most 1000 B"):
        source.read(RowsAsked(checkpoint=1), Run("rows", 0.0).bar)
