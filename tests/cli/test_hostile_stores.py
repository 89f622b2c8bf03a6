"""Commands on stores that somebody made up: damage and an exit code, whatever their index says."""

from __future__ import annotations

import base64
import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from seamark import limits, open_store
from seamark._common.files import remove_tree
from seamark.manifest import OperatorCheckpoint
from seamark.manifest.parts import InFlightRecord
from seamark.native.new_checkpoint import PLAN
from seamark.store.index_parts import INDEX, LOG
from tests.cli.support.running import Cli
from tests.store.support.hostile import (
    BASE,
    bomb,
    index_part,
    log_pack,
    packed,
    put_checkpoint,
    put_object,
)
from tests.test_limits import bounded_memory

KEEP = ("--query-id", "keep")
DAMAGED = 3


def restored(cli: Cli, root: Path) -> int:
    code = cli("spark", "restore", root, 1, root.parent / "out", *KEEP)
    left = [name for name in os.listdir(root.parent) if name.startswith(".seamark-restore")]
    assert not left
    assert (code == 0) == (root.parent / "out").exists()
    return code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "state/a\0b",
        "state/0/x",
        "state/0",
        "offsets/",
        "metadata/x",
        "state/" + "a/" * 1500 + "x",
        "state/0/0/" + "a" * 300,
        "state/0/²/1.delta",
        "state/0/" + "9" * 5000 + "/1.delta",
    ],
    ids=lambda path: path[:20],
)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "inline"])
def test_an_odd_path_in_an_index_or_pack_is_damage_to_every_command(
    root: Path, cli: Cli, path: str, shared: bool
) -> None:
    for checkpoint_id in (1, 2):
        if shared:
            held = put_object(root, b"x")
            log = log_pack(index_part([held], [(path, held, False)]))
            put_checkpoint(root, {LOG: log}, shared=[held], checkpoint_id=checkpoint_id)
        else:
            packs = {LOG: log_pack(), "0-x": packed({path: b"x"})}
            put_checkpoint(root, packs, checkpoint_id=checkpoint_id)
    assert restored(cli, root) == DAMAGED
    for command in (["show", root, "1"], ["diff", root, "1", "2"]):
        assert cli(*command) in (0, DAMAGED)  # what is wrong is told by 'verify'
    assert cli("verify", root) == DAMAGED
    assert cli("verify", root, "--read-data") == DAMAGED
    assert cli("recover", root, "--explain") == DAMAGED
    with open_store(root) as store:
        assert store.recover_latest_validated().chosen_id is None


def test_an_index_in_the_sidecar_is_checked_as_well(root: Path, cli: Cli) -> None:
    held = put_object(root, b"x")
    for index, code in (
        (index_part([held], [("state/0/0/1.delta", held, False)]), 0),
        (index_part([held], [("../x", held, False)]), DAMAGED),
        (b"no index", DAMAGED),
    ):
        log = log_pack(index)
        put_checkpoint(
            root, {LOG: OperatorCheckpoint.in_sidecar(0, len(log))}, sidecar=log, shared=[held]
        )
        assert cli("verify", root, "--read-data") == code
        assert cli("recover", root, "--explain") == code


def test_state_of_another_program_under_the_name_of_the_logs_is_left_alone(
    root: Path, cli: Cli
) -> None:
    put_checkpoint(root, {LOG: b"anything"}, native=None, attempt="a")
    assert cli("verify", root, "--read-data") == 0


def test_a_file_that_is_a_folder_too_is_damage(root: Path, cli: Cli) -> None:
    held = [put_object(root, b"x"), put_object(root, b"y")]
    added = [("state/0/0/a", held[0], False), ("state/0/0/a/b", held[1], False)]
    put_checkpoint(root, {LOG: log_pack(index_part(held, added))}, shared=held)
    assert restored(cli, root) == DAMAGED
    assert "as a file and as a folder" in cli.err


def test_one_object_is_not_restored_as_many_files(root: Path, cli: Cli) -> None:
    held = put_object(root, bytes(1 << 20))
    first = index_part([held], [("state/0/0/1.delta", held, False)])
    put_checkpoint(root, {LOG: log_pack(first)}, shared=[held])
    for number in range(2, 4):  # each part is fine by itself
        more = index_part([held], [(f"state/0/0/{number}.delta", held, False)])
        put_checkpoint(
            root,
            {LOG: log_pack(more)},
            shared=[held],
            checkpoint_id=number,
            is_incremental=True,
            parent_id=number - 1,
        )
    assert cli("spark", "restore", root, 3, root.parent / "out", *KEEP) == DAMAGED
    assert restored(cli, root) == 0


def test_small_packs_do_not_unpack_to_very_much_together(root: Path, cli: Cli) -> None:
    zeros = bytes(32 * limits.MIB)
    pack = bomb({"state/0/0/1.delta": zeros})
    packs = {f"{n}-x": bomb({f"state/{n}/0/1.delta": zeros[:-n]}) for n in range(1, 8)}
    put_checkpoint(root, {LOG: log_pack(), "0-x": pack, **packs})
    with bounded_memory():
        assert cli("show", root, "1") == 0
    with bounded_memory():
        assert restored(cli, root) == DAMAGED
    assert "too much for" in cli.err
    with bounded_memory():
        assert cli("verify", root) == DAMAGED


def test_shared_packs_do_not_unpack_to_very_much_together(root: Path, cli: Cli) -> None:
    zeros = bytes(32 * limits.MIB)
    digest = sha256(zeros).digest()
    paths = [f"state/{n}/0/1.delta" for n in range(4)]
    held = [put_object(root, bomb({path: zeros})) for path in paths]
    added = [[path, n, len(zeros), digest, True] for n, path in enumerate(paths)]
    put_checkpoint(root, {LOG: log_pack(index_part(held, added=added))}, shared=held)
    assert cli("verify", root) == DAMAGED
    with bounded_memory():
        assert restored(cli, root) == DAMAGED
    assert "too much for" in cli.err


MANY = b",".join([b"[]"] * 2_000_000)
"""Some kilobytes in a pack, and 128 MB once it is decoded."""


@pytest.mark.parametrize(
    ("path", "document", "told"),
    [
        ("offsets/0", b'v1\n{"conf":{},"x":[%b]}\n{"logOffset":0}' % MANY, "values"),
        ("commits/0", b'v1\n{"nextBatchWatermarkMs":0,"x":[%b]}' % MANY, "values"),
        ("commits/0", b"v1\n{}" + b"\n" * 6_000_000, "lines"),
        (
            "state/0/_metadata/metadata",
            b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},"stateStoreInfo":'
            b'[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}],"x":[%b]}' % MANY,
            "values",
        ),
    ],
)
def test_a_document_of_spark_with_very_many_values_or_lines_is_damage_and_not_decoded(
    root: Path, cli: Cli, path: str, document: bytes, told: str
) -> None:
    pack = bomb({**BASE, path: document, INDEX: index_part()})
    assert len(pack) < limits.MIB // 8
    put_checkpoint(root, {LOG: pack})
    with bounded_memory():
        assert restored(cli, root) == DAMAGED
    assert told in " ".join(cli.err.split())


def test_what_is_dead_in_a_pack_is_not_unpacked(root: Path, cli: Cli) -> None:
    pack = packed({"state/0/0/1.delta": b"x", "state/0/0/2.delta": b"dead"})
    at = pack.index(b"dead")
    held = put_object(root, pack[:at] + b"DEAD" + pack[at + 4 :])
    added = [["state/0/0/1.delta", 0, 1, sha256(b"x").digest(), True]]
    put_checkpoint(root, {LOG: log_pack(index_part([held], added=added))}, shared=[held])
    assert restored(cli, root) == 0


def test_an_index_does_not_unpack_to_very_much(root: Path, cli: Cli) -> None:
    index = index_part(removed=["a" * 3] * 3_000_000)
    log = packed({**BASE, INDEX: index})
    assert len(log) < limits.MIB < len(index)
    put_checkpoint(root, {LOG: log})
    with bounded_memory():
        assert restored(cli, root) == DAMAGED
        assert cli("show", root, "1") == 0
        assert cli("verify", root) == DAMAGED
    assert "claims" in cli.out


def test_an_index_of_very_many_files_is_read(root: Path, cli: Cli) -> None:
    held = put_object(root, b"x")
    paths = [f"state/{n % 7}/{n % 200}/{n}.delta" for n in range(100_000)]
    part = index_part([held], operators=[f"{n}-x" for n in range(7)], removed=paths)
    put_checkpoint(root, {LOG: log_pack(part)}, shared=[held])
    assert cli("verify", root) == 0
    assert restored(cli, root) == 0


def test_operators_that_share_bytes_of_the_sidecar_are_damage(root: Path, cli: Cli) -> None:
    pack = packed({"state/0/0/1.delta": b"x"})
    same = {f"{n}-x": OperatorCheckpoint.in_sidecar(0, len(pack)) for n in range(1000)}
    put_checkpoint(root, {LOG: log_pack(), **same}, sidecar=pack)
    assert cli("verify", root) == DAMAGED
    assert "the same bytes" in cli.out
    assert restored(cli, root) == DAMAGED


def test_no_more_is_read_of_a_sidecar_than_its_manifest_says(root: Path, cli: Cli) -> None:
    log = log_pack()
    folder = put_checkpoint(root, {LOG: OperatorCheckpoint.in_sidecar(0, len(log))}, sidecar=log)
    assert restored(cli, root) == 0
    os.rename(root.parent / "out", root.parent / "first")
    os.truncate(folder / "state.bin", 1 << 42)  # without a limit nothing here would end
    with bounded_memory():
        assert cli("verify", root, "--read-data") == DAMAGED
        assert restored(cli, root) == DAMAGED
        assert cli("show", root, "1") in (0, DAMAGED)


def test_a_pack_that_is_one_large_hole_is_not_held_in_memory(root: Path, cli: Cli) -> None:
    held = put_object(root, b"", hole=1 << 40)
    log = packed({**BASE, INDEX: index_part([held], [("state/0/0/1.delta", held, True)])})
    put_checkpoint(root, {LOG: log}, shared=[held])
    with bounded_memory():
        assert restored(cli, root) == DAMAGED
    assert "is the most" in cli.err


@pytest.mark.parametrize(
    "sources",
    [
        {"metadata": "x"},
        {"sources/0/x.compact": "v1"},
        {"sources/x.compact": "v1"},
        {"sources/0/" + "9" * 5000 + ".compact": "v1"},
        {"sources/0/" + "9" * 200: "v1"},
        {"sources/0/a\nb": "v1"},
        {"../x/0/1": "v1"},
        {"offsets/0": "v1"},
    ],
    ids=lambda sources: next(iter(sources))[:20],
)
def test_a_plan_holds_entries_of_source_logs_and_nothing_else(
    root: Path, cli: Cli, sources: dict[str, str]
) -> None:
    plan = {"offsets": BASE["offsets/0"].decode(), "sources": sources}
    data = base64.b64encode(json.dumps(plan).encode()).decode()
    put_checkpoint(root, inflight_data={PLAN: [InFlightRecord(1, data)]})
    assert restored(cli, root) == DAMAGED


def test_a_plan_with_an_empty_compaction_is_installed(root: Path, cli: Cli) -> None:
    plan = {"offsets": BASE["offsets/0"].decode(), "sources": {"sources/0/9.compact": ""}}
    data = base64.b64encode(json.dumps(plan).encode()).decode()
    put_checkpoint(root, inflight_data={PLAN: [InFlightRecord(1, data)]})
    assert restored(cli, root) == 0


@pytest.mark.parametrize("folder", ["shared", "checkpoints"])
def test_folders_in_folders_without_end_are_passed_over(root: Path, cli: Cli, folder: str) -> None:
    held = put_object(root, b"x")
    put_checkpoint(root, shared=[held])
    _deep(root / folder, 1100)
    try:
        for command in ("list", "verify", "gc", "doctor"):
            assert cli(command, root) == 0, cli.err
        assert cli("prune", root, "--keep", "1") == 0
    finally:
        remove_tree(str(root))
    assert not root.exists()


def _deep(folder: Path, levels: int) -> None:
    before = os.getcwd()
    os.chdir(folder)
    for _ in range(levels):
        os.mkdir("a")
        os.chdir("a")
    os.chdir(before)
