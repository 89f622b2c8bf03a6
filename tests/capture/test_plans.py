"""A file that a batch was planned to read and that is gone is not taken for an empty one."""

from __future__ import annotations

import json
from pathlib import Path

from seamark.capture.plans import local_files, missing_files
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
