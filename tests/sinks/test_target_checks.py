"""What cannot work is refused before the first row, in words that help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from seamark import sinks
from seamark.errors import DamageError, InvalidInputError, RefusedError, StoreUnavailableError
from seamark.sinks import (
    ConsoleSink,
    FileSink,
    ForeachBatchSink,
    Guarantee,
    KafkaSink,
    KeyValueSink,
    MemorySink,
    Sink,
)
from tests.sinks.support.hand_written import HandWritten, mount_sinks
from tests.sinks.support.starting import started
from tests.support.disk import SimulatedDisk
from tests.support.recording import Crash, Recording

PLAIN = "n long, word string, day date"


def schema(ddl: str) -> StructType:
    kinds: dict[str, Any] = {
        "long": LongType(),
        "string": StringType(),
        "date": DateType(),
        "binary": BinaryType(),
        "void": NullType(),
        "array": ArrayType(LongType()),
        "struct": StructType([StructField("deep", LongType())]),
    }
    pairs = [part.split() for part in ddl.split(",")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


# the path


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "s3a://b/x", "gs://b/x", "abfss://c@a.dfs/x", "dbfs:/x"]
)
def test_an_object_store_is_refused_with_a_way_out(url: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot write to") as caught:
        FileSink(url)
    assert "DeltaSink" in str(caught.value)


@pytest.mark.parametrize("url", ["s3://key:topsecret@bucket/x", "hdfs://host/x", ""])
def test_a_staging_that_cannot_be_is_refused_in_the_name_of_its_own_sink(url: str) -> None:
    makes: dict[str, Callable[[], Sink]] = {
        "KafkaSink": lambda: KafkaSink("b:9092", "bars", staging=url),
        "KeyValueSink": lambda: KeyValueSink("redis://127.0.0.1/0", key="k", staging=url),
    }
    for name, make in makes.items():
        with pytest.raises(InvalidInputError, match=f"the staging of a {name}") as caught:
            make()
        assert "FileSink" not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_no_secret_of_a_url_is_repeated() -> None:
    with pytest.raises(InvalidInputError) as caught:
        FileSink("s3://key:topsecret@bucket/x?sig=alsosecret")
    assert "secret" not in str(caught.value)


def test_a_path_may_be_text_a_path_or_a_file_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("a b/c", Path("a b/c"), f"file://{tmp_path}/a%20b/c", f"file:{tmp_path}/a b/c/"):
        assert FileSink(given).path == f"{tmp_path}/a b/c"
    for wrong in ("", "a\x00b", 7, "file://host/x"):
        with pytest.raises(InvalidInputError):
            FileSink(wrong)  # type: ignore[arg-type]


def test_nothing_is_made_before_it_is_opened(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "rows")
    assert sink.describe().target == f"{tmp_path}/rows"
    assert (sink.leftovers(), sink.newest(), sink.unpublish_after(0)) == ([], None, [])
    sink.abort("a1")
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    "arguments", [{"format": "xml"}, {"coalesce": 0}, {"coalesce": "some"}, {"coalesce": 1.5}]
)
def test_arguments_that_mean_nothing_are_refused(arguments: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        FileSink(tmp_path, **arguments)


def test_writer_options_do_not_reach_the_description(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, options={"parquet.encryption.key.list": "k:secret"})
    assert "secret" not in str(sink.describe())


# the schema


@pytest.mark.parametrize(
    ("ddl", "arguments", "words"),
    [
        ("n long, epoch long", {}, "event_epoch"),
        ("n long, EPOCH long", {}, "event_epoch"),
        ("n long, N long", {}, "several columns"),
        (PLAIN, {"partition_by": "dya"}, "n, word, day"),
        (PLAIN, {"partition_by": ["day", "word", "n"]}, "no column is left"),
        ("n long, s struct", {"partition_by": "s"}, "name of a folder"),
        ("n long, _kind string", {"partition_by": "_kind"}, "readers skip"),
        ("n long, .kind string", {"partition_by": [".kind"]}, "readers skip"),
        ("n long, a array", {"format": "csv"}, "to_json"),
        ("n long, s struct", {"format": "csv"}, "to_json"),
        ("n long, b binary", {"format": "csv"}, "'b'"),
        ("n long, v void", {}, "'v'"),
    ],
)
def test_a_schema_that_cannot_be_written_or_read_is_refused(
    ddl: str, arguments: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match=words):
        FileSink(tmp_path / "rows", **arguments).open("trades", "bars", schema(ddl))
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv", "orc"])
def test_a_plain_schema_is_fine(file_format: Any, tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "rows", format=file_format, partition_by=["Day"])
    started(sink, schema(PLAIN))
    started(sink, schema(PLAIN))
    assert (tmp_path / "rows" / "_seamark" / "sink.json").is_file()


# whose folder it is


@pytest.mark.parametrize(
    ("pipeline", "sink", "arguments", "words"),
    [
        ("other", "bars", {}, "'trades'"),
        ("trades", "other", {}, "'bars'"),
        ("trades", "bars", {"format": "json"}, "holds parquet"),
        ("trades", "bars", {"partition_by": "day"}, "partitioned by nothing, not by day"),
    ],
)
def test_a_folder_belongs_to_one_output_of_one_pipeline(
    pipeline: str, sink: str, arguments: Any, words: str, tmp_path: Path
) -> None:
    started(FileSink(tmp_path), schema(PLAIN))
    with pytest.raises(RefusedError, match=words):
        FileSink(tmp_path, **arguments).open(pipeline, sink, schema(PLAIN))
    FileSink(tmp_path).open("trades", "bars", schema(PLAIN))


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_inside_of_another_sinks_is_refused(tmp_path: Path, link: bool) -> None:
    outer = tmp_path / "outer"
    started(FileSink(outer), schema(PLAIN))
    inner = outer / "deep/inner"
    if link:
        (tmp_path / "led").symlink_to(outer)
        inner = tmp_path / "led/inner"
    with pytest.raises(RefusedError, match="where readers of another FileSink would see them"):
        FileSink(inner).open("another", "bars", schema(PLAIN))
    (outer / "_seamark/sink.json").unlink()
    (outer / "_delta_log").mkdir()
    with pytest.raises(RefusedError, match="a Delta table, and a vacuum of it may remove them"):
        FileSink(inner).open("another", "bars", schema(PLAIN))
    assert not inner.exists()


def test_a_folder_inside_of_another_sinks_may_have_a_name_that_readers_leave_out(
    tmp_path: Path,
) -> None:
    started(FileSink(tmp_path), schema(PLAIN))
    FileSink(tmp_path / "_late/bars").open("trades", "late", schema(PLAIN))
    with pytest.raises(RefusedError, match="inside of"):
        FileSink(tmp_path / "_seamark/late").open("trades", "late", schema(PLAIN))


def test_a_folder_that_was_begun_inside_of_another_goes_on(tmp_path: Path) -> None:
    started(FileSink(tmp_path / "outer/inner"), schema(PLAIN))
    (tmp_path / "outer/_delta_log").mkdir()
    FileSink(tmp_path / "outer/inner").open("trades", "bars", schema(PLAIN))


@pytest.mark.parametrize(
    "stranger", ["part-0.parquet", "day=1", "epoch=1", "epoch=x", "_spark_metadata", "_delta_log"]
)
def test_a_folder_with_other_rows_is_refused(stranger: str, tmp_path: Path) -> None:
    (tmp_path / stranger).mkdir()
    with pytest.raises(RefusedError, match=r"folder of its own|mix up"):
        FileSink(tmp_path).open("trades", "bars", schema(PLAIN))
    assert not (tmp_path / "_seamark").exists()


def test_hidden_files_and_epochs_of_its_own_are_fine(tmp_path: Path) -> None:
    for name in (".DS_Store", "_SUCCESS", "epoch=000001", "epoch=1000000"):
        (tmp_path / name).mkdir()
    FileSink(tmp_path).open("trades", "bars", schema(PLAIN))


def test_I7_a_flipped_bit_in_the_folders_label_is_noticed(tmp_path: Path) -> None:
    started(FileSink(tmp_path), schema(PLAIN))
    label = tmp_path / "_seamark" / "sink.json"
    whole = label.read_bytes()
    for at in range(len(whole)):
        harmed = bytearray(whole)
        harmed[at] ^= 1 << at % 8
        label.write_bytes(harmed)
        with pytest.raises(DamageError, match=r"sink\.json"):
            FileSink(tmp_path).open("trades", "bars", schema(PLAIN))


def test_the_label_outlives_a_power_cut_though_its_writer_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaths = 0
    while True:
        disk, recording = SimulatedDisk(), Recording(crash_at=deaths + 1, when="after")
        mount_sinks(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        try:
            HandWritten("/lake/rows").open("trades", "bars", None)
        except Crash:
            deaths += 1
        disk = disk.after_kill()
        mount_sinks(monkeypatch, disk, disk.fcntl)
        HandWritten("/lake/rows").open("trades", "bars", None)
        disk = disk.after_power_cut()
        mount_sinks(monkeypatch, disk, disk.fcntl)
        with pytest.raises(RefusedError):
            HandWritten("/lake/rows").open("other", "bars", None)
        if not recording.crashed:
            break
    assert deaths > 5


# the package


@pytest.mark.parametrize("name", sinks.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(sinks, name) is not None
    assert name in dir(sinks)


def test_importing_sinks_does_not_import_spark() -> None:
    code = "import sys, seamark.sinks as s; [getattr(s, n) for n in s.__all__]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith("pyspark")]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'FileSync'"):
        _ = sinks.FileSync  # type: ignore[attr-defined]


def test_only_a_file_sink_promises_exactly_once() -> None:
    told: dict[str, Sink] = {
        "files": FileSink("/x"),
        "function": ForeachBatchSink(print),
        "idempotent function": ForeachBatchSink(print, idempotent=True),
        "memory": MemorySink(),
        "console": ConsoleSink(),
    }
    assert [name for name, sink in told.items() if sink.guarantee.is_transactional] == ["files"]
    assert [name for name, sink in told.items() if sink.remembers] == ["files"]
    assert told["function"].guarantee is Guarantee.AT_LEAST_ONCE
    assert told["idempotent function"].guarantee is Guarantee.IDEMPOTENT


def test_a_folder_is_not_claimed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "_seamark").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreUnavailableError, match="is a link"):
        FileSink(tmp_path / "rows").open("trades", "bars", schema(PLAIN))
    assert [*(tmp_path / "outside").iterdir()] == []
