"""Delta tables that only a store names: all within one limit of memory, time and patience."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamark import ConnectorCheckpoint, limits, open_store
from seamark._common.limited_process import Answer, ask_process
from seamark.cli.limited_look import LimitedLooks, Question
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest
from tests.cli.support.running import Cli
from tests.sources.support.delta_logs import swell_checkpoint
from tests.sources.test_delta import append, source

pytest.importorskip("deltalake")


def line_at(position: Any) -> str:
    return json.dumps({"sequence": 2, "position": position, "digest": "a" * 64})


def save(store: Path, tables: Mapping[str, tuple[Path | str, Any]]) -> None:
    """A checkpoint whose sources are Delta tables at some position."""
    structure = {
        "sources": {
            name: {"format": "seamark_delta", "options": {"path": str(table)}}
            for name, (table, _) in tables.items()
        }
    }
    at = {
        name: ConnectorCheckpoint({}, 1, {"line": line_at(position)})
        for name, (_, position) in tables.items()
    }
    made = CheckpointManifest.new(1, epoch=1, source_offsets=at).with_extra(structure=structure)
    with open_store(store) as opened:
        opened.save(made)


def position_at_end(table: Path) -> Any:
    [*_, (_, position)] = source(table).read_from(None, 100)
    return position


def test_all_tables_are_asked_by_one_process_and_each_place_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(module: str, question: bytes) -> Answer:
        asked.append(len(json.loads(question)[1]))
        return ask_process(module, question)

    monkeypatch.setattr("seamark.table_formats.limited_answers.ask_process", counted)
    append(tmp_path / "t", 0, 3)
    append(tmp_path / "u", 0, 3)
    end, other = position_at_end(tmp_path / "t"), position_at_end(tmp_path / "u")
    same = {f"s{number}": (tmp_path / "t", end) for number in range(5)}
    lost = {f"x{number}": (tmp_path / "t", other) for number in range(2)}
    save(tmp_path / "store", {**same, **lost, "u": (tmp_path / "u", other)})
    assert cli("sources", tmp_path / "store", "--check", "--json") == 6
    assert asked == [3]
    tables = {each["name"]: each["table"] for each in json.loads(cli.out)["sources"]}
    assert {name for name, table in tables.items() if table["status"] == "ok"} == {*same, "u"}
    for name in lost:
        assert tables[name]["note"].startswith(f"source '{name}': this is another Delta table")


@pytest.mark.slow
def test_a_small_log_that_unpacks_to_gigabytes_takes_no_more_than_a_limit(
    cli: Cli, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    append(table, 0)
    [*_, (_, position)] = source(table).read_from(None, 1)
    swell_checkpoint(table, 3_000_000)
    assert sum(file.stat().st_size for file in table.rglob("*.*")) < 2_000_000
    append(tmp_path / "before", 0)
    before = position_at_end(tmp_path / "before")
    save(tmp_path / "store", {"a": (tmp_path / "before", before), "orders": (table, position)})
    assert cli("sources", tmp_path / "store", "--check") == 6
    said = " ".join(cli.out.split())
    assert "the table of source 'orders' cannot be read with 512 MiB of memory" in said
    assert "orders.path=…" in said
    assert "\\n" not in said
    assert "a 1 0 0 ok" in said  # the other one was asked before


def test_what_was_answered_before_a_limit_was_reached_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", 0)
    line = line_at(position_at_end(tmp_path / "t"))

    def killed_in_the_second_answer(*args: Any, **options: Any) -> Answer:
        whole = ask_process(*args, **options)
        first, second = whole.lines
        return Answer(first + b"\n" + second[:5], "", False)

    monkeypatch.setattr(
        "seamark.table_formats.limited_answers.ask_process", killed_in_the_second_answer
    )
    path = str(tmp_path / "t")
    ask = LimitedLooks(
        {
            "a": Question({"path": path}, line),
            "b": Question({"path": f"{path}/"}, line),
            "c": Question({"path": path}, "{}"),
        }
    )
    known = ask("a")
    assert known is not None
    assert known.newest == "0"
    with pytest.raises(RefusedError, match="the table of source 'b' cannot be read with 512 MiB"):
        ask("b")
    with pytest.raises(InvalidInputError, match="position of source 'c'"):
        ask("c")


def test_a_table_that_never_answers_is_an_outage(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 5)
    save(tmp_path, {"orders": ("s3://lake/t", ["id", 0, "x"])})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "x",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }.items():
            monkeypatch.setenv(name, value)
        assert cli("sources", tmp_path, "--check") == 7
    said = " ".join(cli.err.split())
    assert "the table of source 'orders' has not answered" in said
    assert "orders.path=…" in said
