"""The program of the README, from Kafka into a Delta table and PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from seamark.spark.java import java_home
from tests.sinks.support.kafka_records import Broker
from tests.support.databases import PostgresServer
from tests.test_docs import program
from tools.kafka import connector_jars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
TRADES = [("ALDR", "99.0000"), ("BRCH", "7.2500"), ("ALDR", "103.2700")]


def test_it_runs_as_it_stands_there_and_again_with_more_trades(
    tmp_path: Path, broker: Broker, postgres: PostgresServer
) -> None:
    topic, dsn = broker.new_topic(), postgres.new_database()
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    code = (
        program("README.md", "trades.py")
        .replace("seamark.kafka_packages()", repr(jars))  # tests fetch nothing
        .replace("postgresql://etl@db:5432/market", dsn)
        .replace("broker:9092", broker.servers)
        .replace('"subscribe", "trades"', f'"subscribe", "{topic}"')
        .replace("/data/", f"{tmp_path}/")
    )
    for first, last in ((0, 2), (2, 3)):
        send(broker, topic, TRADES[first:last])
        assert f"{tmp_path}/trades" in run(code)
        assert in_delta(tmp_path / "trades") == sorted(TRADES[:last])
    with psycopg.connect(dsn) as db:
        totals = db.execute("SELECT symbol, trades, highest::text FROM totals ORDER BY 1")
        assert totals.fetchall() == [("ALDR", 2, "103.2700"), ("BRCH", 1, "7.2500")]


def send(broker: Broker, topic: str, trades: list[tuple[str, str]]) -> None:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": broker.servers})
    for symbol, price in trades:
        client.produce(topic, json.dumps({"symbol": symbol, "price": float(price)}))
    assert client.flush(60) == 0


def run(code: str) -> str:
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_delta(table: Path) -> list[tuple[str, str]]:
    from deltalake import DeltaTable

    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["symbol"], str(row["price"])) for row in rows)
