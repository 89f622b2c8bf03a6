"""A pipeline into a real Kafka, killed at each point of an epoch, as readers of others see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.errors import FencedError, RefusedError
from seamark.spark.java import java_home
from tests.pipeline.support.drivers import overtaken
from tests.sinks.support.kafka_records import Broker
from tests.test_docs import program
from tools.kafka import broker_jars, tools_jars

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
FILES, ROWS = 3, 50
KILLS = ("save:after:1", "sent:2", "commit:after:3")


def write_input(folder: Path) -> list[int]:
    (folder / "in").mkdir()
    for at in range(FILES):
        numbers = range(at * ROWS, (at + 1) * ROWS)
        lines = [json.dumps({"n": n, "k": f"k{n % 7}"}) for n in numbers]
        (folder / "in" / f"{at}.json").write_text("\n".join(lines))
    return [*range(FILES * ROWS)]


def run(
    folder: Path, broker: Broker, topic: str, shards: int, point: str, *others: str, ends: int = 0
) -> int:
    marker = folder / "marker"
    given = [str(folder), broker.servers, topic, str(shards), point, str(marker), *others]
    command = [sys.executable, "-m", "tests.integration.support.kafka_driver", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if point:
        assert marker.read_text().splitlines()[-1] == f"reached {point}", done.stderr[-2000:]
    else:
        assert done.returncode == ends, done.stdout + done.stderr[-2000:]
    return done.returncode


def test_an_epoch_that_one_ledger_says_is_shown_is_not_shown_again_by_another(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Whatever the policy: only the ledger that it was prepared with knows what became of it."""
    rows = write_input(tmp_path)
    assert run(tmp_path, broker, topic, 1, "shown:1") == -9
    for policy in ("strict", "warn", "evolve"):
        run(tmp_path, broker, topic, 1, "", f"{topic}-ledger", policy, ends=RefusedError.exit_code)
    shown = broker.numbers(topic)
    assert len({*shown}) == len(shown) == ROWS
    run(tmp_path, broker, topic, 1, "")
    assert sorted(broker.numbers(topic)) == rows


def test_a_pipeline_that_is_killed_again_and_again_shows_each_row_once(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    rows = write_input(tmp_path)
    for point in KILLS:
        assert run(tmp_path, broker, topic, 1, point) == -9
    run(tmp_path, broker, topic, 1, "")
    assert sorted(broker.numbers(topic)) == rows
    assert sorted(console_consumer(broker, topic, len(rows))) == rows
    assert not [*(tmp_path / "staging").rglob("*.parquet")]


@pytest.mark.chaos
def test_several_shards_show_each_row_once_too(broker: Broker, topic: str, tmp_path: Path) -> None:
    rows = write_input(tmp_path)
    for point in KILLS:
        assert run(tmp_path, broker, topic, 2, point) == -9
    run(tmp_path, broker, topic, 2, "")
    assert sorted(broker.numbers(topic)) == rows


@pytest.mark.parametrize("shards", [1, pytest.param(2, marks=pytest.mark.chaos)])
def test_a_driver_that_hangs_inside_its_commit_is_told_and_adds_nothing(
    broker: Broker, topic: str, tmp_path: Path, shards: int
) -> None:
    """It stops with its rows sent, another one does all the work, and it wakes up."""
    rows = write_input(tmp_path)

    def start(*point: str) -> subprocess.Popen[str]:
        given = [str(tmp_path), broker.servers, topic, str(shards), *(point or ("",)), "unused"]
        command = [sys.executable, "-m", "tests.integration.support.kafka_driver", *given]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    code, said = overtaken(tmp_path, start, "hang:2")
    assert code == FencedError.exit_code, said
    assert sorted(broker.numbers(topic)) == rows
    assert not [*(tmp_path / "staging").rglob("*.parquet")]


def console_consumer(broker: Broker, topic: str, rows: int) -> list[int]:
    """What Kafka's own program prints."""
    classes = ":".join(map(str, [*broker_jars(), *tools_jars()]))
    command = [str(java_home() / "bin" / "java"), "-cp", classes]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", broker.servers, "--topic", topic, "--from-beginning"]
    command += ["--isolation-level", "read_committed", "--timeout-ms", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    numbers = [json.loads(line)["n"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(numbers) >= rows, done.stderr[-2000:]
    return numbers


def test_the_program_in_the_documentation_runs(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = ['{"symbol":"ALDR","price":103.25}', '{"symbol":"BRCH","price":null}']
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    topic = f"prices-{tmp_path.name}"
    code = program("docs/kafka-sink.md", "to_kafka.py").replace(
        '"prices",\n        key', f'"{topic}",\n        key'
    )
    command = [sys.executable, "-c", code, str(tmp_path), broker.servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = {record.key(): json.loads(record.value()) for record in broker.records(topic)}
    assert shown == {
        b"ALDR": {"symbol": "ALDR", "price": 103.25},
        b"BRCH": {"symbol": "BRCH", "price": None},
    }
