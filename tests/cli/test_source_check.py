"""``seamark sources --check``: what is gone, how far behind a source is, and whom it asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from seamark import ConnectorCheckpoint, limits, open_store
from seamark.cli.source_check import check_document, checked_sources
from seamark.errors import DamageError, SourceSilentError
from seamark.manifest import CheckpointManifest
from seamark.spark.kafka.client import java_id, read_settings
from seamark.spark.kafka.positions import Offsets, PartitionEnds, TopicFacts, Topics
from tests.cli.support.running import Cli
from tests.support.processes import free_port

LINE = '{"trades":{"0":120,"1":900}}'
FILES = ConnectorCheckpoint({}, 1)


def manifest(**extra: object) -> CheckpointManifest:
    at = {"trades": ConnectorCheckpoint({}, 1, {"line": LINE}), "files": FILES}
    return CheckpointManifest.new(7, epoch=5, source_offsets=at).with_extra(**extra)


def kafka(source: str, offsets: Offsets) -> Topics:
    assert (source, offsets) == ("trades", {"trades": {0: 120, 1: 900}})
    ends = {0: PartitionEnds(500, 900), 1: PartitionEnds(0, 1000)}
    return {"trades": TopicFacts(topic_id="one", partitions=ends, retention_ms=1000, times={1: 0})}


def test_each_partition_has_its_numbers_and_a_lost_one_gives_the_exit_code() -> None:
    found = manifest(source_ids={"trades": {"trades": "one"}})
    document = check_document(found, "s3://bucket", checked_sources(found, kafka))
    assert (document["lost"], document["exit_code"], document["checkpoint"]) == (1, 6, 7)
    files, trades = document["sources"]
    assert not files["checked"]
    gone, there = trades["partitions"]
    assert (gone["status"], gone["rows_lost"], gone["earliest"]) == ("gone", 380, 500)
    assert (there["status"], there["lag"], there["retention_left_seconds"]) == ("ok", 100, 0)
    assert there["near_retention"]
    assert trades["topics"]["trades"]["id"] == "one"


def test_a_source_that_cannot_be_asked_hides_nothing_about_the_others() -> None:
    def table(name: str) -> None:
        if name == "files":
            raise DamageError("a list of the table cannot be read", where="/table")

    found = manifest(source_ids={"trades": {"trades": "one"}})
    document = check_document(found, "s3://bucket", checked_sources(found, kafka, table))
    files, trades = document["sources"]
    assert (files["checked"], files["exit_code"]) == (False, 3)
    assert "a list of the table cannot be read" in files["note"]
    assert (trades["partitions"][0]["status"], document["exit_code"]) == ("gone", 6)
    whole = manifest()

    def nothing_is_lost(source: str, offsets: Offsets) -> Topics:
        ends = {0: PartitionEnds(0, 900), 1: PartitionEnds(0, 1000)}
        return {"trades": TopicFacts(topic_id="one", partitions=ends)}

    found_all = check_document(whole, "s3://b", checked_sources(whole, nothing_is_lost, table))
    assert (found_all["lost"], found_all["exit_code"]) == (0, 3)
    alone = CheckpointManifest.new(7, epoch=5, source_offsets={"files": FILES})
    with pytest.raises(DamageError, match="a list of the table"):
        checked_sources(alone, kafka, table)


def test_another_topic_and_one_that_is_gone_are_told_apart() -> None:
    found = manifest(source_ids={"trades": {"trades": "old"}})
    [_, trades] = checked_sources(found, kafka)
    assert {part["loss"] for part in trades["partitions"]} == {"another topic"}
    [_, trades] = checked_sources(found, lambda *_: {})
    assert {part["loss"] for part in trades["partitions"]} == {"no topic"}


def test_what_only_the_second_leaf_of_a_source_has_lost_is_told() -> None:
    lines = {"line": LINE, "line#2": '{"trades":{"0":600,"1":1100}}'}
    at = {"trades": ConnectorCheckpoint({}, 1, lines)}
    found = CheckpointManifest.new(7, epoch=5, source_offsets=at)
    [trades] = checked_sources(found, kafka)
    assert [part["loss"] for part in trades["partitions"]] == ["expired", "ahead"]
    assert [part["lag"] for part in trades["partitions"]] == [780, 100], "of the leaf behind"


def test_a_checkpoint_that_names_no_servers_asks_for_them(cli: Cli, tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.save(manifest().replace(checkpoint_id=1))
    assert cli("sources", tmp_path, "--check") == 1
    assert "--kafka-config" in cli.err


def test_a_login_is_never_sent_to_servers_that_only_the_store_names(
    cli: Cli, tmp_path: Path
) -> None:
    login = tmp_path / "client.properties"
    login.write_text("sasl.username = me\nsasl.password = geheim-4711\n")
    with open_store(tmp_path / "store") as store:
        servers = {"trades": "evil.invalid:9092"}
        store.save(manifest(source_servers=servers).replace(checkpoint_id=1))
    assert cli("sources", tmp_path / "store", "--check", "--kafka-config", login) == 1
    assert "bootstrap.servers" in cli.err
    assert "geheim" not in cli.err


def test_a_kafka_that_does_not_answer_gives_the_exit_code_of_that(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    nobody = f"127.0.0.1:{free_port()}"
    with open_store(tmp_path) as store:
        store.save(manifest(source_servers={"trades": nobody}).replace(checkpoint_id=1))
    assert cli("sources", tmp_path, "--check", "--timeout", "1s") == 7
    assert nobody in cli.err


def test_servers_that_do_not_answer_are_waited_for_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = limits.MOST_SILENT_SERVERS + 3
    servers = {f"source{n:02}": f"kafka{n // 2}:9092" for n in range(2 * several)}
    offsets = {name: ConnectorCheckpoint({}, 1, {"line": LINE}) for name in servers}
    asked: list[str] = []

    def silent(settings: Mapping[str, str], *_: object) -> Topics:
        asked.append(settings["bootstrap.servers"])
        raise SourceSilentError("Kafka does not answer", where=asked[-1])

    monkeypatch.setattr("seamark.cli.sources.look_at", silent)
    with open_store(tmp_path) as store:
        found = manifest(source_servers=servers).replace(checkpoint_id=1, source_offsets=offsets)
        store.save(found)
    assert cli("sources", tmp_path, "--check") == 7
    assert asked == [f"kafka{n}:9092" for n in range(limits.MOST_SILENT_SERVERS)]


def test_rows_that_a_pipeline_has_read_before_they_went_are_not_missed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves its next checkpoint, and Kafka removes what came before, while Kafka is asked."""
    first = manifest(source_servers={"trades": "kafka:9092"}).replace(checkpoint_id=1)
    line = {"line": LINE.replace("120", "700")}
    at = {"trades": ConnectorCheckpoint({}, 2, line)}
    asked = []

    def overtaken(_: object, offsets: Offsets, __: float) -> Topics:
        asked.append(offsets["trades"][0])
        if len(asked) == 1:
            with open_store(tmp_path) as store:
                store.save(first.replace(checkpoint_id=2, epoch=6, source_offsets=at))
        ends = {0: PartitionEnds(500, 900), 1: PartitionEnds(0, 1000)}
        return {"trades": TopicFacts(topic_id="one", partitions=ends)}

    monkeypatch.setattr("seamark.cli.sources.look_at", overtaken)
    with open_store(tmp_path) as store:
        store.save(first)
    assert cli.document("sources", tmp_path, "--check")["checkpoint"] == 2
    assert asked == [120, 700]


def test_the_id_of_a_topic_is_written_as_in_a_checkpoint() -> None:
    assert java_id("3Z2K/MqXQEmPWveUegXM+A") == "3Z2K_MqXQEmPWveUegXM-A"


def test_the_settings_of_a_client_are_read_as_kafkas_own_tools_write_them() -> None:
    assert read_settings("# a\n! b\n\na.b=c=d\n x = \n") == {"a.b": "c=d", "x": ""}
    with pytest.raises(ValueError, match="name=value"):
        read_settings("password")
