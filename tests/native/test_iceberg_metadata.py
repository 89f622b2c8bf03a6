"""The metadata files of an Iceberg table: which of them counts, and what it says of a query."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from seamark import limits
from seamark.cli.spark.arguments import opened_directory
from seamark.errors import DamageError, RefusedError
from seamark.native.sink_tables import table_at
from seamark.native.table_log import TableAt
from tests.native.support.tables import QUERY, Commits, iceberg_metadata, iceberg_table

OTHER = "11111111-2222-3333-4444-555555555555"


def look(table: Path, batch: int) -> TableAt:
    return table_at(opened_directory, str(table), QUERY, batch)


def write(root: Path, name: str, commits: Commits, **more: Any) -> None:
    """One metadata file, and as the one that was written last."""
    (root / "metadata").mkdir(exist_ok=True)
    text = json.dumps(iceberg_metadata(commits) | more).encode()
    file = root / "metadata" / name
    file.write_bytes(gzip.compress(text) if ".gz" in name else text)
    time = 1_700_000_000 + len(list(file.parent.iterdir()))
    os.utime(file, (time, time))


def test_a_table_whose_snapshots_have_expired_is_not_taken_for_one_that_has_seen_nothing(
    tmp_path: Path,
) -> None:
    iceberg_table(tmp_path, [(QUERY, 3), (QUERY, 4), ("another", 0), ("another", 1)], expired=2)
    with pytest.raises(RefusedError, match="does not tell whether it has seen the query"):
        look(tmp_path, 2)


def test_expired_snapshots_do_not_make_a_version_up(tmp_path: Path) -> None:
    ids = iceberg_table(tmp_path, [(QUERY, 0), (QUERY, 1), (QUERY, 2), (QUERY, 3)], expired=2)
    at = look(tmp_path, 0)
    assert (at.newest_batch, at.version) == (3, None)
    assert look(tmp_path, 2).version == ids[2]


def test_a_snapshot_that_was_rolled_back_no_longer_counts(tmp_path: Path) -> None:
    iceberg_table(tmp_path, [(QUERY, 0), (QUERY, 1), (QUERY, 2)], current=1)
    at = look(tmp_path, 1)
    assert (at.newest_batch, at.version) == (1, None)


def test_the_newest_metadata_file_counts_zipped_or_not(tmp_path: Path) -> None:
    iceberg_table(tmp_path, [(QUERY, 0)])
    (plain,) = (tmp_path / "metadata").iterdir()
    newer = json.loads(plain.read_text())
    newer["snapshots"][0]["summary"]["spark.sql.streaming.epochId"] = "8"
    zipped = tmp_path / "metadata" / "00010-abc.gz.metadata.json"
    zipped.write_bytes(gzip.compress(json.dumps(newer).encode()))
    assert look(tmp_path, 8).newest_batch == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "member", ['"metadata-log":[{}', '"snapshots":[{"snapshot-id":1}'], ids=["log", "snapshots"]
)
def test_metadata_files_of_very_many_entries_are_not_held_beside_each_other(
    tmp_path: Path, member: str
) -> None:
    (tmp_path / "metadata").mkdir()
    entry = member.partition("[")[2]
    text = f"{{{member}{f',{entry}' * (400_000 // len(entry))}]}}"
    for number in range(limits.MOST_TABLE_CANDIDATES):
        file = tmp_path / "metadata" / f"00001-{number}.gz.metadata.json"
        file.write_bytes(gzip.compress(text.encode()))
    tracemalloc.start()
    try:
        assert look(tmp_path, 1).newest_batch is None
        assert tracemalloc.get_traced_memory()[1] < 40 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"snapshots":5}', '{"snapshots":' + "[" * 100_000 + "}"]
)
def test_metadata_that_cannot_be_read_is_no_answer(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text(text)
    with pytest.raises(DamageError, match=r"v1\.metadata\.json cannot be read"):
        look(tmp_path, 1)


def test_snapshots_that_lead_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    ids = iceberg_table(tmp_path, [(OTHER, 0), (OTHER, 1)])
    (file,) = (tmp_path / "metadata").iterdir()
    metadata = json.loads(file.read_text())
    metadata["snapshots"][0]["parent-snapshot-id"] = ids[1]
    file.write_text(json.dumps(metadata))
    assert look(tmp_path, 0).newest_batch is None


def test_a_table_that_was_made_to_be_unpacked_is_not(tmp_path: Path) -> None:
    iceberg_table(tmp_path / "ice", [(QUERY, 0)])
    bomb = b'{"current-snapshot-id":1,"snapshots":[' + b'{"snapshot-id":1},' * 1_000_000
    zipped = tmp_path / "ice" / "metadata" / "00010-abc.gz.metadata.json"
    zipped.write_bytes(gzip.compress(bomb))
    with pytest.raises(DamageError, match="unpacks to more than"):
        look(tmp_path / "ice", 1)


@pytest.mark.parametrize("member", ['"metadata-log":[{}', '"snapshots":[{"snapshot-id":1}'])
def test_a_zipped_file_of_very_many_values_is_damage_and_is_not_decoded(
    tmp_path: Path, member: str
) -> None:
    (tmp_path / "metadata").mkdir()
    noise = os.urandom(400_000).hex()  # so that it may unpack to that much
    entry = member.partition("[")[2]
    text = f'{{"noise":"{noise}",{member}{f",{entry}" * limits.MOST_VALUES}]}}'
    zipped = tmp_path / "metadata" / "00001-abc.gz.metadata.json"
    zipped.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DamageError, match=r"has \d+ values, and \d+ is the most"):
        look(tmp_path, 1)


def test_a_zipped_file_with_changed_bytes_is_damage(tmp_path: Path) -> None:
    iceberg_table(tmp_path / "ice", [(QUERY, 0)])
    zipped = gzip.compress(b'{"current-snapshot-id":1,"snapshots":[]}')
    file = tmp_path / "ice" / "metadata" / "00010-abc.gz.metadata.json"
    file.write_bytes(zipped[:10] + b"\xff\xff\xff" + zipped[13:])
    with pytest.raises(DamageError, match="cannot be unpacked"):
        look(tmp_path / "ice", 1)


LOST_COMPACTION = [(QUERY, 8), (QUERY, 9), None]


@pytest.mark.parametrize("names", [("00003-1", "00003-f"), ("00003-f", "00003-1")])
def test_files_of_the_same_number_that_differ_in_what_follows_are_refused(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    write(tmp_path, f"{names[0]}.metadata.json", [(QUERY, 8), (QUERY, 9), (QUERY, 10)])
    write(tmp_path, f"{names[1]}.metadata.json", LOST_COMPACTION)
    with pytest.raises(RefusedError, match="only the catalog knows") as refused:
        look(tmp_path, 9)
    assert "00003-1.metadata.json, 00003-f.metadata.json" in str(refused.value)
    assert "say --query-id yourself" in str(refused.value)
    # both have batch 9 right after the same snapshot, and none has an 11th
    assert look(tmp_path, 8).newest_batch == 10
    assert look(tmp_path, 8).version is not None
    assert look(tmp_path, 10).newest_batch == 10


def test_a_name_in_the_version_hint_decides_between_files_of_the_same_number(
    tmp_path: Path,
) -> None:
    write(tmp_path, "00003-1.metadata.json", [(QUERY, 9), (QUERY, 10)])
    write(tmp_path, "00003-f.metadata.json", [(QUERY, 9), None])
    hint = tmp_path / "metadata" / "version-hint.text"
    for text in ("00003-1", "00003-1.metadata.json"):
        hint.write_text(f"{text}\n")
        assert look(tmp_path, 9).newest_batch == 10


def test_of_files_by_hadoop_the_hint_and_what_follows_it_count(tmp_path: Path) -> None:
    for number in (1, 2, 3, 7):
        write(tmp_path, f"v{number}.metadata.json", [(QUERY, batch) for batch in range(number)])
    assert look(tmp_path, 0).newest_batch == 6
    for hint, newest in (("2", 2), ("3\n", 2), ("7", 6), ("5", 6), ("x", 6), ("", 6)):
        (tmp_path / "metadata" / "version-hint.text").write_text(hint)
        assert look(tmp_path, 0).newest_batch == newest


def test_a_table_that_was_made_again_in_its_folder_is_not_taken_for_the_old_one(
    tmp_path: Path,
) -> None:
    write(tmp_path, "00009-old.metadata.json", [None])
    write(tmp_path, "00001-new.metadata.json", [(QUERY, 4), (QUERY, 5)])
    with pytest.raises(RefusedError, match="only the catalog knows"):
        look(tmp_path, 4)


def test_a_file_that_another_one_came_after_is_not_the_current_one(tmp_path: Path) -> None:
    # a table of Hadoop's that was registered in a catalog, where numbers begin anew
    write(tmp_path, "v9.metadata.json", [(QUERY, 4)])
    log = [{"metadata-file": "s3://lake/t/metadata/v9.metadata.json", "timestamp-ms": 1}]
    ids = iceberg_metadata([(QUERY, 4), (QUERY, 5)])["snapshots"]
    write(tmp_path, "00000-a.metadata.json", [(QUERY, 4), (QUERY, 5)], **{"metadata-log": log})
    at = look(tmp_path, 4)
    assert (at.newest_batch, at.version) == (5, ids[0]["snapshot-id"])


@pytest.mark.parametrize("name", ["v2.metadata.json.gz", "v2.gz.metadata.json"])
def test_a_zipped_file_counts_by_its_old_and_its_new_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, "v1.metadata.json", [(QUERY, 1)])
    write(tmp_path, name, [(QUERY, 1), (QUERY, 2)])
    (tmp_path / "metadata" / "version-hint.text").write_text("1")
    assert look(tmp_path, 1).newest_batch == 2


def test_a_file_whose_name_does_not_tell_how_new_it_is_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "00001-a.metadata.json", [(QUERY, 1)])
    write(tmp_path, "current.metadata.json", [(QUERY, 2)])
    with pytest.raises(RefusedError, match="does not tell how new it is"):
        look(tmp_path, 1)


def test_very_many_files_of_the_same_number_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path, f"00001-{number}.metadata.json", [(QUERY, 1)])
    assert look(tmp_path, 1).newest_batch == 1
    monkeypatch.setattr(limits, "MOST_TABLE_CANDIDATES", 2)
    with pytest.raises(RefusedError, match="3 metadata files"):
        look(tmp_path, 1)


def test_a_branch_with_later_batches_than_main_is_refused(tmp_path: Path) -> None:
    commits = [(QUERY, 1), (QUERY, 2), (QUERY, 3)]
    ids = [each["snapshot-id"] for each in iceberg_metadata(commits)["snapshots"]]
    refs = {
        "main": {"snapshot-id": ids[1], "type": "branch"},
        "kept": {"snapshot-id": ids[2], "type": "tag"},
        "audit": {"snapshot-id": ids[0], "type": "branch"},
    }
    write(tmp_path, "v1.metadata.json", commits, refs=refs, **{"current-snapshot-id": ids[1]})
    assert look(tmp_path, 2).newest_batch == 2
    refs["audit"]["snapshot-id"] = ids[2]
    write(tmp_path, "v2.metadata.json", commits, refs=refs, **{"current-snapshot-id": ids[1]})
    with pytest.raises(RefusedError, match="branch 'audit'"):
        look(tmp_path, 2)
    assert look(tmp_path, 1).newest_batch == 2
