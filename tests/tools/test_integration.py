"""The set-up of the integration tests: what is fetched, and what is said if it cannot be."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tools import hdfs, integration, maven, versitygw
from tools.integration import Part, fetch_all
from tools.programs import Unavailable, run


def part(fetched: list[str], *, is_there: bool = False, fails: str = "") -> Part:
    def fetch() -> None:
        if fails:
            raise Unavailable(fails)
        fetched.append("Kafka")

    return Part("Kafka", "60 MB", lambda: is_there, fetch, "the tests with Kafka will be SKIPPED")


def put_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_what_is_there_is_not_fetched_again(capsys: pytest.CaptureFixture[str]) -> None:
    fetched: list[str] = []
    assert fetch_all([part(fetched, is_there=True)])
    assert (fetched, capsys.readouterr().out) == ([], "")


def test_what_cannot_be_fetched_is_told_and_does_not_keep_the_others_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fetched: list[str] = []
    assert not fetch_all([part(fetched, fails="Maven (mvn) is not installed"), part(fetched)])
    assert fetched == ["Kafka"]
    told = "WARNING: the tests with Kafka will be SKIPPED: Maven (mvn) is not installed"
    assert told in capsys.readouterr().err


def test_without_a_stamp_the_next_run_tells_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["integration", "--stamp", str(tmp_path / "stamp")])
    monkeypatch.setattr(integration, "fetch_all", lambda: False)
    assert integration.main() == 0
    assert not (tmp_path / "stamp").exists()
    monkeypatch.setattr(integration, "fetch_all", lambda: True)
    integration.main()
    assert (tmp_path / "stamp").exists()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"Maven \(mvn\) is not installed"):
        maven.copy_jars(["a:b:1"], tmp_path)


def test_a_program_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_program(tmp_path / "mvn", "echo 'no such artifact'; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="Maven failed: no such artifact"):
        maven.copy_with_dependencies("a:b:1", tmp_path)


def test_a_program_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_program(tmp_path / "go", "exec /bin/sleep 600")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"Go did not finish in 0 s"):
        run("go", [], title="Go", seconds=0.2)


def test_a_server_that_was_built_in_part_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_program(tmp_path / "go", 'echo half > "$GOBIN/versitygw"; echo killed; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(versitygw, "FOLDER", tmp_path / "built")
    monkeypatch.setattr(versitygw, "PROGRAM", tmp_path / "built" / "versitygw")
    with pytest.raises(Unavailable, match="Go failed: killed"):
        versitygw.fetch()
    assert not versitygw.is_there()


def test_hdfs_is_fetched_in_the_version_of_sparks_hadoop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hdfs, "FOLDER", tmp_path)
    asked: list[str] = []

    def copy_jars(artifacts: list[str], folder: Path) -> None:
        asked.extend(artifacts)
        group, name, number = artifacts[0].split(":")
        (folder / f"{name}-{number}.jar").write_bytes(group.encode())

    monkeypatch.setattr(hdfs, "copy_jars", copy_jars)
    assert not hdfs.is_there()
    hdfs.fetch()
    assert hdfs.is_there(), version("pyspark")
    assert asked[0].startswith("org.apache.hadoop:hadoop-client-minicluster:3.")
    names = {jar.name.rpartition("-")[0] for jar in hdfs.server_jars()}
    assert {"hadoop-client-minicluster", "hadoop-client-api", "hadoop-client-runtime"} <= names
