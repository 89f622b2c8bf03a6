"""The HTTP server from which Prometheus reads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError
from seamark.manifest.bounds import U16_MAX, check_number

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsServer:
    """Serves one registry on one port for as long as a pipeline uses it."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        from prometheus_client import start_http_server

        self._registry = registry
        self._address = (host, port)
        self._users = 0
        self._http, self._thread = start_http_server(port, host, registry)
        self.port: int = self._http.server_port

    @classmethod
    def serving(cls, registry: CollectorRegistry, host: str, port: int) -> MetricsServer:
        """The server of this registry at that address, the one of another pipeline if it is there.

        ``RefusedError`` when the address is taken or not of this machine.
        """
        check_number("the port for metrics", port, 0, U16_MAX)
        with _lock:
            server = next((known for known in _running if known._fits(registry, host, port)), None)
            if server is None:
                try:
                    server = cls(registry, host, port)
                except OSError as error:
                    raise RefusedError(
                        f"metrics cannot be served on {host}:{port}: {error.strerror or error}",
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
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()


_lock: Final = threading.Lock()
_running: Final[list[MetricsServer]] = []
