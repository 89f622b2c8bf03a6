"""A Kafka broker on loopback, and a Spark that can read from it."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.light_java import light_java
from tests.support.processes import Server, ServerUnavailable, free_port, running
from tools.kafka import broker_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 120.0


@contextlib.contextmanager
def kafka_server(
    settings: Mapping[str, object] | None = None, behind: Proxied | None = None
) -> Iterator[Server]:
    """Run a broker of one node. Raises ServerUnavailable where its jars were not fetched.

    With ``behind`` it has a second listener, which sends clients to a proxy.
    """
    if not broker_jars():
        raise ServerUnavailable("its jars are not there: make integration fetches them by Maven")
    java = light_java(broker_jars())
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:

        def on_port(port: int) -> Server:
            file = Path(folder, f"{port}.properties")
            own = _settings(port, free_port(), Path(folder, f"data-{port}"), behind)
            lines = {**own, **(settings or {})}
            file.write_text("\n".join(f"{name}={value}" for name, value in lines.items()))
            tool = [*java, "kafka.tools.StorageTool", "format"]
            identity = ["-t", _cluster_id(), "-c", str(file)]
            subprocess.run([*tool, *identity], check=True, capture_output=True, timeout=_SECONDS)
            command = [*java, "kafka.Kafka", str(file)]
            return Server("kafka", port, command, lambda _: _answers(port))

        with running(on_port) as server:
            yield server


class Proxied(NamedTuple):
    """A listener behind a proxy: where the broker listens, and where it sends clients."""

    port: int
    proxy: int


def _settings(port: int, controller: int, data: Path, behind: Proxied | None) -> dict[str, object]:
    listeners = {"PLAINTEXT": port, "CONTROLLER": controller}
    advertised = {"PLAINTEXT": port}
    if behind is not None:
        listeners["PROXIED"], advertised["PROXIED"] = behind
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
    }


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def _cluster_id() -> str:
    """An id as Kafka draws them: one that begins with "-" would be taken for an option."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


def _answers(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


class Topics:
    """Topics of a broker, by the client in Spark's JVM."""

    def __init__(self, spark: SparkSession, server: Server) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self.servers = f"127.0.0.1:{server.port}"

    def create(self, name: str, partitions: int = 1, **settings: str) -> str:
        topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        given = self._jvm.java.util.HashMap()
        for key, value in settings.items():
            given.put(key.replace("_", "."), value)
        with self._client() as client:
            client.createTopics(self._listed(topic.configs(given))).all().get()
        return name

    def delete_rows(self, name: str, before: int, partition: int = 0) -> None:
        """Delete rows as retention does."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers})
        at = TopicPartition(name, partition, before)
        admin.delete_records([at])[at].result(60)

    def group_offsets(self, group: str) -> dict[str, int]:
        """What Kafka's own tools see of a consumer group, by partition."""
        with self._client() as client:
            found = client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            return {str(at.toString()): int(found.get(at).offset()) for at in found}

    def delete(self, name: str) -> None:
        with self._client() as client:
            client.deleteTopics(self._listed(name)).all().get()

    def send(self, name: str, values: Sequence[str]) -> None:
        rows = self._spark.createDataFrame([(value,) for value in values], "value string")
        writer = rows.coalesce(1).write.format("kafka").option("topic", name)
        writer.option("kafka.bootstrap.servers", self.servers).save()

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        given = self._jvm.java.util.Properties()
        given.setProperty("bootstrap.servers", self.servers)
        client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(given)
        try:
            yield client
        finally:
            client.close()

    def _listed(self, one: Any) -> Any:
        found = self._jvm.java.util.ArrayList()
        found.add(one)
        return found
