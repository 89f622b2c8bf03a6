"""The manifests of the page on Kubernetes say what exists, and its program ends as it says.

There is no cluster. Spark's driver is started by ``spark-submit``, as its container does it, and
the commands of the manifests are run as they stand there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import click
import pyspark
import pytest
import yaml

from seamark.spark.java import java_home
from seamark.store import open_store
from tests.site.test_reference import command_of
from tests.test_docs import ROOT, program

PAGE: Final = "docs/how-to/kubernetes.md"
BLOCKS: Final = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / PAGE).read_text(), re.S | re.M)
MANIFESTS: Final[list[dict[str, Any]]] = [
    manifest for block in BLOCKS for manifest in yaml.safe_load_all(block)
]


def manifest(kind: str, name: str) -> dict[str, Any]:
    named = [each for each in MANIFESTS if each["metadata"]["name"] == name]
    (found,) = [each for each in named if each["kind"] == kind]
    return found


def commands(value: object) -> Iterator[list[str]]:
    """The command line of every container that runs ``seamark``."""
    if isinstance(value, dict):
        if value.get("command") == ["seamark"]:
            yield value["args"]
        for below in value.values():
            yield from commands(below)
    elif isinstance(value, list):
        for below in value:
            yield from commands(below)


def test_the_manifests_are_complete_and_name_each_other() -> None:
    kinds = sorted(each["kind"] for each in MANIFESTS)
    assert kinds == [
        *("CronJob", "PersistentVolumeClaim", "Secret", "Service"),
        *("SparkApplication", "SparkApplication"),
    ]
    application = manifest("SparkApplication", "trades")["spec"]
    assert application["restartPolicy"]["type"] == "OnFailure"  # a fenced driver stays ended
    claim = application["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == manifest("PersistentVolumeClaim", "trades-working")["metadata"]["name"]
    secret = manifest("Secret", "trades")["metadata"]["name"]
    for pod in (application["driver"], application["executor"]):
        assert pod["envFrom"] == [{"secretRef": {"name": secret}}]
    service = manifest("Service", "trades")["spec"]
    assert service["selector"].items() <= application["driver"]["labels"].items()
    ports = {each["containerPort"] for each in application["driver"]["ports"]}
    assert {each["targetPort"] for each in service["ports"]} == ports
    assert {each["metadata"]["namespace"] for each in MANIFESTS} == {"streaming"}


def test_every_variable_that_the_program_reads_is_in_the_manifest() -> None:
    code = program(PAGE, "trades.py")
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', code)) - {"PID_FILE"}
    driver = manifest("SparkApplication", "trades")["spec"]["driver"]
    given = {each["name"]: each["value"] for each in driver["env"]}
    assert read == given.keys() - {"AWS_REGION"}
    hook = driver["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert '"PID_FILE", "/tmp/driver.pid"' in code
    assert "${PID_FILE:-/tmp/driver.pid}" in hook
    ports = [int(given[name].rpartition(":")[2]) for name in ("METRICS", "PAGE")]
    assert ports == [each["containerPort"] for each in driver["ports"]]


@pytest.mark.parametrize("line", list(commands(MANIFESTS)), ids=" ".join)
def test_every_command_of_a_container_exists_with_its_options(line: list[str]) -> None:
    words = tuple(line[:2] if line[0] == "spark" else line[:1])
    command = command_of(words)
    context = command.make_context(words[-1], line[len(words) :], resilient_parsing=False)
    assert isinstance(context, click.Context)


def test_the_grace_period_is_longer_than_an_epoch_may_take_to_stop() -> None:
    from seamark.pipeline.declaration.settings import PipelineSettings

    driver = manifest("SparkApplication", "trades")["spec"]["driver"]
    assert driver["terminationGracePeriodSeconds"] > 2 * PipelineSettings().stop_timeout


class Driver:
    """The program of the page under ``spark-submit``: a JVM that starts Python."""

    def __init__(self, folder: Path) -> None:
        (folder / "trades.py").write_text(program(PAGE, "trades.py"))
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in/1.json").write_text('{"symbol": "ALDR", "price": 1.5}\n')
        self.pid_file = folder / f"{time.monotonic_ns()}.pid"
        self._output = self.pid_file.with_suffix(".log")
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "PID_FILE": str(self.pid_file),
            "STORE": str(folder / "store"),
            "WORKING_COPY": str(folder / "working"),
            "FORMAT": "json",
            "INPUT": str(folder / "in"),
            "TABLE": str(folder / "table"),
        }
        submit = Path(pyspark.__file__).parent / "bin/spark-submit"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [submit, "--master", "local[2]", folder / "trades.py"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError):
            os.kill(int(self.pid_file.read_text()), signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def python(self, number: signal.Signals) -> None:
        """Send a signal to Python, and not to the JVM."""
        os.kill(int(self.pid_file.read_text()), number)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and all that it has printed, when it has ended."""
        return self.process.wait(), self._output.read_text()

    def wait_for_epoch(self, folder: Path, epoch: int) -> None:
        while self.process.poll() is None:
            if (folder / "store").exists():
                with open_store(folder / "store") as store:
                    if store.list_ids() and max(store.list_ids()) >= epoch:
                        return
            time.sleep(0.1)
        raise AssertionError(self.ended())


def generation(folder: Path) -> int:
    """How often the store has been claimed."""
    with open_store(folder / "store") as store:
        return store.owner().generation


def prices(folder: Path) -> list[float]:
    from deltalake import DeltaTable

    rows = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return sorted(row["price"] for row in rows)


@pytest.mark.spark
def test_before_a_pod_is_stopped_its_driver_finishes_the_epoch_and_asks_to_be_started_again(
    tmp_path: Path,
) -> None:
    spec = manifest("SparkApplication", "trades")["spec"]["driver"]
    hook = spec["lifecycle"]["preStop"]["exec"]["command"]
    with Driver(tmp_path) as driver:
        driver.wait_for_epoch(tmp_path, 1)
        environment = {**os.environ, "PID_FILE": str(driver.pid_file)}
        subprocess.run(hook, env=environment, check=True)
        code, output = driver.ended()
    assert code == 128 + signal.SIGTERM, output
    assert "asked to end after epoch 1" in output
    assert prices(tmp_path) == [1.5]


@pytest.mark.spark
def test_a_driver_that_is_fenced_ends_well_so_that_it_is_not_started_again(tmp_path: Path) -> None:
    with Driver(tmp_path) as old:
        old.wait_for_epoch(tmp_path, 1)
        with Driver(tmp_path) as new:
            while not (new.pid_file.exists() and generation(tmp_path) == 2):
                time.sleep(0.1)
            (tmp_path / "in/2.json").write_text('{"symbol": "BRCH", "price": 2.5}\n')
            code, output = old.ended()
            assert code == 0, output
            assert "another driver has taken over" in output
            (tmp_path / "in/3.json").write_text('{"symbol": "BRCH", "price": 3.5}\n')
            new.wait_for_epoch(tmp_path, 3)
            new.python(signal.SIGTERM)
            new.ended()
    assert prices(tmp_path) == [1.5, 2.5, 3.5]


@pytest.mark.spark
@pytest.mark.chaos
def test_sigterm_to_spark_alone_cuts_the_run_off_and_the_next_start_goes_on(tmp_path: Path) -> None:
    with Driver(tmp_path) as driver:
        driver.wait_for_epoch(tmp_path, 1)
        driver.process.terminate()  # the JVM, as Kubernetes does without preStop
        code, output = driver.ended()
    assert code != 0
    assert "asked to end" not in output
    (tmp_path / "in/2.json").write_text('{"symbol": "BRCH", "price": 2.5}\n')
    with Driver(tmp_path) as driver:
        driver.wait_for_epoch(tmp_path, 2)
        driver.python(signal.SIGTERM)
        driver.ended()
    assert prices(tmp_path) == [1.5, 2.5]
