"""Commands on a store whose manifests or packs name files that are none of its own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seamark.manifest import OperatorCheckpoint
from seamark.state.pack import PackBuilder
from seamark.store import open_store
from seamark.store.index_parts import LOG
from tests.checkpoint_dir.support.directories import make_copy
from tests.cli.support.running import Cli
from tests.store.support.conformance.names import resealed
from tests.store.support.examples import example

LARGE = 300_000
KEEP = ("--query-id", "keep")


def snapshots(tmp_path: Path, cli: Cli) -> None:
    """Two stores, each with a snapshot whose state is in a shared object."""
    for name in ("mine", "theirs"):
        make_copy(tmp_path / f"{name}-ck", 3)
        state = tmp_path / f"{name}-ck" / "state" / "0" / "0" / "3.delta"
        state.write_bytes(random.Random(name).randbytes(LARGE))  # too much to be inlined
        assert cli("spark", "snapshot", tmp_path / f"{name}-ck", tmp_path / name) == 0


@pytest.mark.parametrize("prefix", ["../../theirs/shared/", "../theirs/shared/", "", "/"])
def test_a_snapshot_restores_no_file_of_another_store(
    tmp_path: Path, cli: Cli, prefix: str
) -> None:
    snapshots(tmp_path, cli)
    with open_store(tmp_path / "theirs") as other:
        there = other.load_by_id(1)
    assert there is not None
    (shared,) = there.shared_objects
    with open_store(tmp_path / "mine") as store:
        theirs = [prefix + shared.name, shared.size, shared.sha256]
        resealed(store.backend, store._parts.layout.manifest(1), shared_objects=[theirs])
    assert cli("spark", "restore", tmp_path / "mine", 1, tmp_path / "out", *KEEP) == 3
    assert "SHA-256 verified" not in cli.out
    assert not (tmp_path / "out").exists()
    assert cli("verify", tmp_path / "mine", "--read-data") == 3
    assert cli("copy", tmp_path / "mine", tmp_path / "copy") == 3
    assert not list((tmp_path / "copy").glob("shared/*"))


@pytest.mark.parametrize(
    "path", ["../escaped", "/tmp/escaped", "state/../../escaped", "sources\\..\\x", "state//x", ""]
)
def test_a_pack_writes_no_file_outside_of_the_restored_directory(
    tmp_path: Path, cli: Cli, path: str
) -> None:
    builder = PackBuilder()
    builder.add("metadata", b'{"id":"6c1b2d1c-7f41-4b7e-9c53-0c5c5b0a8f11"}')
    builder.add(path, b"planted")
    pack = OperatorCheckpoint.inline(b"".join(builder.finish()))
    with open_store(tmp_path / "store") as store:
        store.save(example(1, operator_states={LOG: pack}))
    before = {each for each in tmp_path.rglob("*") if "store" not in each.parts}
    assert cli("spark", "restore", tmp_path / "store", 1, tmp_path / "out", *KEEP) == 3
    assert "belongs to no working copy" in " ".join(cli.err.split())
    assert {each for each in tmp_path.rglob("*") if "store" not in each.parts} == before


@pytest.mark.parametrize("path", ["../other", "state/../../other", "/other", "state/not-an-id", ""])
def test_partitioned_state_is_only_found_below_the_store(
    tmp_path: Path, cli: Cli, path: str
) -> None:
    with open_store(tmp_path / "store") as store:
        store.save(example(1))
        resealed(store.backend, store._parts.layout.manifest(1), table_store_checkpoint_path=path)
    for command in (["verify"], ["recover", "--explain"]):
        assert cli(command[0], tmp_path / "store", *command[1:]) == 3, cli.out
    assert cli("spark", "restore", tmp_path / "store", 1, tmp_path / "out", *KEEP) == 3
    assert not (tmp_path / "out").exists()
