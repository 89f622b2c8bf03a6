"""Kafka in; Delta, Iceberg, PostgreSQL, Kafka and a view out: each row once in all of them.

The pipeline is killed, half of the time while its sinks commit. Between its lives servers are
restarted, answers are lost on the way, and the working copy is removed. A producer goes on all the
time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

import seamark
from seamark.sinks import ReadPoint
from tests.integration.support.five_sinks import TABLE, Kill, Places, lose_working_copy
from tests.pipeline.support.killing import REPOSITORY
from tests.pipeline.support.views import shown_in
from tests.pipeline.test_kills import seeded
from tests.sinks.support.kafka_records import END_TRANSACTION, Broker, request_of
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.databases import PostgresServer, postgres_server
from tests.support.processes import Server
from tests.support.skipped import or_skip

pytestmark = [pytest.mark.integration]
SECONDS = 1800.0
"""For a life that ends after an epoch or two."""
LAST_SECONDS = 1800.0
"""For the last one, which has to read all that those before it have left."""
ROWS_AT_ONCE = 700


class Producer:
    """Sends numbered rows, a few at a time, and counts them."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        self.sent = 0

    def send(self, rows: int) -> None:
        from confluent_kafka import Producer as Client

        client = Client({"bootstrap.servers": self._servers, "enable.idempotence": True})
        for number in range(self.sent, self.sent + rows):
            row = {"id": number, "k": number % 7, "v": number * 3}
            client.produce(self._topic, json.dumps(row), partition=number % 2)
            client.poll(0)
        assert client.flush(SECONDS) == 0
        self.sent += rows

    @contextmanager
    def sending(self, rows: int) -> Iterator[None]:
        """Send them beside what is done meanwhile."""
        beside = threading.Thread(target=self.send, args=(rows,))
        beside.start()
        try:
            yield
        finally:
            beside.join()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One that may be restarted: the tests of other modules use another one."""
    with or_skip("PostgreSQL", postgres_server()) as started:
        yield started


class Scene:
    """The servers, the places, and the lives of the pipeline."""

    def __init__(
        self,
        root: Path,
        kafka: Server,
        kafka_proxy: CuttingProxy,
        postgres: PostgresServer,
        postgres_proxy: CuttingProxy,
    ) -> None:
        self.root, self.kafka, self.kafka_proxy = root, kafka, kafka_proxy
        self.postgres, self.postgres_proxy = postgres, postgres_proxy
        broker = Broker(kafka.port)
        self.direct = postgres.new_database()
        through = self.direct.replace(f":{postgres.process.port}/", f":{postgres_proxy.port}/")
        self.places = Places(
            kafka=broker.servers,
            proxied_kafka=f"127.0.0.1:{kafka_proxy.port}",
            topic_in=broker.new_topic(2),
            topic_out=broker.new_topic(2),
            postgres=through,
            root=str(root),
        )
        self.broker = broker
        self.producer = Producer(broker.servers, self.places.topic_in)
        (root / "places.json").write_bytes(msgspec.json.encode(self.places))
        with psycopg.connect(self.direct) as connection:
            columns = "id bigint, k int, v bigint, seamark_epoch bigint"
            connection.execute(f"CREATE TABLE trades ({columns})".encode())
        self._make_iceberg()

    def _make_iceberg(self) -> None:
        import pyarrow as pa
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **self.places.iceberg)
        catalog.create_namespace(TABLE.partition(".")[0])
        schema = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("v", pa.int64())])
        catalog.create_table(TABLE, schema)

    def live(self, kill: Kill | None = None) -> int:
        """Run the pipeline until it ends or dies; its exit code. Without a kill it reads all."""
        (self.root / "done").unlink(missing_ok=True)
        if kill is not None:
            (self.root / "kill.json").write_bytes(msgspec.json.encode(kill))
        with (self.root / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.support.five_sinks", str(self.root)],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                return driver.wait(LAST_SECONDS if kill is None else SECONDS)
            finally:
                driver.kill()
                driver.wait()

    def said(self) -> str:
        return (self.root / "driver.log").read_text(errors="replace")[-4000:]

    def met_an_outage(self) -> bool:
        """Whether a server did not answer: whoever watches over the pipeline starts it again."""
        return "UnavailableError: " in self.said().rpartition("Traceback")[2]

    # what readers see

    def wanted(self, checkpoint: int | None = None) -> Counter[int]:
        """The ids in the topic that is read, all or up to a checkpoint's offsets."""
        records = self.broker.records(self.places.topic_in)
        if checkpoint is not None:
            with seamark.open_store(self.places.store) as store:
                manifest = store.load_by_id(checkpoint)
            assert manifest is not None
            line = json.loads(manifest.source_offsets["trades"].metadata["line"])
            ends = line[self.places.topic_in]
            records = [each for each in records if each.offset() < ends[str(each.partition())]]
        return Counter(json.loads(record.value())["id"] for record in records)

    def delta(self, version: int | None = None) -> Counter[int]:
        from deltalake import DeltaTable

        table = DeltaTable(self.places.delta, version=version)
        return Counter(table.to_pyarrow_table()["id"].to_pylist())

    def iceberg(self, snapshot_id: int | None = None) -> Counter[int]:
        from pyiceberg.catalog import load_catalog

        table = load_catalog("default", **self.places.iceberg).load_table(TABLE)
        return Counter(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())

    def rows_in_postgres(self, condition: str = "true") -> Counter[int]:
        with psycopg.connect(self.direct) as connection:
            query = f"SELECT id FROM trades WHERE {condition}"
            return Counter(row[0] for row in connection.execute(query.encode()).fetchall())

    def records(self, ends: dict[str, int] | None = None) -> Counter[int]:
        return Counter(
            json.loads(record.value())["id"]
            for record in self.broker.records(self.places.topic_out)
            if ends is None or record.offset() < ends[str(record.partition())]
        )

    def at(self, point: ReadPoint) -> Counter[int]:
        """The ids that a reader sees at a read point."""
        if point.kind == "delta":
            return self.delta(point.at["version"])
        if point.kind == "iceberg":
            return self.iceberg(int(point.at["snapshot_id"]))
        if point.kind == "postgres":
            return self.rows_in_postgres(point.at["condition"])
        assert point.kind == "kafka", point
        return self.records(point.at["end_offsets"])


@pytest.fixture
def scene(
    tmp_path: Path, kafka: Server, kafka_proxy: CuttingProxy, postgres: PostgresServer
) -> Iterator[Scene]:
    with cutting_proxy("127.0.0.1", postgres.process.port) as postgres_proxy:
        yield Scene(tmp_path, kafka, kafka_proxy, postgres, postgres_proxy)


def shows_an_epoch(sent: bytes) -> bool:
    """Whether a client of PostgreSQL ends the transaction that decides about an epoch.

    Opening the sink commits as well, and has nothing to look up.
    """
    _, ledger, rest = sent.rpartition(b'"seamark_ledger" (pipeline, sink')
    return bool(ledger) and b"COMMIT\0" in rest


def disturb(scene: Scene, number: int) -> None:
    """Something that happens to servers and machines, another thing each time."""
    kind = number % 6
    if kind == 0:
        scene.postgres_proxy.lose_answer_to(shows_an_epoch)
    elif kind == 1:
        lose_working_copy(scene.places)
    elif kind == 2:
        scene.kafka_proxy.lose_answer_to(request_of(END_TRANSACTION))
    elif kind == 3:
        scene.postgres.process.restart()
    elif kind == 4:
        scene.kafka.restart()
    else:
        scene.kafka_proxy.cut_all()
        scene.postgres_proxy.cut_all()


def killed_again_and_again(scene: Scene, kills: int, dice: random.Random) -> None:
    """So many lives end by SIGKILL; those that end otherwise do not count."""
    killed = 0
    for number in itertools.count():
        if killed == kills:
            break
        assert number < 2 * kills + 2, f"only {killed} of {number} lives were killed"
        inside = killed % 2 == 0
        kill = Kill(
            epochs=dice.randint(1, 2),
            step="commit" if inside else dice.choice(("begin", "write", "save", "record")),
            delay=dice.uniform(0, 0.3 if inside else 1.0),
        )
        disturb(scene, number)
        with scene.producer.sending(ROWS_AT_ONCE):
            ended = scene.live(kill)
        assert ended in (-signal.SIGKILL, 0) or scene.met_an_outage(), scene.said()
        killed += ended == -signal.SIGKILL
    assert scene.live() == 0, scene.said()


def require_agreement(scene: Scene) -> None:
    """All five hold each row of the topic once.

    At every tenth epoch and the last, those that keep their history show the rows up to the offsets
    of that epoch. The view shows the newest epoch only.
    """
    wanted = scene.wanted()
    assert wanted == Counter(range(scene.producer.sent))
    assert scene.delta() == wanted
    assert scene.iceberg() == wanted
    assert scene.rows_in_postgres() == wanted
    assert scene.records() == wanted
    sums: dict[int, list[int]] = {}
    for number in wanted:
        sums.setdefault(number % 7, []).append(number * 3)
    view = {key: (row["n"], row["sum"]) for key, row in shown_in(scene.places.view).items()}
    assert view == {str(k): (len(values), sum(values)) for k, values in sums.items()}
    newest = seamark.read_epoch(scene.places.store)
    assert newest["view"].readable
    for epoch in [*range(10, newest.epoch, 10), newest.epoch]:
        cut = seamark.read_epoch(scene.places.store, epoch)
        seen: dict[str, Any] = {}
        for sink in ("delta", "iceberg", "postgres", "kafka"):
            point = cut[sink].point
            assert point is not None, f"nothing says what to read of {sink} at epoch {epoch}"
            seen[sink] = scene.at(point)
        at_epoch = scene.wanted(cut.checkpoint_id)
        assert all(ids == at_epoch for ids in seen.values()), epoch
    assert at_epoch == wanted


@pytest.mark.timeout(2400)
def test_I14_five_sinks_agree_after_kills_lost_answers_and_restarts(scene: Scene) -> None:
    killed_again_and_again(scene, 4, seeded())
    require_agreement(scene)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_I14_five_sinks_agree_after_thirty_kills(scene: Scene) -> None:
    killed_again_and_again(scene, 30, seeded())
    require_agreement(scene)
    for proxy in (scene.postgres_proxy, scene.kafka_proxy):
        assert proxy.cuts, "no answer was lost"


@pytest.mark.chaos
@pytest.mark.timeout(200_000)
def test_I14_five_sinks_agree_after_a_thousand_kills(scene: Scene) -> None:
    killed_again_and_again(scene, 1000, seeded())
    require_agreement(scene)
