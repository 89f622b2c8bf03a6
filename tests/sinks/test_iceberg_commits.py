"""An epoch is in the table once, whatever becomes of the answers, the processes and the others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pyiceberg.table
import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import update_table_metadata
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from seamark._common import files
from seamark.errors import DamageError, LineageError, OutcomeUnknownError, RefusedError
from seamark.sinks.contract import Committable, Sink
from seamark.sinks.iceberg import snapshots
from seamark.sinks.iceberg.staging import Staging
from seamark.testing.conformance.sink_examples import NEW, OLD, Writer, epoch, receipt
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten

_WHOSE = ("pipeline", "sink")
COMMIT = SqlCatalog.commit_table
Racer = subprocess.Popen[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    iceberg.make_table(tmp_path)
    return tmp_path


@pytest.fixture
def writer(folder: Path) -> Writer:
    return Writer(lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE), iceberg.frame)


def append_as_somebody_else(folder: Path, numbers: list[int]) -> None:
    iceberg.table_at(folder).append(iceberg.lines(numbers))


@contextmanager
def answers(
    monkeypatch: pytest.MonkeyPatch, *fates: Callable[..., Any]
) -> Iterator[list[Callable[..., Any]]]:
    """The catalog's next answers to commits; afterwards it answers as ever."""
    waiting = list(fates)

    def commit(self: SqlCatalog, *args: Any) -> Any:
        return waiting.pop(0)(self, *args) if waiting else COMMIT(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit)
        yield waiting


def lost_after(error: Exception) -> Callable[..., Any]:
    def fate(self: SqlCatalog, *args: Any) -> Any:
        COMMIT(self, *args)
        raise error

    return fate


def lost_before(error: Exception) -> Callable[..., Any]:
    def fate(self: SqlCatalog, *args: Any) -> Any:
        raise error

    return fate


@pytest.mark.parametrize(
    "error",
    [
        requests.ConnectionError("reset by peer"),
        CommitStateUnknownException("504"),
        TimeoutError("no answer"),
        CommitFailedException("said no, though it had done it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_whose_answer_is_lost_is_looked_up(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    first = writer.prepare([1, 2], epoch(1), "a1")
    with answers(monkeypatch, lost_after(error)) as waiting:
        writer.new_handle().commit(first)
        assert waiting == []
    second = writer.prepare([3], epoch(2), "a2")
    with answers(monkeypatch, lost_before(error), lost_before(error)) as waiting:
        writer.new_handle().commit(second)
        assert waiting == []
    assert iceberg.numbers(folder) == [1, 2, 3]
    assert writer.new_handle().leftovers() == []
    assert iceberg.data_files(folder) == iceberg.referenced_files(folder)


@pytest.mark.parametrize(
    ("named", "raised"),
    [
        ({"mode": "overwrite"}, RefusedError),
        ({"mode": "upsert", "keys": ["word"]}, RefusedError),
        ({"sink": "others"}, DamageError),
        ({"pipeline": "others"}, DamageError),
    ],
    ids=str,
)
def test_a_checkpoint_decides_neither_what_a_commit_removes_nor_whose_rows_it_shows(
    writer: Writer, folder: Path, named: dict[str, Any], raised: type[Exception]
) -> None:
    writer.show([1, 2], epoch(1), "a1")
    append_as_somebody_else(folder, [100])
    other = replace(epoch(2), **{who: name for who, name in named.items() if who in _WHOSE})
    committable = writer.prepare([3], other, "a2")
    with pytest.raises(raised):
        writer.new_handle().commit(committable | named)
    assert iceberg.numbers(folder) == [1, 2, 100]
    if other == epoch(2):
        writer.new_handle().commit(committable)
        assert iceberg.numbers(folder) == [1, 2, 3, 100]


def test_an_outcome_that_nobody_tells_is_said_to_be_unknown_and_found_out_later(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = writer.prepare([1, 2], epoch(1), "a1")
    sink = writer.new_handle()
    with (
        answers(monkeypatch, lost_after(requests.ConnectionError("gone"))),
        monkeypatch.context() as patch,
    ):
        load, calls = SqlCatalog.load_table, iter(range(100))

        def silent(self: SqlCatalog, name: Any) -> Any:
            # the first look and the one inside the commit go well
            if next(calls) > 1:
                raise requests.ConnectionError("gone")
            return load(self, name)

        patch.setattr(SqlCatalog, "load_table", silent)
        with pytest.raises(OutcomeUnknownError, match="is not known"):
            sink.commit(committable)
    sink.commit(committable)
    assert iceberg.numbers(folder) == [1, 2]
    assert sink.committed(OLD, 1) == receipt(1, "a1")


def test_pyiceberg_alone_would_have_doubled_the_rows(folder: Path) -> None:
    """Why there is a loop of our own: a retry that does not look finds its rows missing."""
    stale = iceberg.table_at(folder)
    paths = [task.file.file_path for task in stale.scan().plan_files()]
    assert paths == []
    append_as_somebody_else(folder, [1])
    stale.append(iceberg.lines([1]))
    assert iceberg.numbers(folder) == [1, 1]


def test_others_may_write_at_the_same_time(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(self: SqlCatalog, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", COMMIT)
            append_as_somebody_else(folder, [100])
        return COMMIT(self, *args)

    committable = writer.prepare([1], epoch(1), "a1")
    with answers(monkeypatch, meanwhile, meanwhile):
        writer.new_handle().commit(committable)
    assert iceberg.numbers(folder) == [1, 100, 100]
    mark = iceberg.OUTPUT.mark(iceberg.table_at(folder).metadata)
    assert mark is not None
    assert mark.epoch == 1


def test_the_retries_that_a_table_asks_for_stay_as_they_are(writer: Writer, folder: Path) -> None:
    with iceberg.table_at(folder).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "7"})
    writer.show([1], epoch(1), "a1")
    assert iceberg.table_at(folder).properties["commit.retry.num-retries"] == "7"


RACER = """
import json, sys
from pathlib import Path
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten
folder, mode = Path(sys.argv[1]), sys.argv[2]
keys = "n" if mode == "upsert" else ()
sink = HandWritten(iceberg.properties(folder), iceberg.TABLE, mode, keys=keys)
sink.open("trades", "bars", iceberg.SCHEMA)
print("ready", flush=True)
for line in sys.stdin:
    sink.commit(json.loads(line))
    print("done", flush=True)
"""


@contextmanager
def racing(folder: Path, mode: str = "append", before: str = "") -> Iterator[Racer]:
    """Another process that commits what it is sent."""
    with subprocess.Popen(
        [sys.executable, "-c", before + RACER, str(folder), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: Racer, committable: Committable) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(committable) + "\n")
    process.stdin.flush()


def wait_for(process: Racer, answer: str = "done") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{answer}\n"


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_processes_that_commit_the_same_epochs_show_each_once(folder: Path, mode: str) -> None:
    def make() -> Sink:
        keys = "n" if mode == "upsert" else ()
        return HandWritten(iceberg.properties(folder), iceberg.TABLE, mode, keys=keys)  # type: ignore[arg-type]

    writer = Writer(make, iceberg.frame)
    with racing(folder, mode) as one, racing(folder, mode) as two:
        for racer in (one, two):
            wait_for(racer, "ready")
        for number in range(1, 6):
            committable = writer.prepare([number, -number, 0], epoch(number), f"a{number}")
            for racer in (one, two):
                send(racer, committable)
            for racer in (one, two):
                wait_for(racer)
    zeros = 5 if mode == "append" else 1
    assert iceberg.numbers(folder) == sorted([*range(1, 6), *range(-5, 0), *[0] * zeros])
    assert writer.new_handle().leftovers() == []
    assert iceberg.data_files(folder) == iceberg.referenced_files(folder)


@pytest.mark.spark
def test_a_driver_that_was_stopped_inside_its_commit_does_nothing_when_it_wakes(
    folder: Path, writer: Writer, tmp_path: Path
) -> None:
    """It is stopped between its look at the table and its request, and others move on."""
    gate = tmp_path / "gate"
    stopping = f"""
import os, signal
from pyiceberg.catalog.sql import SqlCatalog
commit = SqlCatalog.commit_table
def stopped(self, *args):
    SqlCatalog.commit_table = commit
    open({str(gate)!r}, "w").close()
    os.kill(os.getpid(), signal.SIGSTOP)
    return commit(self, *args)
SqlCatalog.commit_table = stopped
"""
    first = writer.prepare([1], epoch(1), "a1")
    with racing(folder, before=stopping) as process:
        wait_for(process, "ready")
        send(process, first)
        os.waitpid(process.pid, os.WUNTRACED)
        assert gate.exists()
        writer.new_handle().commit(first)
        writer.show([2], epoch(2), "a2")
        os.kill(process.pid, signal.SIGCONT)
        wait_for(process)
    assert iceberg.numbers(folder) == [1, 2]
    assert writer.new_handle().newest() == receipt(2, "a2")


def test_an_epoch_that_another_process_aborts_during_its_commit_is_not_shown(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.show([1], epoch(1), "a1")
    asleep = writer.stage([2], epoch(2), "a2")
    committable = asleep.prepare()

    def aborted(self: SqlCatalog, *args: Any) -> Any:
        writer.new_handle().abort("a2")
        return COMMIT(self, *args)

    with (
        answers(monkeypatch, aborted),
        pytest.raises(DamageError, match="neither shown nor staged"),
    ):
        asleep.commit(committable)
    assert iceberg.numbers(folder) == [1]
    assert writer.new_handle().newest() == receipt(1, "a1")
    assert writer.new_handle().leftovers() == []
    writer.show([3], epoch(2), "a3")
    assert writer.new_handle().unpublish_after(0) == [1, 2], "the abort is not in the way"


def test_an_abort_that_looked_before_the_commit_takes_nothing(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    late = writer.new_handle()
    withdraw = Staging.withdraw

    def after_a_commit(staging: Staging, attempt: str) -> None:
        writer.new_handle().commit(committable)
        withdraw(staging, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "withdraw", after_a_commit)
        late.abort("a1")
    assert iceberg.numbers(folder) == [1]
    assert writer.new_handle().newest() == receipt(1, "a1")


def test_an_abort_whose_folder_a_commit_clears_away_takes_nothing(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    late, others = writer.new_handle(), iter([writer.new_handle()])
    create = files.create_beside

    def before_a_commit(path: str, *mode: int) -> tuple[int, str]:
        made = create(path, *mode)
        if path.endswith("withdrawn.json"):
            for other in others:
                other.commit(committable)
        return made

    monkeypatch.setattr(files, "create_beside", before_a_commit)
    late.abort("a1")
    assert next(others, None) is None, "the other process has committed"
    assert iceberg.numbers(folder) == [1]
    assert writer.new_handle().newest() == receipt(1, "a1")
    assert writer.new_handle().leftovers() == []


def test_only_an_attempt_that_may_be_decided_is_shut_out_by_a_snapshot(
    writer: Writer, folder: Path
) -> None:
    def snapshots() -> int:
        return len(iceberg.table_at(folder).metadata.snapshots)

    writer.stage([1], epoch(1), "a1")
    own = writer.stage([2], epoch(1), "a2")
    own.prepare()
    own.abort("a2")
    writer.new_handle().abort("a1")
    assert snapshots() == 0
    for number, rows in enumerate(([3], []), start=1):
        writer.prepare(rows, epoch(1), f"b{number}")
        writer.new_handle().abort(f"b{number}")
        assert snapshots() == number
    assert writer.new_handle().leftovers() == []
    assert writer.new_handle().newest() is None
    writer.show([4], epoch(1), "a4")
    assert iceberg.numbers(folder) == [4]


def test_a_mark_outlives_the_snapshots_and_the_records(writer: Writer, folder: Path) -> None:
    committables = [writer.show([n], epoch(n), f"a{n}") for n in (1, 2, 3)]
    append_as_somebody_else(folder, [100])
    table = iceberg.table_at(folder)
    current = table.metadata.current_snapshot_id
    old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    for record in Path(folder).rglob("epochs/*.json"):
        record.unlink()
    sink = writer.new_handle()
    newest = sink.newest()
    assert newest is not None
    assert (newest.epoch, newest.attempt) == (3, "a3")
    for committable in committables:
        sink.commit(committable)
    assert iceberg.numbers(folder) == [1, 2, 3, 100]


def test_what_was_staged_and_is_gone_is_damage_not_an_empty_epoch(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    next(Path(folder).rglob("files.avro")).unlink()
    with pytest.raises(DamageError, match=r"files.avro of a decided epoch is gone"):
        writer.new_handle().commit(committable)


@pytest.mark.parametrize(
    ("harm", "said"),
    [(Path.unlink, "is gone"), (lambda file: os.truncate(file, 100), "has 100 bytes, not ")],
)
def test_a_decided_epoch_whose_rows_were_removed_as_orphans_is_damage_and_the_table_stays_readable(
    writer: Writer, folder: Path, harm: Callable[[Path], None], said: str
) -> None:
    writer.show([1], epoch(1), "a1")
    before = iceberg.data_files(folder)
    committable = writer.prepare([2], epoch(2), "a2")
    (orphan,) = iceberg.data_files(folder) - before
    harm(Path(orphan))
    with pytest.raises(DamageError, match=f"rows of a decided epoch are not all there: .*{said}"):
        writer.new_handle().commit(committable)
    assert iceberg.numbers(folder) == [1]


def test_a_table_that_was_made_again_is_not_taken_for_the_old_one(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    iceberg.catalog_at(folder).drop_table(iceberg.TABLE)
    iceberg.make_table(folder)
    with pytest.raises(LineageError, match="written for another table of this name"):
        writer.new_handle().commit(committable)


def test_an_epoch_that_was_staged_before_the_partitions_changed_is_shown_right(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1, 2, 3], epoch(1), "a1")
    with iceberg.table_at(folder).update_spec() as update:
        update.add_field("n", BucketTransform(2), "part")
    writer.new_handle().commit(committable)
    writer.show([4, 5, 6], epoch(2), "a2")
    assert iceberg.numbers(folder) == [1, 2, 3, 4, 5, 6]
    found = iceberg.table_at(folder).scan(row_filter="n = 2").to_arrow().column("n").to_pylist()
    assert found == [2]
    specs = {task.file.spec_id for task in iceberg.table_at(folder).scan().plan_files()}
    assert specs == {0, 1}


def test_an_epoch_that_was_staged_before_a_column_came_is_shown(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    with iceberg.table_at(folder).update_schema() as update:
        update.add_column("later", LongType())
    writer.new_handle().commit(committable)
    assert iceberg.table_at(folder).scan().to_arrow().to_pylist() == [
        {"n": 1, "word": "1", "later": None}
    ]


def test_many_epochs_do_not_make_many_manifests(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path, properties={"commit.manifest.min-count-to-merge": "3"})
    writer = Writer(lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame)
    for number in range(1, 8):
        writer.show([number], epoch(number), f"a{number}")
    table = iceberg.table_at(tmp_path)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 3
    assert iceberg.numbers(tmp_path) == [*range(1, 8)]
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == "7"


def test_a_commit_copies_the_history_of_a_table_a_few_times_at_most(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.show([1], epoch(1), "a1")
    copies = 0

    def counted(*args: Any, **given: Any) -> Any:
        nonlocal copies
        copies += 1
        return update_table_metadata(*args, **given)

    for module in (snapshots, pyiceberg.table, pyiceberg.catalog):
        monkeypatch.setattr(module, "update_table_metadata", counted)
    writer.show([2], epoch(2), "a2")
    assert 1 <= copies <= 4
    assert iceberg.numbers(folder) == [1, 2]


def test_an_old_table_of_format_version_1_takes_epochs_too(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path, properties={"format-version": "1"})
    writer = Writer(lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame)
    writer.show([1], epoch(1), "a1")
    writer.show([2], epoch(2), "a2")
    assert iceberg.table_at(tmp_path).format_version == 1
    assert writer.new_handle().unpublish_after(1) == [2]
    assert iceberg.numbers(tmp_path) == [1]


def test_files_go_where_the_table_says(tmp_path: Path) -> None:
    data = tmp_path / "elsewhere"
    table_properties = {
        "write.data.path": f"file://{data}",
        "write.object-storage.enabled": "true",
    }
    iceberg.make_table(tmp_path, properties=table_properties)
    writer = Writer(lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame)
    writer.show([1], epoch(1), "a1")
    writer.stage([2], epoch(2), "a2")
    assert len([*data.rglob("*.parquet")]) == 2
    writer.new_handle().abort("a2")
    assert len([*data.rglob("*.parquet")]) == 1
    assert iceberg.numbers(tmp_path) == [1]


def test_field_ids_are_in_the_files_so_that_a_renamed_column_is_still_the_same(
    writer: Writer, folder: Path
) -> None:
    import pyarrow.parquet as pq

    writer.show([1], epoch(1), "a1")
    [path] = iceberg.data_files(folder)
    ids = [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(path)]
    assert ids == [b"1", b"2"]
    with iceberg.table_at(folder).update_schema() as update:
        update.rename_column("word", "text")
    assert iceberg.table_at(folder).scan().to_arrow().to_pylist() == [{"n": 1, "text": "1"}]


# a catalog that lacks what another one had acknowledged


def shown_to_2(writer: Writer, folder: Path) -> Sink:
    """Two epochs by one run, the second of which is not in the copy of the catalog."""
    sink = writer.stage([1], epoch(1), "a1")
    sink.commit(sink.prepare())
    shutil.copy(folder / "catalog.db", folder / "standby.db")
    writer.stage([2], epoch(2), "a2", by=sink)
    sink.commit(sink.prepare())
    return sink


def fail_over(folder: Path) -> None:
    shutil.copy(folder / "standby.db", folder / "catalog.db")


def test_no_epoch_is_written_after_one_that_the_catalog_has_lost(
    writer: Writer, folder: Path
) -> None:
    sink = shown_to_2(writer, folder)
    fail_over(folder)
    with pytest.raises(LineageError, match="no longer shows epoch 2, which was committed"):
        writer.stage([3], epoch(3), "a3", by=sink)
    assert iceberg.numbers(folder) == [1]
    assert sink.leftovers() == []


def test_no_epoch_is_shown_after_one_that_the_catalog_has_lost(
    writer: Writer, folder: Path
) -> None:
    sink = shown_to_2(writer, folder)
    writer.stage([3], epoch(3), "a3", by=sink)
    third = sink.prepare()
    fail_over(folder)
    with pytest.raises(LineageError, match="no longer shows epoch 2, which was committed"):
        sink.commit(third)
    assert iceberg.numbers(folder) == [1]


def test_no_epoch_is_written_after_the_same_number_of_a_history_that_was_given_up(
    writer: Writer, folder: Path
) -> None:
    sink = shown_to_2(writer, folder)
    shutil.copy(folder / "catalog.db", folder / "standby.db")
    assert sink.unpublish_after(1) == [2]
    sink = writer.stage([20], epoch(2, NEW), "b2")
    sink.commit(sink.prepare())
    fail_over(folder)  # to a catalog from before the rollback
    with pytest.raises(LineageError, match="no longer shows epoch 2, which was committed"):
        writer.stage([30], epoch(3, NEW), "b3", by=sink)
    assert iceberg.numbers(folder) == [1, 2]


def test_an_epoch_that_this_run_has_taken_back_is_not_missed(writer: Writer, folder: Path) -> None:
    sink = shown_to_2(writer, folder)
    assert sink.unpublish_after(1) == [2]
    writer.stage([20], epoch(2, NEW), "b2", by=sink)
    sink.commit(sink.prepare())
    assert iceberg.numbers(folder) == [1, 20]
