"""A file that a batch was planned to read and that is gone is not taken for an empty one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.capture.plans import (
    local_files,
    missing_elsewhere,
    missing_files,
    require_planned_files,
)
from seamark.errors import SeamarkError
from seamark.spark.batch_log import Plan


def plan(*lines: str) -> Plan:
    return Plan("v1\n{}\n0", {"sources/0/3": "\n".join(["v1", *lines])})


def file_line(uri: str) -> str:
    return json.dumps({"path": uri, "timestamp": 1, "batchId": 3})


def test_only_files_that_are_gone_are_missing(tmp_path: Path) -> None:
    there, gone = tmp_path / "there.json", tmp_path / "gone.json"
    there.touch()
    lines = [file_line(f"file://{there}"), file_line(f"file://{gone}")]
    assert missing_files(plan(*lines)) == [str(gone)]


def test_names_are_decoded_as_spark_encodes_them(tmp_path: Path) -> None:
    odd = tmp_path / "a b%#ä.json"
    odd.touch()
    encoded = f"file://{tmp_path}/a%20b%25%23%C3%A4.json"
    assert list(local_files(plan(file_line(encoded)))) == [str(odd)]
    assert missing_files(plan(file_line(encoded))) == []


def test_other_file_systems_and_other_sources_are_left_to_spark() -> None:
    lines = [
        file_line("s3a://bucket/gone.json"),
        file_line("hdfs://name/gone.json"),
        '{"topic":{"0":7}}',
        "1767225600000",
        "not json",
        '["file:///gone"]',
        "",
    ]
    assert missing_files(plan(*lines)) == []


def test_files_of_a_source_that_ignores_missing_ones_are_not_looked_for(tmp_path: Path) -> None:
    session: Any = SimpleNamespace(conf={})
    two = Plan("", {f"sources/{n}/3": f"v1\n{file_line(f'file:///gone/{n}')}" for n in (0, 1)})
    require_planned_files(session, two, 4, lambda: 0, may_be_gone=["0", "1"])
    with pytest.raises(SeamarkError, match="epoch 4 was planned to read is gone") as error:
        require_planned_files(session, two, 4, lambda: 0, may_be_gone=["0"])
    assert error.value.where == "/gone/1"


def test_what_spark_has_found_of_such_a_source_does_not_stand_for_files_of_another_one() -> None:
    needed = plan(file_line("s3a://b/gone"))
    ignoring = [file_line(f"s3a://b/{n}") for n in range(3)]
    whole = Plan("", {**needed.sources, "sources/1/0": "\n".join(["v1", *ignoring])})
    assert missing_elsewhere(whole, needed, lambda: 3, lambda _: None) == ["s3a://b/gone"]
    assert missing_elsewhere(whole, needed, lambda: 4, lambda _: None) == []
