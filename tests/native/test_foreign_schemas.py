"""A description of a directory or store never sends Spark to another server or directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.capture import batches
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import DamageError, RefusedError
from seamark.native.inspect.findings import Code, Severity
from seamark.native.repartition import plan_repartition
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.native.state_choice import StateRequest, choose
from seamark.native.state_rows import state_frame
from tests.native.support.inspected import looked_at, make_schema_here, name_schema

NOTE = "state/0/_metadata/v2/0"
HERE = "/state/0/_stateSchema/default/0_aa"
FOREIGN = pytest.mark.parametrize(
    "named",
    [
        "hdfs://127.0.0.1:1/x/schema",
        "hdfs:\\/\\/127.0.0.1:1\\/x\\/schema",
        "file:/elsewhere/schema",
        "hdfs://127.0.0.1:1/x/state/7/_stateSchema/default/0_aa",
        "file:/x/state/0/_stateSchema/../../../secret",
    ],
)
NO_SPARK: Any = None


def naming(root: Path, named: str, note: str = NOTE) -> Path:
    """A directory whose description names this as its schema."""
    make_schema_here(root)
    text = (root / NOTE).read_text()
    (root / note).write_text(text.replace(f"file:{root}{HERE}", named))
    return root


def tree_of(root: Path) -> Tree:
    return Tree.of(LocalDirectory(str(root)))


@FOREIGN
def test_a_directory_that_names_a_foreign_schema_is_never_stored(
    tmp_path: Path, named: str
) -> None:
    root = naming(tmp_path / "a", named)
    with open_store(tmp_path / "store") as store:
        with pytest.raises(DamageError, match="no file below state/0/_stateSchema/"):
            take_snapshot(LocalDirectory(str(root)), store)
        assert store.list_ids() == []


@FOREIGN
def test_a_store_that_names_a_foreign_schema_is_never_restored(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = naming(tmp_path / "a", named)
    with open_store(tmp_path / "store") as store:
        with monkeypatch.context() as unchecked:
            unchecked.setattr(batches, "with_root", lambda _path, data, _root: data)
            taken = take_snapshot(LocalDirectory(str(root)), store)
        with pytest.raises(DamageError, match="no file below state/0/_stateSchema/"):
            restore_directory(store, taken.checkpoint_id, LocalDirectory(str(tmp_path / "b")))


@FOREIGN
def test_an_inspection_tells_a_foreign_schema(tmp_path: Path, named: str) -> None:
    found = looked_at(naming(tmp_path, named)).findings
    assert [(each.code, each.severity) for each in found] == [
        (Code.SCHEMA_ELSEWHERE, Severity.DAMAGE)
    ]
    assert found[0].path == NOTE


def test_an_inspection_looks_at_older_descriptions_too(tmp_path: Path) -> None:
    root = naming(tmp_path, f"file:{tmp_path}{HERE}")
    (root / "state/0/_metadata/v2/1").write_bytes((root / NOTE).read_bytes())
    naming(root, "hdfs://127.0.0.1:1/x")
    (root / "state/0/_metadata/v2/1").write_text(
        (root / NOTE).read_text().replace("hdfs://127.0.0.1:1/x", f"file:{root}{HERE}")
    )
    assert [each.code for each in looked_at(root).findings] == [Code.SCHEMA_ELSEWHERE]
    (root / NOTE).write_text("v2\n{")
    assert [each.code for each in looked_at(root).findings] == [Code.OPERATOR_METADATA_UNREADABLE]


@FOREIGN
def test_state_with_a_foreign_schema_is_never_opened(tmp_path: Path, named: str) -> None:
    tree = tree_of(naming(tmp_path, named))
    with pytest.raises(DamageError, match="no file below state/0/_stateSchema/"):
        choose(tree, StateRequest())
    with pytest.raises(DamageError, match="no file below state/0/_stateSchema/"):
        plan_repartition(tree, 3)


def test_a_schema_of_another_directory_is_not_read_in_place(tmp_path: Path) -> None:
    make_schema_here(tmp_path)
    reading = choose(tree_of(tmp_path), StateRequest())
    name_schema(tmp_path, "/elsewhere")
    tree = tree_of(tmp_path)
    assert choose(tree, StateRequest()).options == reading.options
    with (
        pytest.raises(RefusedError, match="names a schema in another directory") as error,
        state_frame(NO_SPARK, tree, reading),
    ):
        pass
    assert "'file:/elsewhere'" in str(error.value)
    with pytest.raises(RefusedError, match="names a schema in another directory"):
        plan_repartition(tree, 3)
