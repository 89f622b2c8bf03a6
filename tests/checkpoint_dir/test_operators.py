"""State that Spark has written no description of, as in 3.5 and older, is read by its folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seamark import open_store
from seamark.checkpoint_dir.operators import JOIN_STORES, are_of_one_partition
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import DamageError, RefusedError
from seamark.native.inspect.findings import Code
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.native.state_choice import keepers
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import codes, looked_at, packed, write

PARTITIONS = 5
BATCHES = 3

CONF_2_3 = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
KEYED = '{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}}]}'
VALUE = '{"type":"struct","fields":[{"name":"count","type":"long","nullable":false}]}'
NO_KEY = '{"type":"struct","fields":[]}'
LIMIT_KEY = '{"type":"struct","fields":[{"name":"key","type":"void","nullable":true}]}'
LIMIT_VALUE = '{"type":"struct","fields":[{"name":"value","type":"long","nullable":true}]}'
NULL_KEY = b"\x01" + bytes(15)


def make_old(
    root: Path,
    *,
    partitions: int = PARTITIONS,
    stores: Sequence[str] = ("",),
    schema: str | None = None,
    conf: dict[str, str] | None = CONF_2_3,
    operators: int = 1,
    key: bytes | None = None,
) -> Path:
    """A directory of a Spark that described no operator."""
    write(root, "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    for batch in range(BATCHES):
        meta = {"batchWatermarkMs": 0, "batchTimestampMs": batch}
        told = json.dumps(meta if conf is None else meta | {"conf": conf})
        write(root, f"offsets/{batch}", f'v1\n{told}\n{{"logOffset":{batch}}}')
        write(root, f"commits/{batch}", "v1\n{}")
        write(root, f"sources/0/{batch}", source_entry(batch))
        for operator in range(operators):
            for partition in range(partitions):
                for store in stores:
                    name = f"{operator}-{partition}-{store}".encode().ljust(32)
                    rows = {name if key is None else key: str(batch).encode().ljust(8)}
                    place = f"state/{operator}/{partition}/{store}".rstrip("/")
                    write(root, f"{place}/{batch + 1}.delta", packed(rows))
                    if partition == 0 and schema is not None:
                        write(root, f"{place}/_metadata/schema", schema)
    return root


KINDS: dict[str, Callable[[Path], object]] = {
    "Spark 2.2, which pins nothing": lambda root: make_old(root, conf=None),
    "Spark 2.3 to 3.0, which keep no schema": make_old,
    "Spark 3.1 to 3.5": lambda root: make_old(root, schema=KEYED + VALUE),
    "a join": lambda root: make_old(root, stores=JOIN_STORES, schema=KEYED + VALUE),
    "two operators": lambda root: make_old(root, operators=2),
    "no key": lambda root: make_old(root, partitions=1, schema=NO_KEY + VALUE),
    "no key and no schema": lambda root: make_old(root, partitions=1, key=b""),
    "a limit": lambda root: make_old(root, partitions=1, schema=LIMIT_KEY + LIMIT_VALUE),
    "a limit without a schema": lambda root: make_old(root, partitions=1, key=NULL_KEY),
}


def taken(root: Path) -> int:
    with open_store(root.parent / "store") as store:
        return take_snapshot(LocalDirectory(root), store).batch


@pytest.mark.parametrize("kind", KINDS)
def test_state_without_a_description_is_stored_whole_and_comes_back(
    kind: str, tmp_path: Path
) -> None:
    root = tmp_path / "ck"
    KINDS[kind](root)
    assert looked_at(root).findings == []
    assert looked_at(root).restorable == [0, 1, 2]
    assert taken(root) == BATCHES - 1
    with open_store(tmp_path / "store") as store:
        restore_directory(store, 1, LocalDirectory(tmp_path / "new"))
    old, new = LocalCopy(root), LocalCopy(tmp_path / "new")
    state = sorted(old.files_below("state"))
    assert sorted(new.files_below("state")) == state
    assert all(new.read(path) == old.read(path) for path in state)
    assert looked_at(tmp_path / "new").findings == []


def test_what_the_operators_are_is_told_as_far_as_it_can_be_known(tmp_path: Path) -> None:
    make_old(tmp_path / "join", stores=JOIN_STORES)
    KINDS["a limit"](tmp_path / "limit")
    make_old(tmp_path / "other")
    found = {}
    for name in ("join", "limit", "other"):
        seen = looked_at(tmp_path / name).operators[0]
        listed = keepers(Tree.of(LocalDirectory(tmp_path / name)))[0].operator
        assert (seen.name, seen.stores) == (listed.name, listed.stores)
        found[name] = seen.name, seen.partitions, len(seen.stores)
    assert found == {
        "join": ("symmetricHashJoin", PARTITIONS, 4),
        "limit": ("globalLimit", 1, 1),
        "other": ("unknown", PARTITIONS, 1),
    }


LOSSES: dict[str, tuple[str, str]] = {
    "the last partition": ("Spark 2.3 to 3.0, which keep no schema", "0/4"),
    "a partition between others": ("Spark 2.2, which pins nothing", "0/2"),
    "the first partition, which has the schema": ("Spark 3.1 to 3.5", "0/0"),
    "all but the first, of an operator with a key": ("Spark 3.1 to 3.5", "0/[1-4]"),
    "the same where only rows tell": ("Spark 2.3 to 3.0, which keep no schema", "0/[1-4]"),
    "a store of one partition": ("a join", "0/3/left-keyToNumValues"),
    "a store of all partitions": ("a join", "0/*/right-keyWithIndexToValue"),
    "an operator": ("two operators", "0"),
    "a partition of one of two operators": ("two operators", "1/4"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_is_not_taken_for_what_never_was(loss: str, tmp_path: Path) -> None:
    kind, pattern = LOSSES[loss]
    root = tmp_path / "ck"
    KINDS[kind](root)
    for folder in list((root / "state").glob(pattern)):
        shutil.rmtree(folder)
    found = looked_at(root)
    assert set(codes(found)) == {Code.STATE_MISSING}
    assert found.restorable == []
    with pytest.raises(DamageError):
        taken(root)


def test_without_settings_another_operator_tells_how_many_partitions_there_are(
    tmp_path: Path,
) -> None:
    root = make_old(tmp_path / "ck", conf=None, operators=2)
    shutil.rmtree(root / "state" / "1" / "4")
    assert codes(looked_at(root)) == [Code.STATE_MISSING]
    with pytest.raises(DamageError, match="operator 1, partition 4"):
        taken(root)


@pytest.mark.parametrize(("partitions", "proven"), [(5, True), (200, True), (7, False), (1, False)])
def test_a_null_key_proves_a_limit_only_where_a_group_of_null_would_be_elsewhere(
    partitions: int, proven: bool
) -> None:
    assert are_of_one_partition({NULL_KEY}, partitions) is proven
    assert are_of_one_partition({b""}, partitions)
    assert not are_of_one_partition({b"", NULL_KEY}, partitions)
    assert not are_of_one_partition(set(), partitions)


def test_a_description_that_the_query_needs_is_not_made_up(tmp_path: Path) -> None:
    root = make_old(tmp_path / "ck")
    write(root, "state/0/_stateSchema/default/0_aa", b"schema")
    assert codes(looked_at(root)) == [Code.OPERATOR_METADATA_MISSING]
    with pytest.raises(DamageError, match="description of stateful operator 0 is not there"):
        taken(root)


def test_a_directory_without_a_commit_log_is_stored_with_the_batch_that_runs_again(
    tmp_path: Path,
) -> None:
    root = make_old(tmp_path / "ck", conf=None)
    shutil.rmtree(root / "commits")
    assert looked_at(root).would_do.text == "a restart runs batch 2 again from the same offsets"
    with open_store(tmp_path / "store") as store:
        first = take_snapshot(LocalDirectory(root), store)
        assert (first.batch, first.in_flight, first.is_new) == (1, True, True)
        assert not take_snapshot(LocalDirectory(root), store).is_new
        restore_directory(store, 1, LocalDirectory(tmp_path / "new"))
        with pytest.raises(RefusedError, match="cannot be left out"):
            restore_directory(
                store, 1, LocalDirectory(tmp_path / "other"), RestoreOptions(without_plan=True)
            )
    new = LocalCopy(tmp_path / "new")
    assert (new.batches("offsets"), new.batches("commits")) == ([0, 1, 2], [])
    assert sorted(new.names("state/0/4")) == ["1.delta", "2.delta"]
    assert looked_at(tmp_path / "new").would_do == looked_at(root).would_do


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_inspect_and_snapshot_agree_on_what_is_whole(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("agree") / "ck"
    KINDS[data.draw(st.sampled_from(sorted(KINDS)))](root)
    files = sorted(LocalCopy(root).files_below("state"))
    for path in data.draw(st.lists(st.sampled_from(files), max_size=3, unique=True)):
        (root / path).unlink()
    found = looked_at(root)
    try:
        batch = taken(root)
    except DamageError:
        assert found.is_damaged
        assert BATCHES - 1 not in found.restorable
    else:
        assert not found.is_damaged
        assert batch in found.restorable
