"""An audit of anybody's store sends the user's keys nowhere, and runs nobody's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark.audit import delta, files, iceberg
from seamark.audit.auditing import Access, _Reading
from seamark.audit.expectations import SinkHistory
from seamark.audit.verdicts import Shown
from seamark.errors import RefusedError, StoreUnavailableError
from seamark.sinks.read_point import ReadPoint
from seamark.table_formats.services import is_same_service
from tests.audit.test_expectations import checkpoint, history
from tests.sinks.support import iceberg as tables

LOGIN = {"s3.access-key-id": "KEY", "s3.secret-access-key": "SECRET"}
SPARK: Any = None
called: list[Mapping[str, str]] = []


class Spy:
    """Code that a table's property names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        called.append(properties)


def of_table(kind: str, target: str, **at: object) -> SinkHistory:
    found = replace(history(checkpoint(1)), kind=kind, target=target, columns=())
    point = ReadPoint(kind, target, dict(at))
    return replace(found, epochs=tuple(replace(each, point=point) for each in found.epochs))


def hostile_metadata(folder: Path, properties: Mapping[str, str]) -> str:
    """The metadata file of a table whose properties are for pyiceberg itself."""
    location = tables.make_table(folder).metadata_location
    path = Path(location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"] |= properties
    path.write_text(json.dumps(metadata))
    return location


@pytest.mark.parametrize("given", [True, False])
def test_the_properties_of_a_table_that_a_checkpoint_names_have_no_say(
    given: bool, tmp_path: Path
) -> None:
    impl = f"{__name__}.{Spy.__name__}"
    location = hostile_metadata(
        tmp_path, {"py-io-impl": impl, "s3.endpoint": "http://evil.invalid"}
    )
    found = of_table("iceberg", "c.n.t", metadata_location=location)
    called.clear()
    opened = iceberg._opened(found, LOGIN, location if given else None, "s3://mine/store")
    assert opened is not None
    table, is_now = opened
    assert (called, is_now) == ([], False)
    assert dict(table.io.properties) == (LOGIN if given else {})


def test_a_configured_catalog_does_not_let_a_table_overrule_it(tmp_path: Path) -> None:
    hostile_metadata(tmp_path, {"s3.endpoint": "http://evil.invalid"})
    properties = tables.properties(tmp_path)
    name = properties.pop("name")
    found = of_table("iceberg", "c.n.t", catalog=name, table=tables.TABLE)
    with pytest.raises(RefusedError, match="overrule"):
        iceberg._opened(found, properties, None, "")


THEIRS = "catalog:\n  theirs:\n    type: rest\n    uri: http://127.0.0.1:9\n"


@pytest.mark.parametrize(
    ("own", "is_home"),
    [(None, False), ("# nothing\n", False), (THEIRS, False), (None, True)],
    ids=["none of the user's", "an empty one", "one of the user's", "the user names the folder"],
)
def test_the_current_folder_configures_no_catalog_that_a_checkpoint_names(
    own: str | None, is_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "store"
    for folder in (home, here):
        folder.mkdir()
    (here / ".pyiceberg.yaml").write_text(THEIRS)
    if own is not None:
        (home / ".pyiceberg.yaml").write_text(own)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    if is_home:
        monkeypatch.setenv("PYICEBERG_HOME", ".")
    loaded: list[str] = []
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name, **_: loaded.append(name))
    found = of_table("iceberg", "c.n.t", catalog="theirs", table="n.t")
    is_named = is_home or own == THEIRS
    with pytest.raises(StoreUnavailableError if is_named else RefusedError) as told:
        iceberg._opened(found, LOGIN, None, "")
    assert loaded == (["theirs"] if is_named else [])
    if not is_named:
        assert "PYICEBERG_HOME=." in (told.value.hint or "")


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/x",
        "hdfs://theirs:9000/x",
        "lakefs://r",
        "lak\tefs://r",
        "\x01hdfs://theirs/x",
        "hdfs\n://theirs/x",
    ],
)
def test_no_server_is_spoken_to_that_no_delta_table_can_be_at(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "_DeltaVersions", lambda *_: pytest.fail("it was opened"))
    (shown,) = delta.read_delta(SPARK, of_table("delta", target), {})
    assert shown.note == "only tables at a path or in a bucket are read"


@pytest.mark.parametrize(
    ("store", "target", "given", "is_sent"),
    [
        ("s3://mine/store", "s3a://tables/bars", None, True),
        ("s3://mine/store", "abfss://c@theirs.dfs.core.windows.net/bars", None, False),
        (
            "abfss://c@mine.dfs.core.windows.net/s",
            "abfss://c@theirs.dfs.core.windows.net/t",
            None,
            False,
        ),
        (
            "abfss://c@mine.dfs.core.windows.net/s",
            "abfss://t@mine.dfs.core.windows.net/t",
            None,
            True,
        ),
        ("s3://mine/store", "/data/bars", None, False),
        ("s3://mine/store", "gs://theirs/bars", "gs://theirs/bars", True),
    ],
)
def test_options_go_to_a_table_that_the_user_names_or_that_is_where_the_store_is(
    store: str, target: str, given: str | None, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Mapping[str, str]] = []

    def read(_: object, __: object, options: Mapping[str, str], *___: object) -> list[Shown]:
        sent.append(options)
        return []

    class Opened:
        url = store

    monkeypatch.setattr(delta, "read_delta", read)
    opened: Any = Opened()
    targets = {"bars": given} if given else {}
    access = Access(targets=targets, storage_options=LOGIN)
    list(_Reading(opened, lambda: SPARK, access, None)._read(of_table("delta", target)))
    assert sent == [LOGIN if is_sent else {}]


@pytest.mark.parametrize(
    "url", ["", "/data", "file:///data", "http://[", "https://s3/x", "memory://"]
)
def test_what_is_in_no_bucket_is_in_no_service(url: str) -> None:
    assert not is_same_service(url, url)


class Opened:
    """A store, for what an audit asks it."""

    def __init__(self, url: str) -> None:
        self.url = url


def shown_by(found: SinkHistory, given: str | None = None, store: str = "/store") -> list[Shown]:
    opened: Any = Opened(store)
    access = Access(targets={found.sink: given} if given else {})
    return list(_Reading(opened, lambda: SPARK, access, None)._read(found))


class Asked(Exception):
    """A server was asked."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise Asked

    monkeypatch.setattr(files, "HdfsFolder", ask)
    monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFileIO._initialize_fs", ask)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "target", ["hdfs://theirs:9000/x", "HDFS://theirs/x", "hdfs:////theirs/x", "hdfs://u@theirs/x"]
)
@pytest.mark.parametrize("store", ["/store", "s3://theirs/store"])
def test_no_hdfs_is_spoken_to_that_only_a_checkpoint_names(target: str, store: str) -> None:
    (shown,) = shown_by(of_table("files", target), store=store)
    assert (shown.found, shown.damage) == (None, "")
    assert shown.note == "say where its folder is: --target bars=hdfs://…"


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("hdfs://ours/x", "hdfs://ours/x"),
        ("/data/bars", "hdfs://ours/x"),
        ("hdfs:///x", None),
        ("hdfs:/x", None),
    ],
)
def test_an_hdfs_that_the_user_or_hadoops_settings_name_is_read(
    target: str, given: str | None
) -> None:
    with pytest.raises(Asked):
        shown_by(of_table("files", target), given)


ELSEWHERE = ["hdfs://theirs/m/1.metadata.json", "oss://t/1.metadata.json", "hf://t/folder"]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("location", [*ELSEWHERE, "h\tdfs://theirs/m/1.metadata.json"])
def test_no_server_is_asked_for_the_metadata_that_only_a_checkpoint_names(location: str) -> None:
    (shown,) = shown_by(of_table("iceberg", "c.n.t", metadata_location=location))
    assert (shown.found, shown.damage) == (None, "")
    assert shown.note == "say where its metadata file is: --target bars=….metadata.json"


@pytest.mark.usefixtures("asked")
def test_metadata_that_the_user_names_is_read_wherever_it_is() -> None:
    found = of_table("iceberg", "c.n.t", metadata_location="/gone.metadata.json")
    with pytest.raises(StoreUnavailableError):
        shown_by(found, ELSEWHERE[0])


@pytest.mark.parametrize("given", [True, False])
def test_a_table_leads_to_no_other_server_than_its_metadata(given: bool, tmp_path: Path) -> None:
    location = str(tables.make_table(tmp_path).metadata_location)
    found = of_table("iceberg", "c.n.t", metadata_location=location)
    opened = iceberg._opened(found, {}, location if given else None, "")
    assert opened is not None
    io: Any = opened[0].io
    assert io.new_input("/data/x").location == "/data/x"
    io.fs_by_scheme = lambda scheme, _: scheme
    if given:
        assert io.new_input("hdfs://theirs/x")._filesystem == "hdfs"
    else:
        with pytest.raises(RefusedError, match="neither at a path nor in a bucket"):
            io.new_input("hdfs://theirs/x")
