"""Schema files that a description names: only those of its operator, and only in its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.schema_paths import (
    ROOT_MARK,
    ForeignSchemaError,
    is_same_place,
    schema_paths,
    with_root,
)
from seamark.errors import DamageError
from tests.native.support.inspected import make_schema_here

NOTE = "state/0/_metadata/v2/0"
BELOW = "state/0/_stateSchema/default/0_2375fa5d"


def described(*schemas: object, **more: object) -> str:
    """An operator as Spark 4.3 describes it."""
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}
    fields: dict[str, Any] = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPandasExec"},
        "stateStoreInfo": [store | {"stateSchemaFilePaths": list(schemas)}],
        "operatorPropertiesJson": json.dumps({"timeMode": "NoTime", "stateVariables": []}),
    }
    return "v2\n" + json.dumps(fields | more, separators=(",", ":"), ensure_ascii=False)


def rooted(text: str, root: str) -> str:
    return with_root(NOTE, text.encode(), root).decode()


@pytest.mark.parametrize("root", ["file:/old/a b/ü", "hdfs://nn:8020/x", "s3a://b/c", ROOT_MARK])
def test_of_what_spark_wrote_only_the_directory_changes(root: str) -> None:
    text = described(f"{root}/{BELOW}", f"{root}/state/0/_stateSchema/default/5_ab")
    assert rooted(text, "file:/new") == text.replace(root, "file:/new")
    assert rooted(text, root) == text
    assert rooted(described(), root) == described()


def test_a_path_with_escapes_leads_into_the_directory_like_any_other() -> None:
    named = f"hdfs://127.0.0.1:1/x/{BELOW}"
    for escaped in (
        named.replace("/", "\\/"),
        named.replace("_stateSchema", "\\u005fstateSchema"),
        named.replace("state/0", "state\\u002f0"),
    ):
        assert rooted(described("HERE").replace("HERE", escaped), "file:/new") == described(
            f"file:/new/{BELOW}"
        )


def test_a_directory_may_have_any_name() -> None:
    root = 'file:/a "quoted\\" name'
    text = described(f"{root}/{BELOW}")
    assert rooted(text, ROOT_MARK) == described(f"{ROOT_MARK}/{BELOW}")
    assert rooted(rooted(text, ROOT_MARK), root) == text


@pytest.mark.parametrize(
    "named",
    [
        "hdfs://127.0.0.1:8020/x/schema",
        "file:/elsewhere/schema",
        "schema",
        "",
        "file:/x/state/1/_stateSchema/default/0_a",
        "file:/x/state/00/_stateSchema/default/0_a",
        "file:/x/state/0/_stateSchema/",
        "file:/x/state/0/_stateSchema/default/",
        "file:/x/state/0/_stateSchema/../../../../etc/passwd",
        "file:/x/state/0/_stateSchema/./0_a",
        "file:/x/state/0/_stateSchema//0_a",
        "file:/x/state/0/_stateSchema/a\\..\\b",
        "file:/x/state/0/_stateSchema/default/0_a\n",
        "hd\nfs://h/state/0/_stateSchema/default/0_a",
        "file:/x/state/0/_stateSchema/default/0_a\ud800",
        7,
        None,
        {"path": "hdfs://h/x"},
        [["hdfs://h/x"]],
    ],
)
def test_anything_else_that_is_named_as_a_schema_is_damage(named: object) -> None:
    escaped = json.dumps(named)
    text = described("HERE").replace('"HERE"', escaped)
    with pytest.raises(ForeignSchemaError, match=r"as a schema, which is no file below state/0/"):
        rooted(text, "file:/new")
    with pytest.raises(ForeignSchemaError):
        rooted(text.replace("/", "\\/").replace("v2\\/", "v2/"), "file:/new")


@pytest.mark.parametrize(
    "more",
    [
        {"operatorPropertiesJson": '{"a":"hdfs://h/state/0/_stateSchema/default/0_a"}'},
        {"operatorPropertiesJson": '{"schemaFilePaths":["x"],"stateSchemaFilePaths":["hdfs:a"]}'},
        {"operatorPropertiesJson": r'{"a":["hdfs:\/\/h\/state\/0\/_stateSchema\/0_a"]}'},
        {"anything": ["hdfs://h/state/1/_stateSchema/default/0_a"]},
        {"deep": [{"stateSchemaFilePath": "hdfs://h/x"}]},
    ],
)
def test_a_schema_is_known_wherever_a_description_names_it(more: dict[str, object]) -> None:
    with pytest.raises(ForeignSchemaError):
        rooted(described(f"file:/x/{BELOW}", **more), "file:/new")


_GOOD = described(f"file:/x/{BELOW}").removeprefix("v2\n")
_BAD = described("hdfs://h/x").removeprefix("v2\n")


@pytest.mark.parametrize(
    "data",
    [
        f"v2\r{_BAD}\n{_GOOD}",
        f"v2\r\n{_GOOD}",
        f"\n{_GOOD}",
        _GOOD,
        f"v3\n{_GOOD}",
        f"v2\n{_GOOD}\n{_BAD}",
        f"v2\n{_BAD[:-1]},{_GOOD[1:]}",
        "v2\n" + _GOOD.replace('"stateSchemaFilePaths"', '"stateSchemaFilePaths":[],"s\\u0074ate'
                               'SchemaFilePaths"'),
        "v2\n[]",
        "v2\n{",
        "v2\n" + "[" * 100_000,
        "",
    ],
)  # fmt: skip
def test_what_spark_may_read_in_another_way_is_no_description(data: str) -> None:
    with pytest.raises(DamageError, match="description of stateful operator 0 cannot be read"):
        schema_paths(NOTE, data.encode())


def test_a_description_that_is_not_text_is_damage_and_is_not_shown() -> None:
    with pytest.raises(DamageError, match="it is not UTF-8") as error:
        with_root(NOTE, described().encode() + b"\xff" * 10_000, "file:/new")
    assert len(str(error.value)) < 300


def test_other_files_stay_as_they_are() -> None:
    for path in ("offsets/0", "state/0/_metadata/metadata", "state/0/_stateSchema/default/0_a"):
        assert with_root(path, b"v2\nhdfs://h/x\xff", "file:/new") == b"v2\nhdfs://h/x\xff"


def test_a_directory_that_names_a_foreign_schema_is_not_made_ready(tmp_path: Path) -> None:
    make_schema_here(tmp_path)
    copy = LocalCopy(str(tmp_path), uri="file:/moved")
    copy.rewrite_root()
    assert b'["file:/moved/state/0/_stateSchema/default/0_aa"]' in copy.read(NOTE)
    copy.write(NOTE, copy.read(NOTE).replace(b"file:/moved/state/0/_stateSchema/", b"hdfs://h/"))
    with pytest.raises(DamageError, match="no file below"):
        copy.rewrite_root()


@pytest.mark.parametrize(
    ("named", "uri", "same"),
    [
        ("file:/a/b", "file:/a/b", True),
        ("file:///a/b/", "file:/a/b", True),
        ("/a/b", "file:/a/b", True),
        ("file:/a/c", "file:/a/b", False),
        ("hdfs://h/a/b", "file:/a/b", False),
        ("s3://b/a", "s3a://b/a", True),
        ("s3a://c/a", "s3a://b/a", False),
        ("hdfs:/a", "hdfs://h/a", True),
        ("hdfs://evil/a", "hdfs://h/a", False),
    ],
)
def test_a_directory_is_known_by_any_of_its_names(named: str, uri: str, same: bool) -> None:
    assert is_same_place(named, uri) is same
