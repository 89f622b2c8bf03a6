"""``seamark sources``: how far each source is, read beside the writer, positions readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark import ConnectorCheckpoint, limits, open_store
from seamark.cli.shown_positions import readable
from seamark.manifest import CheckpointManifest
from seamark.progress import open_progress, rocksdb_url
from seamark.progress.store import SourceCheckpointStore
from seamark.spark.kafka.recorded_positions import recorded_lines
from tests.cli.support.running import (
    Cli,
    closed_folder,
    epoch,
    options_of,
    with_password,
    without_rights,
)
from tests.support.databases import RedisServer
from tests.support.servers import ObjectServer

LONG = json.dumps({"trades": {str(n): 1_000_000 + n for n in range(40)}}).encode()


def fill(store: SourceCheckpointStore) -> None:
    with store.session() as session:
        session.stage_checkpoint("trades", 41, LONG)
        session.stage_checkpoint("quotes", 40, b"2026-01-05 09:30:01")
        session.stage_checkpoint("raw", 2**64 - 1, b"\x00\xff\x10")
        session.stage_checkpoint("new", 0)
    store.write_config_hash(0x00AB_CDEF_0123_4567)


def check(cli: Cli, url: object, *options: str) -> None:
    found = cli.document("sources", url, *options)
    assert found["config_hash"] == "00abcdef01234567"
    by_name = {each["name"]: each for each in found["sources"]}
    assert by_name["trades"]["position"] == json.loads(LONG)
    assert by_name["trades"]["sequence"] == 41
    assert (by_name["quotes"]["position_encoding"], by_name["quotes"]["position"]) == (
        "text",
        "2026-01-05 09:30:01",
    )
    assert (by_name["raw"]["position_encoding"], by_name["raw"]["position"]) == ("hex", "00ff10")
    assert by_name["raw"]["sequence"] == 2**64 - 1
    assert by_name["new"]["position"] is None
    assert cli("sources", url, *options) == 0
    assert "00abcdef01234567" in cli.out
    assert "1000039" in cli.out, "what is long wraps and is not cut"


def test_a_rocksdb_folder_is_read_beside_its_writer(cli: Cli, tmp_path: Path) -> None:
    url = rocksdb_url(tmp_path / "a b")
    with open_progress(url) as writer:
        fill(writer)
        check(cli, url)
        check(cli, tmp_path / "a b")
        with writer.session() as session:
            session.stage_checkpoint("trades", 42, LONG)
        found = cli.document("sources", url)
        assert {each["sequence"] for each in found["sources"]} >= {42}


def test_positions_of_far_too_many_values_are_left_out_and_the_others_are_shown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_SHOWN_VALUES", 1_000)
    monkeypatch.setattr(limits, "LARGEST_SHOWN", 10_000)
    large = json.dumps({"trades": {str(number): 1 for number in range(600)}}).encode()
    with open_progress(rocksdb_url(tmp_path)) as writer, writer.session() as session:
        for name in ("a", "b"):
            session.stage_checkpoint(name, 1, large)
        session.stage_checkpoint("c", 1, LONG)
        session.stage_checkpoint("d", 1, b"x" * 9_000)
        session.stage_checkpoint("e", 1, b"{}")
    found = {each["name"]: each for each in cli.document("sources", tmp_path)["sources"]}
    encodings = [each["position_encoding"] for each in found.values()]
    assert encodings == ["json", "left out", "json", "left out", "json"]
    assert (found["b"]["position"], found["b"]["position_bytes"]) == (None, len(large))
    assert found["c"]["position"] == json.loads(LONG)
    assert cli("sources", tmp_path) == 0
    assert "left out" in cli.out


def test_the_store_of_a_pipeline_has_its_progress_inside(cli: Cli, tmp_path: Path) -> None:
    with open_progress(rocksdb_url(tmp_path / "store/progress")) as writer:
        fill(writer)
    check(cli, tmp_path / "store")


def test_a_redis_namespace_is_given_either_way_and_its_password_is_never_shown(
    cli: Cli, redis: RedisServer, tmp_path: Path
) -> None:
    with open_progress(redis.url, namespace=tmp_path.name) as writer:
        fill(writer)
        check(cli, f"{redis.url}?namespace={tmp_path.name}")
        check(cli, redis.url, "--namespace", tmp_path.name)
        writer.write_config_hash(1)  # reading has fenced nobody
    assert cli("sources", redis.url) == 1
    assert "namespace" in cli.err
    url = f"{with_password(redis, 'hunter2hunter2')}?namespace=x"
    assert cli("sources", url, "-vv") == 0
    assert "hunter2" not in cli.out + cli.err
    assert cli("sources", url.replace("hunter2", "wrong22"), "-vv") == 7
    assert "wrong22" not in cli.out + cli.err
    nobody = url.replace(f":{redis.port}", ":1")
    assert cli("sources", nobody, "-vv") == 7, "a server that does not answer proves nothing"
    assert "hunter2" not in cli.out + cli.err


def test_what_is_not_there_is_not_found_and_what_is_empty_is_not_an_error(
    cli: Cli, tmp_path: Path
) -> None:
    assert cli("sources", tmp_path / "nothing") == 4
    assert cli("sources", rocksdb_url(tmp_path / "nothing")) == 4
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "folder").mkdir()
    assert cli("sources", tmp_path / "folder") == 4
    open_progress(rocksdb_url(tmp_path / "empty")).close()
    assert cli("sources", tmp_path / "empty") == 0
    assert "No source is recorded" in cli.out
    assert cli.document("sources", tmp_path / "empty")["sources"] == []


def test_a_folder_without_permission_proves_nothing(cli: Cli) -> None:
    with closed_folder() as folder:
        cli("sources", folder)
        with without_rights():
            assert cli("sources", folder) == 7
    assert "Permission denied" in cli.err


@pytest.mark.parametrize(
    ("position", "encoding"),
    [
        (b"{}", "json"),
        (b"17", "json"),
        (b"NaN", "text"),
        (b"", "text"),
        (b"a\x1b[31mred", "hex"),
        ("größer".encode(), "text"),
        (b"[" * 100_000, "text"),
    ],
)
def test_a_position_is_shown_as_what_it_is_and_cannot_colour_the_screen(
    position: bytes, encoding: str
) -> None:
    assert readable(position)[0] == encoding


def test_positions_are_a_table_with_a_line_for_each_partition(cli: Cli, tmp_path: Path) -> None:
    with open_progress(rocksdb_url(tmp_path / "p")) as writer, writer.session() as session:
        session.stage_checkpoint("trades", 41, b'{"trades": {"0": 600, "10": 601}}')
    assert cli("sources", tmp_path / "p") == 0
    lines = [line.split() for line in cli.out.splitlines()]
    assert lines[0] == ["SOURCE", "SEQUENCE", "PARTITION", "POSITION"]
    assert lines[1] == ["trades", "41", "trades-0", "600"]
    assert lines[2] == ["trades-10", "601"]
    assert "{" not in cli.out


def test_of_a_very_long_position_the_table_has_the_beginning_and_json_all(
    cli: Cli, tmp_path: Path
) -> None:
    with open_progress(rocksdb_url(tmp_path / "p")) as writer, writer.session() as session:
        for number in range(20):
            session.stage_checkpoint(f"s{number}", 1, b"\xff" * 60_000)
    assert cli("sources", tmp_path / "p") == 0
    assert len(cli.out) < 20 * 5_000
    assert "…" in cli.out
    sources = cli.document("sources", tmp_path / "p")["sources"]
    assert {each["position"] for each in sources} == {"ff" * 60_000}


def test_of_very_many_positions_the_table_has_the_first_ones_and_json_all(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_POSITIONS", 50)
    with open_progress(rocksdb_url(tmp_path / "p")) as writer, writer.session() as session:
        session.stage_checkpoint("quotes", 1, LONG)
        session.stage_checkpoint("trades", 1, LONG)
    assert cli("sources", tmp_path / "p") == 0
    assert sum("trades-" in line for line in cli.out.splitlines()) == 50
    assert "Only the first 50 positions" in cli.out
    sources = cli.document("sources", tmp_path / "p")["sources"]
    assert [len(each["position"]["trades"]) for each in sources] == [40, 40]
    monkeypatch.setattr(limits, "MOST_POSITIONS", 80)
    assert cli("sources", tmp_path / "p") == 0
    assert "Only the first" not in cli.out


def test_a_store_without_progress_tells_where_its_newest_checkpoint_stands(
    cli: Cli, s3: ObjectServer, tmp_path: Path
) -> None:
    url = s3.new_url("orders")
    at = {"trades": ConnectorCheckpoint({"trades-0": "600", "trades-1": "601"}, 2)}
    for place, options in ((url, s3.storage_options), (str(tmp_path / "store"), None)):
        with open_store(place, storage_options=options) as store:
            epoch(store, 1, 1)
            epoch(store, 2, 2, source_offsets=at)
        words = options_of(s3) if place == url else []
        found = cli.document("sources", place, *words)
        assert found["checkpoint"] == 2
        assert found["sources"][0]["sequence"] == 2
        assert found["sources"][0]["position"] == {"trades-0": "600", "trades-1": "601"}
        assert cli("sources", place, *words) == 0
        assert "trades-1   601" in cli.out


@pytest.mark.parametrize("has_progress", [False, True])
def test_what_a_checkpoint_says_of_all_sources_is_worked_out_once_however_many_there_are(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_progress: bool
) -> None:
    worked_out: list[int] = []

    def counted(manifest: CheckpointManifest) -> dict[str, list[str]]:
        worked_out.append(len(manifest.source_offsets))
        return recorded_lines(manifest)

    monkeypatch.setattr("seamark.spark.kafka.lag.recorded_lines", counted)
    for number in (1, 30):
        store = tmp_path / str(number)
        line = '{"t":{"0":1}}'
        at = {f"s{n}": ConnectorCheckpoint({"t-0": "1"}, 1, {"line": line}) for n in range(number)}
        latest = dict.fromkeys(at, '{"t":{"0":9}}')
        with open_store(store) as opened:
            opened.save(CheckpointManifest.new(1, epoch=1, source_offsets=at, source_latest=latest))
        if has_progress:
            with (
                open_progress(rocksdb_url(store / "progress")) as progress,
                progress.session() as session,
            ):
                for name in at:
                    session.stage_checkpoint(name, 1, line.encode())
        shown = cli.document("sources", store)["sources"]
        assert [each["lag"] for each in shown] == [{"t-0": 8}] * number
        assert [each["age_seconds"] for each in shown] == [{}] * number
    assert worked_out.count(30) == worked_out.count(1)


@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_link_in_the_place_of_the_progress_store_is_named_and_not_followed(
    cli: Cli, tmp_path: Path, has_checkpoints: bool
) -> None:
    with open_progress(rocksdb_url(tmp_path / "elsewhere")) as other, other.session() as session:
        session.stage_checkpoint("of-another-store", 7, b"elsewhere")
    store = tmp_path / "store"
    store.mkdir()
    if has_checkpoints:
        with open_store(store) as opened:
            opened.save(CheckpointManifest.new(1, epoch=1))
    (store / "progress").symlink_to(tmp_path / "elsewhere")
    assert cli("sources", store) == 7
    assert f"{store}/progress" in cli.err.replace("\n", "")
    assert "of-another-store" not in cli.out + cli.err


def test_the_path_that_is_given_may_be_a_link_to_a_store(cli: Cli, tmp_path: Path) -> None:
    with open_progress(rocksdb_url(tmp_path / "store" / "progress")) as writer:
        fill(writer)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    check(cli, tmp_path / "link")
    (tmp_path / "progress").symlink_to(tmp_path / "store" / "progress")
    check(cli, tmp_path / "progress")
