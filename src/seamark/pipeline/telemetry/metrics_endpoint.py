"""Where the metrics of pipelines are read: one port for each registry, shared by its pipelines.

Tests: ``tests/pipeline/test_metrics_server.py``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from seamark._common.checks import U16_MAX, check_number
from seamark.errors import InvalidInputError, RefusedError
from seamark.pipeline.telemetry.metrics_server import HttpServer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOOPBACK: Final = "127.0.0.1"
_lock: Final = threading.Lock()


class MetricsEndpoint:
    """Serves one registry on one port for as long as a pipeline uses it."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        from prometheus_client import make_wsgi_app

        self._registry = registry
        self._address = (host, port)
        self._users = 0
        self._http = HttpServer(make_wsgi_app(registry), host, port)
        self.port: int = self._http.port

    @classmethod
    def serving(cls, registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
        """The server of this registry at that address, the one of another pipeline if it is there.

        ``RefusedError`` when the address is taken or not of this machine.
        """
        check_number("the port for metrics", port, 0, U16_MAX)
        with _lock:
            server = next((known for known in _running if known._fits(registry, host, port)), None)
            if server is None:
                try:
                    server = cls(registry, host, port)
                except (OSError, UnicodeError) as error:
                    why = (error.strerror if isinstance(error, OSError) else None) or error
                    raise RefusedError(
                        f"metrics cannot be served on {host}:{port}: {why}",
                        hint="Choose another port, or 0 for any that is free.",
                    ) from error
                _running.append(server)
            server._users += 1
            return server

    def _fits(self, registry: CollectorRegistry, host: str, port: int) -> bool:
        # port 0 asks for a port of one's own
        return port != 0 and self._registry is registry and self._address == (host, port)

    def release(self) -> None:
        """Give up one use; with the last one the port is free again."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            _running.remove(self)
            self._http.close()


def split_address(address: str, what: str = "metrics are") -> tuple[str, int]:
    """Host and port out of ``host:port``; the host of IPv6 is in brackets, as in ``[::1]:9100``."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # IPv6 without brackets: it is unclear where the port starts
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > U16_MAX:
        raise InvalidInputError(
            f"{what} served at host:port, which {address!r} is not",
            hint="For example '0.0.0.0:9100', '[::1]:9100', or the port alone as a number: then "
            "only this machine can read it.",
        )
    return host, int(port)


_running: Final[list[MetricsEndpoint]] = []
