"""The page 'Kafka to Delta, exactly once', from top to bottom, and with a kill in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seamark.spark.java import java_home
from tests.sinks.support.kafka_records import Broker
from tests.support.stories import check
from tests.test_docs import program
from tools.kafka import connector_jars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
PAGE = "docs/how-to/kafka-to-delta.md"


def replaced(broker: Broker, topic: str) -> dict[str, str]:
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    return {
        "seamark.kafka_packages()": repr(jars),  # tests fetch nothing
        "broker:9092": broker.servers,
        '"subscribe", "trades"': f'"subscribe", "{topic}"',
        'consumer_group="trades"': f'consumer_group="{topic}"',
    }


def send(broker: Broker, topic: str, first: int, last: int) -> None:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": broker.servers})
    for number in range(first, last):
        row = {"symbol": f"s{number % 3}", "price": number, "day": f"2026-01-0{1 + number % 2}"}
        client.produce(topic, json.dumps(row))
    assert client.flush(60) == 0


def prices_in(table: Path) -> list[float]:
    from deltalake import DeltaTable

    rows = DeltaTable(table).to_pyarrow_table(columns=["price"]).to_pylist()
    return sorted(row["price"] for row in rows)


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, broker: Broker) -> None:
    broker.new_topic(partitions=1, name="trades")  # one, so that all offsets are known
    send(broker, "trades", 0, 100)
    check(PAGE, tmp_path, replaced(broker, "trades"))
    assert prices_in(tmp_path / "trades") == list(range(100))


@pytest.mark.slow
def test_rows_come_once_although_it_is_killed_again_and_again(
    tmp_path: Path, broker: Broker
) -> None:
    topic = broker.new_topic()
    code = program(PAGE, "trades.py")
    words = {"/data/": f"{tmp_path}/", "100_000": "10", **replaced(broker, topic)}
    for here, there in words.items():
        code = code.replace(here, there)
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    send(broker, topic, 0, 200)
    for kills in range(1, 3):
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL
        ) as driver:
            wait_for_epoch(tmp_path, 4 * kills, driver)
            driver.send_signal(signal.SIGKILL)
    done = subprocess.run(
        [sys.executable, "-c", code, "--once"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert prices_in(tmp_path / "trades") == list(range(200))


def wait_for_epoch(folder: Path, epoch: int, driver: subprocess.Popen[bytes]) -> None:
    from seamark.store import open_store

    while driver.poll() is None:
        if (folder / "checkpoints").exists():
            with open_store(folder / "checkpoints") as store:
                if store.list_ids() and max(store.list_ids()) >= epoch:
                    return
        time.sleep(0.05)
    raise AssertionError(f"it ended with {driver.returncode}")
