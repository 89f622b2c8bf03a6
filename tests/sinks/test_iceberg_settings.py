"""The metadata of a table never decides where the user's keys go or which code runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pyiceberg.catalog import Catalog

from seamark import limits
from seamark.errors import RefusedError
from seamark.sinks.iceberg.catalog import Place
from seamark.sources.iceberg.snapshots import IcebergHistory
from seamark.table_formats.iceberg_settings import guard, overruling, static_table
from tests.sinks.support import iceberg

called: list[Mapping[str, str]] = []


class Spy:
    """Code that a table's property names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        called.append(properties)


@pytest.fixture(autouse=True)
def nobody_called() -> None:
    called.clear()


def write_property(folder: Path, name: str, value: str) -> None:
    """As somebody would who can write to the table's folder, and not to the catalog."""
    place = Path(iceberg.make_table(folder).metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata["properties"][name] = value
    place.write_text(json.dumps(metadata))


def load_as_sink(properties: dict[str, str]) -> object:
    return Place(properties, iceberg.TABLE).load()


def load_as_source(properties: dict[str, str]) -> object:
    given = dict(properties)
    return IcebergHistory(given.pop("name"), given, iceberg.TABLE)


@pytest.mark.parametrize("load", [load_as_sink, load_as_source])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3.endpoint", "http://evil.invalid"),
        ("s3.proxy-uri", "http://evil.invalid"),
        ("client.access-key-id", "theirs"),
        ("gcs.service.host", "http://evil.invalid"),
        ("adls.account-host", "evil.invalid"),
        ("hdfs.host", "evil.invalid"),
        ("py-io-impl", f"{__name__}.Spy"),
        ("write.py-location-provider.impl", "shutil.rmtree"),
    ],
)
def test_a_table_that_overrules_its_catalog_is_refused_by_name(
    tmp_path: Path, name: str, value: str, load: Any
) -> None:
    write_property(tmp_path, name, value)
    given = {**iceberg.properties(tmp_path), "s3.secret-access-key": "SECRET"}
    with pytest.raises(RefusedError, match=name) as refused:
        load(given)
    assert "give the catalog the same" in str(refused.value)
    assert value not in str(refused.value)
    assert called == [], "code of the table's choice has run, with the user's secrets"


@pytest.mark.parametrize("load", [load_as_sink, load_as_source])
def test_what_the_catalog_says_as_well_is_the_users_own_choice(tmp_path: Path, load: Any) -> None:
    write_property(tmp_path, "s3.endpoint", "https://mine.invalid")
    load({**iceberg.properties(tmp_path), "s3.endpoint": "https://mine.invalid"})


def test_ordinary_properties_overrule_nothing() -> None:
    usual = ("write.format.default", "write.data.path", "commit.retry.num-retries", "owner")
    assert overruling(dict.fromkeys(usual, "x"), {}) == []


class _Rest:
    """What matters of pyiceberg's REST catalog here: the server's answer becomes a table."""

    properties: ClassVar[dict[str, str]] = {}

    def _response_to_table(self, identifier: tuple[str, ...], response: Any) -> str:
        return f"{'.'.join(identifier)} with {response.config}"


def test_settings_that_a_rest_server_sends_beside_the_metadata_are_used() -> None:
    catalog: Any = _Rest()
    guard(catalog, "here")
    config = {"s3.endpoint": "https://vended.invalid"}
    answer = SimpleNamespace(metadata=SimpleNamespace(properties={}), config=config)
    assert "vended" in catalog._response_to_table(("db", "rows"), answer)
    answer.metadata.properties = config
    with pytest.raises(RefusedError, match=r"s3\.endpoint"):
        catalog._response_to_table(("db", "rows"), answer)


def test_the_catalogs_of_pyiceberg_have_what_is_guarded() -> None:
    from pyiceberg.catalog.rest import RestCatalog

    assert hasattr(RestCatalog, "_response_to_table")
    assert hasattr(Catalog, "_load_file_io")


def metadata_file(folder: Path) -> Path:
    return Path(iceberg.make_table(folder).metadata_location.removeprefix("file://"))


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json"])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_table_is_opened_by_its_metadata_file_or_its_folder(
    tmp_path: Path, ending: str, is_named: bool
) -> None:
    text = metadata_file(tmp_path).read_bytes()
    place = tmp_path / "moved" / "metadata" / f"v1{ending}"
    place.parent.mkdir(parents=True)
    place.write_bytes(gzip.compress(text) if ".gz." in ending else text)
    (place.parent / "version-hint.text").write_text(place.name)
    for location in (place, place.parent.parent):
        table = static_table(f"file://{location}", {}, is_named=is_named)
        assert table.metadata.table_uuid.hex in text.decode().replace("-", "")
        assert table.metadata_location == f"file://{place}"


def test_a_metadata_file_that_only_a_checkpoint_names_is_not_unpacked_without_end(
    tmp_path: Path,
) -> None:
    place = tmp_path / "v1.gz.metadata.json"
    text = metadata_file(tmp_path).read_bytes()
    place.write_bytes(gzip.compress(text + b" " * limits.TABLE_TEXT_FLOOR))
    with pytest.raises(RefusedError, match="unpacks to more than") as refused:
        static_table(f"file://{place}", {}, is_named=False)
    assert refused.value.where == f"file://{place}"
    assert "--target" in (refused.value.hint or "")
    assert static_table(f"file://{place}", {}, is_named=True).metadata.format_version == 2


@pytest.mark.parametrize("damage", ["cut off", "changed", "not zipped"])
def test_a_zipped_metadata_file_that_is_damaged_is_refused(tmp_path: Path, damage: str) -> None:
    zipped = gzip.compress(metadata_file(tmp_path).read_bytes())
    changed = zipped[:30] + b"\xff\xff\xff" + zipped[33:]
    place = tmp_path / "v1.gz.metadata.json"
    place.write_bytes({"cut off": zipped[:99], "changed": changed, "not zipped": b"{}"}[damage])
    with pytest.raises(RefusedError, match="cannot be unpacked"):
        static_table(f"file://{place}", {}, is_named=False)


@pytest.mark.parametrize(
    ("name", "location"),
    [("v1.metadata.json", "metadata/v1.metadata.json"), ("version-hint.text", "")],
)
def test_a_metadata_file_of_any_size_is_not_read_only_because_a_checkpoint_names_it(
    tmp_path: Path, name: str, location: str
) -> None:
    place = tmp_path / "metadata" / name
    place.parent.mkdir()
    with place.open("wb") as file:
        file.truncate(limits.LARGEST_TABLE_FILE + 1)
    with pytest.raises(RefusedError, match=f"it has {limits.LARGEST_TABLE_FILE + 1} bytes"):
        static_table(f"file://{tmp_path}/{location}".rstrip("/"), {}, is_named=False)
