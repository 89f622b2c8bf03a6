"""A Prometheus on loopback that scrapes what it is told to, and promtool."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import Server, ServerUnavailable, running
from tools.prometheus import PROMETHEUS


class Prometheus(Server):
    """A running Prometheus."""

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        answer = self.get("query", query=expression)
        series: list[dict[str, Any]] = answer["result"]
        return series

    def get(self, path: str, **parameters: str) -> Any:
        """What its API answers."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        return document["data"]


@contextlib.contextmanager
def prometheus_server(target: str, rules: Path, *, job: str = "etl") -> Iterator[Prometheus]:
    """Scrape ``host:port`` every second; ServerUnavailable where Prometheus is not installed."""
    program = _program("prometheus")
    with tempfile.TemporaryDirectory(prefix="prometheus-") as folder:
        config = Path(folder, "prometheus.yml")
        scrape = {"job_name": job, "static_configs": [{"targets": [target]}]}
        times = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config.write_text(
            yaml.safe_dump(
                {"global": times, "rule_files": [str(rules)], "scrape_configs": [scrape]}
            )
        )

        def on_port(port: int) -> Prometheus:
            flags = [
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}/data-{port}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ]
            return Prometheus("prometheus", port, [program, *flags], lambda _: _is_ready(port))

        with running(on_port) as server:
            yield server


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """ServerUnavailable where Prometheus and promtool are not installed."""
    _program("promtool")
    yield


def promtool(
    arguments: Sequence[str | Path], said: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run promtool; ServerUnavailable where it is not installed."""
    return subprocess.run(
        [_program("promtool"), *map(str, arguments)],
        input=said.decode(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def _is_ready(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
        return bool(answer.status == 200)


def _program(name: str) -> str:
    folder = PROMETHEUS.find()
    if folder is None:
        raise ServerUnavailable(f"Prometheus is not installed (Debian: {PROMETHEUS.package})")
    return str(folder / name)
