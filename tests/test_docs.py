"""The programs in the documentation run as they stand there, but for their addresses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.progress import rocksdb_url
from seamark.sinks import KeyValueSink
from seamark.testing.conformance.sink_examples import epoch
from tests.dashboards.support.expressions import exported_names
from tests.support.databases import PostgresServer, RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
    *sorted(str(each.relative_to(ROOT)) for each in ROOT.glob("docs/**/*.md")),
]
NOTEBOOKS = sorted(str(each.relative_to(ROOT)) for each in ROOT.glob("docs/**/*.ipynb"))
ALDR = {"symbol": "ALDR", "time": "2026-01-05T09:30:01.500000Z", "price": 103.27}
BRCH = {"symbol": "BRCH", "time": "2026-01-05T09:30:00.000001Z", "price": None}
OFFSET = '{"offset": 1000}'


def program(page: str, name: str) -> str:
    """The block of a page that begins with its file name."""
    blocks: list[str] = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M
    )
    found = [block for block in blocks if block.startswith(f"# {name}\n")]
    assert len(found) == 1, f"{page} has {len(found)} programs {name}"
    return found[0]


def printed_by(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def written(spark: SparkSession, sink: KeyValueSink, pipeline: str) -> Iterator[None]:
    """A view with one epoch in it, whose writer is still running."""
    rows = spark.sql(
        """SELECT * FROM VALUES
        ('ALDR', timestamp'2026-01-05 09:30:00Z', double(99)),
        ('ALDR', timestamp'2026-01-05 09:30:01.5Z', double(103.27)),
        ('BRCH', timestamp'2026-01-05 09:30:00.000001Z', double(null))
        AS trades(symbol, time, price)"""
    )
    first = replace(
        epoch(1), pipeline=pipeline, sink="latest", positions={"trades": OFFSET.encode()}
    )
    sink.open(pipeline, "latest", rows.schema)
    sink.stage(rows, first, "a1")
    sink.commit(sink.prepare())
    yield
    sink.close()


def check_printed(lines: list[str]) -> None:
    one, aldr, brch, source = lines
    assert one == str(ALDR)
    assert aldr == f"ALDR {ALDR}"
    assert brch == f"BRCH {BRCH}"
    assert source == f"trades epoch 1 {OFFSET.encode()!r}"


@pytest.mark.warm
def test_a_view_in_rocksdb_is_read_beside_its_writer(spark: SparkSession, tmp_path: Path) -> None:
    url = rocksdb_url(tmp_path / "a view")
    code = program("docs/sinks.md", "read_rocksdb.py")
    with written(spark, KeyValueSink(url, key="symbol", order_by="time"), "trades"):
        check_printed(printed_by(code.replace("rocksdb:///data/latest", url)))
    check_printed(printed_by(code.replace("rocksdb:///data/latest", url)))


@pytest.mark.slow
@pytest.mark.warm
def test_a_view_in_redis_is_read_by_us_and_by_anybody(
    spark: SparkSession, redis: RedisServer, tmp_path: Path
) -> None:
    from redis import Redis

    pipeline = f"trades-{uuid.uuid4().hex}"
    code = program("docs/sinks.md", "read_redis.py").replace("redis://cache:6379/0", redis.url)
    sink = KeyValueSink(redis.url, key="symbol", order_by="time", staging=tmp_path)
    typed = re.findall(r"^redis-cli (.*)$", (ROOT / "docs/sinks.md").read_text(), re.M)
    with written(spark, sink, pipeline), Redis.from_url(redis.url) as client:
        check_printed(printed_by(code.replace("trades/latest", f"{pipeline}/latest")))
        asked = [shlex.split(line.replace("trades/latest", f"{pipeline}/latest")) for line in typed]
        one, every = (client.execute_command(*words) for words in asked)
    assert json.loads(one) == ALDR
    assert {key: json.loads(row) for key, row in every.items()} == {b"ALDR": ALDR, b"BRCH": BRCH}


@pytest.mark.spark
def test_the_program_for_postgresql_writes_each_row_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    import psycopg

    dsn = postgres.new_database()
    code = program("docs/postgres.md", "trades_to_postgres.py")
    code = code.replace("postgresql://etl@db.example:5432/market", dsn)
    code = code.replace("/data/", f"{tmp_path}/")
    code = f"from seamark.spark.java import use_java\nuse_java()\n{code}"
    (tmp_path / "incoming").mkdir()
    for number, price in enumerate([103.27, 99], 1):
        row = json.dumps({"symbol": "ALDR", "price": price})
        (tmp_path / "incoming" / f"{number}.json").write_text(row)
        assert printed_by(code) == [f"epoch {number}"]
    with psycopg.connect(dsn) as db:
        trades = db.execute("SELECT price::text, at_epoch FROM trades ORDER BY 2").fetchall()
        totals = db.execute("SELECT symbol, trades, highest::text FROM totals").fetchall()
    assert trades == [("103.2700", 1), ("99.0000", 2)]
    assert totals == [("ALDR", 2, "103.2700")]


@pytest.mark.spark
def test_the_program_for_opentelemetry_prints_a_span_for_each_step(tmp_path: Path) -> None:
    code = program("docs/metrics.md", "traced.py").replace("/data/", f"{tmp_path}/")
    code = code.replace("metrics=9108", "metrics=0")
    code = f"from seamark.spark.java import use_java\nuse_java()\n{code}"
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "1.json").write_text('{"symbol": "ALDR", "price": 103.27}')
    steps = ("begin", "write", "prepare", "capture", "save", "commit", "record", "retain")
    assert printed_by(code) == [
        "seamark.recovery None UNSET",
        *(f"seamark.epoch.{step} 1 UNSET" for step in steps),
        "seamark.epoch 1 UNSET",
    ]


def test_the_page_of_metrics_has_all_of_them_with_their_labels() -> None:
    registry = CollectorRegistry()
    PipelineMetrics("trades", registry)
    exported = {
        re.sub("_(bucket|sum|count)$", "", name): labels - {"pipeline"}
        for name, labels in exported_names(registry).items()
    }
    described: dict[str, set[str]] = {}
    row = re.compile(r"^\| (`seamark_\w+`(?:, `seamark_\w+`)*) \|([^|]*)\|", re.M)
    for names, labels in row.findall((ROOT / "docs/metrics.md").read_text()):
        for name in re.findall(r"\w+", names):
            assert name not in described, "told twice"
            described[name] = set(re.findall(r"\w+", labels))
    assert described == exported


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS])
def test_every_link_between_pages_leads_somewhere(page: str) -> None:
    here = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text()):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        there = (here.parent / path) if path else here
        assert there.exists(), f"{here.name} links to {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            slugs = [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]
            assert heading in slugs, f"{here.name} links to {target}"


@pytest.mark.parametrize(
    "page", [*PAGES, "CHANGELOG.md", "CODE_OF_CONDUCT.md", "benchmarks/README.md"]
)
def test_a_page_can_be_read_in_a_window_of_110_columns(page: str) -> None:
    prose = re.sub(r"^```console$.*?^```$", "", (ROOT / page).read_text(), flags=re.S | re.M)
    wide = [line for line in prose.splitlines() if len(line) > 110 and not line.startswith("|")]
    assert wide == []


def test_the_page_is_served_by_a_few_lines_of_python() -> None:
    assert printed_by(program("docs/ui.md", "page.py")) == ["200 text/html; charset=utf-8"]
