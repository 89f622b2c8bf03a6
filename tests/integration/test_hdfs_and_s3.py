"""A pipeline on a cluster without a shared disk for its state: HDFS, S3, and everything killed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pyarrow.dataset as ds
import pytest

from tests.integration.support.hdfs import Hdfs
from tests.pipeline.support.cluster import Cluster, standalone_cluster
from tests.pipeline.support.pauses import release, wait_for_pause
from tests.progress.support.proxy import Proxy, before
from tests.support.servers import ObjectServer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

log = logging.getLogger(__name__)  # --log-cli-level=INFO shows the bytes by the driver

FILES = 6
ROWS = 3000
AGAIN = 300
"""Ids of the file before that each file repeats."""

Rows = Counter[tuple[Any, ...]]


def numbers_of(file: int) -> list[int]:
    new = list(range(file * ROWS, (file + 1) * ROWS))
    return new + [number - ROWS for number in new[:AGAIN]] * (file > 0)


def write_input(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in range(FILES):
        rows = [
            {"id": number, "k": number % 5, "t": f"2026-01-01T00:{file:02}:{place % 60:02}Z"}
            for place, number in enumerate(numbers_of(file))
        ]
        path = folder / f"{file}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + file,) * 2)


def expected_sums() -> Rows:
    """Each window and key once; the last window of all is still open."""
    midnight = 1_767_225_600
    counts = Counter(
        (midnight + file * 60 + place % 60 // 10 * 10, number % 5)
        for file in range(FILES)
        for place, number in enumerate(numbers_of(file))
    )
    last = max(start for start, _ in counts)
    return Counter((start, k, count) for (start, k), count in counts.items() if start < last)


def shown(folder: Path, *names: str) -> Rows:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table(list(names))
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


class Drivers:
    """Drivers of one pipeline, one after the other. They reach S3 through a proxy of their own."""

    def __init__(self, base: Path, cluster: Cluster, environment: Mapping[str, str]) -> None:
        self._base = base
        self._cluster = cluster
        self._environment = {**os.environ, **environment}

    @contextmanager
    def run(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        module = "tests.integration.support.cluster_driver"
        command = [sys.executable, "-m", module, self._cluster.url, str(self._base), *arguments]
        driver = subprocess.Popen(command, env=self._environment)
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()

    def kill(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill both of its processes: Python and the JVM."""
        os.kill(int((self._base / "jvm").read_text()), signal.SIGKILL)
        driver.kill()
        driver.wait()


class Passed:
    """Bytes that went through the drivers: to and from S3, on HDFS, and as results of tasks."""

    def __init__(self, base: Path, proxy: Proxy) -> None:
        self._base = base
        self._proxy = proxy

    def now(self) -> Counter[str]:
        """So many until now; on HDFS those of the driver that ran last."""
        hdfs = json.loads((self._base / "hdfs.json").read_text())
        logs = (self._base / "events").iterdir()
        results = sum(size for log in logs for size in _result_sizes(log))
        return Counter(s3=self._proxy.passed, hdfs=sum(hdfs.values()), results=results)


def _result_sizes(log: Path) -> Iterator[int]:
    """What each task has sent to the driver; the last line of a killed driver may be cut."""
    for line in log.read_text().splitlines():
        if line.startswith('{"Event":"SparkListenerTaskEnd"') and line.endswith("}"):
            metrics = json.loads(line).get("Task Metrics")
            yield int(metrics["Result Size"]) if metrics else 0


def credentials(server: ObjectServer, endpoint: str) -> dict[str, str]:
    options = server.storage_options
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_REGION": options["region"],
        "AWS_ALLOW_HTTP": "true",
    }


def stored(server: ObjectServer, store: str) -> dict[str, bytes]:
    """All objects of the store."""
    bucket = obstore.store.from_url(store, **server.storage_options)
    names = [row["path"] for page in obstore.list(bucket) for row in page]
    return {name: bytes(obstore.get(bucket, name).bytes()) for name in names}


def state_bytes(objects: Mapping[str, bytes]) -> int:
    return sum(len(data) for name, data in objects.items() if name.startswith("shared/"))


def test_a_lost_worker_a_killed_driver_and_a_deleted_working_copy_change_no_row(
    hdfs: Hdfs, objects: ObjectServer, tmp_path: Path
) -> None:
    base = tmp_path / "pipeline"
    write_input(base / "in")
    store, copies = objects.new_url("store"), f"/{tmp_path.name}"
    port = int(objects.endpoint_url.rpartition(":")[2])
    for_executors = credentials(objects, objects.endpoint_url)
    with (
        before(port) as proxy,
        standalone_cluster(tmp_path / "cluster", environment=for_executors) as cluster,
    ):
        drivers = Drivers(base, cluster, credentials(objects, f"http://127.0.0.1:{proxy.port}"))
        passed = Passed(base, proxy)
        arguments = (store, hdfs.url + copies, "rocksdb-changelog")
        with drivers.run(*arguments, "capture:before:3", "save:after:5") as driver:
            wait_for_pause(base, "capture:before:3", driver)
            cluster.workers[0].kill()
            cluster.add_worker()
            release(base, "capture:before:3")
            wait_for_pause(base, "save:after:5", driver)
            drivers.kill(driver)
        first, state = passed.now(), state_bytes(stored(objects, store))
        hdfs.delete(copies)
        with drivers.run(*arguments, "begin:before:6") as driver:
            wait_for_pause(base, "begin:before:6", driver)
            rebuilt = passed.now()
            release(base, "begin:before:6")
            assert driver.wait(280) == 0
        last, written = passed.now(), stored(objects, store)
    assert shown(base / "distinct", "id", "k") == Counter((n, n % 5) for n in range(FILES * ROWS))
    assert shown(base / "sums", "w", "k", "count") == expected_sums()
    result = json.loads((base / "result.json").read_text())
    assert (result["epoch"], result["fell_back"]) == (FILES + 1, False)
    assert result["driver"] not in {pid for _, pid in result["read_by"]}
    assert result["working_copy"].startswith("rebuilt"), result["working_copy"]
    # the driver saw metadata only, also when the copy was rebuilt
    assert state > 4 * ROWS * 1024
    by_driver = {
        "first": first,
        # on HDFS each driver counts from zero
        "rebuild": rebuilt - Counter(s3=first["s3"], results=first["results"]),
        "last": last - rebuilt,
    }
    log.info("state of %d bytes; by the driver: %s", state, by_driver)
    for passed_by in by_driver.values():
        assert passed_by["s3"] + passed_by["hdfs"] < state / 20, (by_driver, state)
        # a result of a task is some kilobytes of Spark's own figures
        assert passed_by["results"] < state / 5, (by_driver, state)
    secret = objects.storage_options["secret_access_key"].encode()
    logs = {path.name: path.read_bytes() for path in (base / "events").iterdir()}
    assert [name for name, data in {**written, **logs}.items() if secret in data] == []
