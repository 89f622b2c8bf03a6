"""Prometheus and promtool, for the tests of the metrics, the dashboard and the alerts.

Debian's package, installed as root and only in CI or with ``SERVERS=install``, as the databases
are. Its service is not started, now or at the next boot: tests start a server of their own.
"""

from __future__ import annotations

from tools import debian
from tools.servers import Program

PROMETHEUS = Program("Prometheus", "prometheus", ("prometheus", "promtool"))


def is_there() -> bool:
    """Whether the server and its tool are there."""
    return PROMETHEUS.find() is not None


def fetch() -> None:
    """Install them. Raises Unavailable if that is not possible or allowed."""
    debian.require(PROMETHEUS)
