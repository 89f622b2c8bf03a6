"""Everything about one checkpoint can be read, with exact times and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark import ConnectorCheckpoint, OperatorCheckpoint, open_store
from seamark.cli.app import run
from seamark.manifest import InFlightRecord, SinkCommitStatus
from seamark.state import CheckpointId, CheckpointManifestV2
from seamark.state.catalog import Catalog
from tests.cli.support.stores import (
    COMMITTED,
    Commands,
    flip,
    manifest,
    pack,
    save,
    save_partitioned,
    stored_manifest,
)


def test_a_person_sees_where_the_pipeline_stood(seamark: Commands, store: Path) -> None:
    shown = seamark("show", store, 3)
    assert shown.startswith("Checkpoint 3 · epoch 3\n")
    for told in (
        "trades-0 = 300  trades-1 = 301  trades-2 = 302",
        "this epoch     2026-01-05 09:30:03.000 UTC",
        "next epoch     2026-01-05 09:30:03.500 UTC",
        "incremental, builds on 2, 1",
        "bars   Committed at epoch 3 · exactly once",
        "write  300 ms",
        "stateStoreSave-0  sidecar",
        "driver-1",
        "pipeline hash  77",
    ):
        assert told in shown, told
    assert " UTC (" in shown


def test_json_has_sizes_of_operators_and_partitions(seamark: Commands, store: Path) -> None:
    found = seamark.json("show", store, 3)
    operator = found["operators"]["stateStoreSave-0"]
    # three checkpoints, each with one file for each of two partitions
    assert operator["files"] == 6
    assert operator["partitions"] == {"0": 12000, "1": 6000}
    assert operator["bytes"] == 18000
    assert 0 < operator["new_bytes"] < operator["stored_bytes"]
    assert found["parents"] == [2, 1]
    assert found["sources"]["trades"]["trades-2"] == "302"
    assert found["timings"] == {"begin": 0.01, "write": 0.3, "save": 0.1}
    assert found["configuration"]["sources"] == {"trades": "kafka"}


def test_numbers_of_a_source_whose_name_is_like_that_of_a_password_end_no_command(
    seamark: Commands, store: Path
) -> None:
    name = "password_resets"
    changes: dict[str, Any] = {
        "source_names": [name],
        "source_offsets": {
            name: ConnectorCheckpoint({f"{name}-0": "1"}, 4, {"line": f'{{"{name}":{{"0":1}}}}'})
        },
        "extra": {
            "timings": {name: 0.1},
            "source_latest": {name: f'{{"{name}":{{"0":6}}}}'},
            "source_times": {name: {f"{name}-0": 1_700_000_000_000}},
        },
    }
    with open_store(store) as opened:
        for number in (4, 5):
            marks = {name: 1_767_605_400_000 + number}
            save(opened, number, source_watermarks=marks, **changes)
    for command in (["show", store, 5], ["diff", store, 4, 5], ["list", store]):
        assert name in seamark(*command)
    assert f"source {name}  ***" in seamark("show", store, 5)
    assert run(["list", str(store), "--wide"]) == 0


def test_an_option_that_may_lose_rows_is_shown(seamark: Commands, store: Path) -> None:
    structure = {
        "sources": {"trades": {"format": "kafka", "may_lose": {"failOnDataLoss": "false"}}}
    }
    with open_store(store) as found:
        save(found, 5, extra={"structure": structure})
    words = "source 'trades' may lose rows by failOnDataLoss=false"
    assert f"warning: {words}" in seamark("show", store, 5)
    assert seamark.json("show", store, 5)["may_lose"][0].startswith(words)
    assert seamark.json("show", store, 3)["may_lose"] == []


@pytest.mark.parametrize("name", ["4", "latest", "00000004", "before-upgrade"])
def test_a_checkpoint_is_found_by_any_of_its_names(
    seamark: Commands, store: Path, name: str
) -> None:
    seamark("pin", store, 4, "before-upgrade")
    if name == "00000004":  # digits are always a number: the UUID needs its hyphen
        name = "00000004-0000"
    assert seamark.json("show", store, name)["id"] == 4


def test_a_prefix_of_several_uuids_is_refused(seamark: Commands, store: Path) -> None:
    seamark("show", store, "0000000-", code=1)
    assert "is the beginning of 4 UUIDs" in seamark.err


@pytest.mark.parametrize("name", ["99", "0", "no-such-pin", "abc", "dead-beef"])
def test_a_name_of_nothing_is_told(seamark: Commands, store: Path, name: str) -> None:
    seamark("show", store, name, code=4)
    assert "no checkpoint" in seamark.err


def test_inline_and_partitioned_state_are_shown_too(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        inline = {"dedup": OperatorCheckpoint.inline(pack(p0_5=500, p2_5=300))}
        found.save(manifest(5, operator_states=inline))
    about = seamark.json("show", store, 5)["operators"]["dedup"]
    assert about["place"] == "inline"
    assert about["partitions"] == {"0": 500, "2": 300}
    save_partitioned(store, 6)
    about = seamark.json("show", store, 6)["operators"]["stateStoreSave-0"]
    assert about["place"] == "partitioned"
    assert list(about["partitions"]) == ["0", "1", "2", "3", "4", "5"]
    assert "6, largest" in seamark("show", store, 6)


def test_state_that_a_whole_chain_names_is_read_and_counted_once(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_partitioned(store, 6)
    with open_store(store) as found:
        for number in range(7, 12):
            fields = {"is_incremental": True, "parent_id": number - 1}
            found.save(manifest(number, table_store_checkpoint_path=path, **fields))
    load, read = Catalog.load, list[CheckpointId]()

    def counted(catalog: Catalog, state: CheckpointId) -> CheckpointManifestV2 | None:
        read.append(state)
        return load(catalog, state)

    alone = seamark.json("show", store, 6)["operators"]["stateStoreSave-0"]
    monkeypatch.setattr(Catalog, "load", counted)
    shown = seamark.json("show", store, 11)
    about = shown["operators"]["stateStoreSave-0"]
    assert shown["parents"] == [10, 9, 8, 7, 6]
    assert about == alone | {"new_bytes": 0}
    assert seamark.json("verify", store, 11, "--read-data")["bytes_read"] == 6 * about["bytes"]
    recovery = seamark.json("recover", store, "--explain")
    assert recovery["chosen"]["state_bytes"] == about["bytes"]
    assert len(read) <= 6  # for six checkpoints in each of three commands


def test_state_that_is_no_pack_still_has_a_size(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        state = {"theirs": OperatorCheckpoint.in_sidecar(0, 300_000)}
        found.save_with_state(manifest(5, operator_states=state), [b"x" * 300_000])
    about = seamark.json("show", store, 5)["operators"]["theirs"]
    assert (about["bytes"], about["files"]) == (300_000, None)


def test_a_failed_sink_says_why(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        failed = SinkCommitStatus.failed("disk full")
        save(found, 5, sink_commit_statuses={"bars": COMMITTED, "large": failed})
    shown = seamark("show", store, 5)
    assert "Failed (disk full)" in shown
    assert "commits a failed sink again" in shown


def test_ranges_that_were_rolled_back_twice_are_told_once(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        found.claim()
        found.supersede(4, 4)
        found.supersede(2, 4)
        found.supersede(3, 4)
        save(found, 5, is_incremental=False, parent_id=None)
    assert seamark.json("show", store, 5)["supersedes"] == [[2, 4]]
    assert seamark("show", store, 5).count("supersedes") == 1


def test_a_broken_chain_is_told(seamark: Commands, store: Path) -> None:
    flip(stored_manifest(store, 2))
    shown = seamark("show", store, 3)
    assert "damaged: checkpoint 2: " in shown
    assert "seamark recover store --explain" in shown


def test_a_damaged_manifest_is_damage_and_says_what_to_do(seamark: Commands, store: Path) -> None:
    flip(stored_manifest(store, 4))
    seamark("show", store, 4, code=3)
    assert "seamark recover" in seamark.err


def test_a_snapshot_of_a_query_s_directory_shows_where_it_is_from(
    seamark: Commands, store: Path
) -> None:
    with open_store(store) as found:
        native = {"path": "/queries/trades", "batch": 4}
        records = {"offsets": [InFlightRecord(5, "e30=")]}
        found.save(manifest(5, extra={"native": native}, inflight_data=records))
    shown = seamark("show", store, 5)
    assert "/queries/trades" in shown
    assert "replayed first after a restore" in shown
    assert seamark.json("show", store, 5)["native"] == native
