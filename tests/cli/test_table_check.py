"""``seamark sources --check`` with tables as sources: the same table, and its next version."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from seamark import ConnectorCheckpoint, open_store
from seamark.cli import limited_look
from seamark.cli.limited_look import Question
from seamark.cli.table_check import options_by_source
from seamark.errors import InvalidInputError
from seamark.manifest import CheckpointManifest
from tests.cli.support.running import Cli
from tests.sources.test_delta import append, source
from tests.sources.test_iceberg import World

pytest.importorskip("deltalake")


def save(store: Path, kind: str, options: dict[str, str], position: Any) -> None:
    line = json.dumps({"sequence": 2, "position": position, "digest": "a" * 64})
    structure = {"sources": {"orders": {"format": kind, "options": options}}}
    at = {"orders": ConnectorCheckpoint({}, 1, {"line": line})}
    made = CheckpointManifest.new(1, epoch=1, source_offsets=at).with_extra(structure=structure)
    with open_store(store) as opened:
        opened.save(made)


def test_a_delta_table_is_asked_for_its_next_version_and_whether_it_is_the_same(
    cli: Cli, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    append(table, 0, 3)
    append(table, 6)
    [*_, (_, position)] = source(table).read_from(None, 2)
    save(tmp_path / "store", "seamark_delta", {"path": str(table)}, position)
    assert cli("sources", tmp_path / "store", "--check") == 0
    assert cli.out.splitlines()[1].split() == ["orders", "1", "0", "1", "ok"]
    shutil.rmtree(table)
    append(table, 0)
    assert cli("sources", tmp_path / "store", "--check") == 6
    assert "another Delta table" in " ".join(cli.out.split())
    assert cli("sources", tmp_path / "store", "--check", "--json") == 6
    document = json.loads(cli.out)
    assert document["lost"] == 1
    assert document["sources"][0]["table"]["status"] == "gone"


def test_an_iceberg_table_is_found_by_options_that_no_checkpoint_holds(
    cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("pyiceberg")
    world = World(tmp_path)
    world.append(0, 1)
    world.append(2)
    [*_, (_, position)] = world.source().read_from(None, 2)
    save(tmp_path / "store", "seamark_iceberg", {"table": "shop.orders"}, position)
    given = {"catalog": "lake", **{f"catalog.{k}": v for k, v in world.properties.items()}}
    config = tmp_path / "sources.properties"
    config.write_text("\n".join(f"orders.{key}={value}" for key, value in given.items()))
    assert cli("sources", tmp_path / "store", "--check", "--source-config", config) == 0
    newest = world.table.metadata.snapshots[-1].snapshot_id
    assert str(newest) in cli.out
    ids = [each.snapshot_id for each in world.table.metadata.snapshots]
    world.append(3)
    world.table.maintenance.expire_snapshots().by_ids(ids).commit()
    assert cli("sources", tmp_path / "store", "--check", "--source-config", config) == 6
    assert "no longer has snapshot" in " ".join(cli.out.split())


def test_no_iceberg_catalog_is_set_up_by_the_current_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    save(tmp_path / "store", "seamark_iceberg", {"table": "shop.orders"}, ["id", "1", 0])
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  default:\n    uri: http://theirs\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    assert cli("sources", "store", "--check") == 6
    assert "PYICEBERG_HOME=." in cli.err


def test_a_table_that_is_not_there_gives_the_exit_code_of_that(cli: Cli, tmp_path: Path) -> None:
    save(tmp_path / "store", "seamark_delta", {"path": str(tmp_path / "none")}, ["id", 0, "x"])
    assert cli("sources", tmp_path / "store", "--check") == 7
    assert "no Delta table here" in cli.err


def test_a_table_that_the_user_names_is_read_without_limits(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    append(table, 0)
    [*_, (_, position)] = source(table).read_from(None, 1)
    save(tmp_path / "store", "seamark_delta", {"path": "/not/here"}, position)
    monkeypatch.setattr("seamark.cli.limited_look.LimitedLooks", None)
    config = tmp_path / "sources.properties"
    config.write_text(f"orders.path={table}")
    assert cli("sources", tmp_path / "store", "--check", "--source-config", config) == 0


def test_options_go_to_the_source_with_the_longest_fitting_name() -> None:
    settings = {"a.path": "1", "a.b.path": "2"}
    assert options_by_source(settings, ["a", "a.b"]) == {"a": {"path": "1"}, "a.b": {"path": "2"}}
    with pytest.raises(InvalidInputError, match=r"'c.path' does not begin with the name"):
        options_by_source({"c.path": "1"}, ["a"])


def test_a_store_does_not_choose_the_server_that_a_login_is_sent_to(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = {"storage.AWS_ENDPOINT_URL": "http://evil.invalid", "starting_version": "9"}
    asked: list[Any] = []

    def noted(questions: dict[str, Question]) -> Any:
        asked.extend(question.options for question in questions.values())
        return lambda _: None

    monkeypatch.setattr("seamark.cli.limited_look.LimitedLooks", noted)
    save(tmp_path, "seamark_delta", {"path": "s3://lake/t", **evil}, ["id", 0, "x"])
    assert cli("sources", tmp_path, "--check") == 0
    assert asked == [{"path": "s3://lake/t"}]


@pytest.mark.parametrize(
    "url",
    [
        "hdfs://127.0.0.1:{port}/t",
        "webhdfs://127.0.0.1:{port}/t",
        " http://127.0.0.1:{port}/t",
        "https://me:secret1@127.0.0.1:{port}/t",
        "sftp://127.0.0.1:{port}/t",
        "hf://127.0.0.1:{port}/t",
        "file://127.0.0.1:{port}/t",
        "odd:127.0.0.1:{port}/t",
    ],
)
def test_a_store_does_not_choose_a_server_that_is_spoken_to(
    cli: Cli, tmp_path: Path, url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = url.format(port=server.getsockname()[1])
        save(tmp_path, "seamark_delta", {"path": path}, ["id", 0, "x"])
        assert cli("sources", tmp_path, "--check") == 0
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    said = " ".join(cli.out.split())
    assert "orders was not checked: only tables at a path or in a bucket are asked" in said
    assert "127.0.0.1" not in cli.out
    assert cli("sources", tmp_path, "--check", "--json") == 0
    (told,) = json.loads(cli.out)["sources"]
    assert told["checked"] is False
    assert "in a bucket" in told["note"]


@pytest.mark.parametrize("structure", [{}, {"sources": 3}, {"sources": {"orders": []}}])
def test_a_structure_that_says_nothing_of_a_source_leaves_it_unchecked(
    cli: Cli, tmp_path: Path, structure: Any
) -> None:
    at = {"orders": ConnectorCheckpoint({}, 1, {"line": "{}"})}
    made = CheckpointManifest.new(1, epoch=1, source_offsets=at).with_extra(structure=structure)
    with open_store(tmp_path) as store:
        store.save(made)
    assert cli("sources", tmp_path, "--check") == 0
    assert "orders was not checked" in " ".join(cli.out.split())


@pytest.mark.parametrize("is_named", [True, False])
def test_what_a_library_does_not_expect_of_a_table_is_damage_of_that_table(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_named: bool,
) -> None:
    class Panic(BaseException):
        """What Rust raises."""

    def panics(*_: Any) -> None:
        raise Panic("index out of bounds")

    save(tmp_path / "store", "seamark_delta", {"path": "/a/table"}, ["id", 0, "x"])
    monkeypatch.setattr("seamark.sources.position_looks.look_at", panics)
    if is_named:
        config = tmp_path / "sources.properties"
        config.write_text("orders.path=/a/table")
        assert cli("sources", tmp_path / "store", "--check", "--source-config", config) == 3
        assert "/a/table: Panic: index out of bounds" in " ".join(cli.err.split())
        return
    questions = 9.0, [limited_look._Asked({"path": "/a/table"}, None)]
    monkeypatch.setattr(limited_look, "read_questions", lambda _: questions)
    monkeypatch.setattr(limited_look, "limit_this_process", lambda *_: None)
    limited_look.main()
    assert json.loads(capsys.readouterr().out)["error"] == "DamageError"
