"""A Kafka broker on loopback, and a Spark that can read from it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.spark.java import java_home
from tests.support.processes import Server, ServerUnavailable, free_port, running
from tools.kafka import broker_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 120.0


@contextlib.contextmanager
def kafka_server() -> Iterator[Server]:
    """Run a broker of one node. Raises ServerUnavailable where its jars were not fetched."""
    if not broker_jars():
        raise ServerUnavailable("its jars are not there: make integration fetches them by Maven")
    java = str(java_home() / "bin" / "java")
    classes = ":".join(map(str, broker_jars()))
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:

        def on_port(port: int) -> Server:
            settings = Path(folder, f"{port}.properties")
            settings.write_text(_settings(port, free_port(), Path(folder, f"data-{port}")))
            tool = [java, "-cp", classes, "kafka.tools.StorageTool", "format"]
            identity = ["-t", _cluster_id(), "-c", str(settings)]
            subprocess.run([*tool, *identity], check=True, capture_output=True, timeout=_SECONDS)
            command = [java, "-Xmx256m", "-cp", classes, "kafka.Kafka", str(settings)]
            return Server("kafka", port, command, lambda _: _answers(port))

        with running(on_port) as server:
            yield server


def _settings(port: int, controller: int, data: Path) -> str:
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={data}",
            "offsets.topic.replication.factor=1",
            "auto.create.topics.enable=false",
            "num.partitions=1",
        )
    )


def _cluster_id() -> str:
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _answers(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


class Topics:
    """Topics of a broker, by the client in Spark's JVM."""

    def __init__(self, spark: SparkSession, server: Server) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self.servers = f"127.0.0.1:{server.port}"

    def create(self, name: str) -> str:
        topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, 1, 1)
        with self._client() as client:
            client.createTopics(self._listed(topic)).all().get()
        return name

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
