"""The servers that several of the integration tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.support.hdfs import Hdfs, hdfs_server
from tests.integration.support.kafka import Proxied, kafka_server
from tests.integration.support.object_server import versitygw_or_moto
from tests.sinks.support.kafka_records import Broker
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.processes import Server, free_port
from tests.support.servers import ObjectServer
from tests.support.skipped import or_skip


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    """One HDFS for all tests, each of which uses folders of its own."""
    with or_skip("HDFS", hdfs_server()) as started:
        yield started


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectServer]:
    """One S3 server for all tests, each of which uses buckets of its own."""
    with versitygw_or_moto() as started:
        yield started


@pytest.fixture(scope="session")
def kafka_listener() -> int:
    """Where the broker listens for those who come through the proxy."""
    return free_port()


@pytest.fixture(scope="session")
def kafka_proxy(kafka_listener: int) -> Iterator[CuttingProxy]:
    """A proxy that the broker sends its clients to, if they come through it."""
    with cutting_proxy("127.0.0.1", kafka_listener) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(kafka_listener: int, kafka_proxy: CuttingProxy) -> Iterator[Server]:
    """One broker for all tests, each of which uses topics of its own."""
    proxied = Proxied(kafka_listener, kafka_proxy.port)
    with or_skip("Kafka", kafka_server(behind=proxied)) as started:
        yield started


@pytest.fixture
def broker(kafka: Server) -> Broker:
    return Broker(kafka.port)


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.new_topic()
