"""A proxy before an object store that counts requests and can keep answers back.

It is a process of its own: some calls of ``deltalake`` hold the interpreter's lock while they wait
for an answer. ``python -m tests.sinks.support.http_proxy SERVER``
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
CONTROL = "/proxy-control"


class Proxy:
    """A running proxy, as the test sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def keep_back(self, pattern: str) -> None:
        """Have the server do the next request that fits, 'METHOD /path', and nobody hear of it."""
        self._ask({"keep_back": pattern})

    def take_requests(self) -> list[str]:
        """The requests since the last call, as 'METHOD /path'."""
        requests: list[str] = self._ask({})["requests"]
        return requests

    @property
    def kept_back(self) -> list[str]:
        """The requests whose answers were kept back."""
        requests: list[str] = self._ask({"look": True})["kept_back"]
        return requests

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(what).encode()
        with urllib.request.urlopen(f"{self.url}{CONTROL}", data=data, timeout=60) as answer:
            said: dict[str, Any] = json.loads(answer.read())
        return said


@contextmanager
def proxy_before(server: str) -> Iterator[Proxy]:
    """A proxy on a free port of loopback."""
    command = [sys.executable, "-m", "tests.sinks.support.http_proxy", server]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Proxy(process.stdout.readline().strip())
        finally:
            process.stdin.close()  # it ends when nobody holds the other end
            process.wait(60)


class _State:
    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.requests: list[str] = []
        self.kept_back: list[str] = []
        self.pattern: str | None = None

    def note(self, request: str) -> bool:
        """Note a request; whether its answer is to be kept back."""
        with self.turn:
            self.requests.append(request)
            if self.pattern is None or not re.search(self.pattern, request):
                return False
            self.pattern = None
            self.kept_back.append(request)
            return True

    def told(self, what: dict[str, Any]) -> dict[str, Any]:
        with self.turn:
            said = {"requests": self.requests, "kept_back": self.kept_back}
            self.pattern = what.get("keep_back", self.pattern)
            if not what:
                self.requests = []
            return said


def _handler(server: str, state: _State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else b""
            if self.path == CONTROL:
                self.answer(200, "OK", [], json.dumps(state.told(json.loads(body))).encode())
                return
            is_unheard = state.note(f"{self.command} {self.path}")
            connection = http.client.HTTPConnection(server, timeout=60)
            try:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                said = connection.getresponse()
                data = said.read()
            finally:
                connection.close()
            if is_unheard:
                self.close_connection = True
                return
            kept = ("transfer-encoding", "connection", "content-length")
            headers = [(k, v) for k, v in said.getheaders() if k.lower() not in kept]
            if self.command == "HEAD":
                headers.append(("Content-Length", said.getheader("Content-Length") or "0"))
            self.answer(said.status, said.reason, headers, data)

        def answer(
            self, status: int, reason: str, headers: list[tuple[str, str]], data: bytes
        ) -> None:
            self.send_response_only(status, reason)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            pass

    return Handler


def main(server: str) -> None:
    handler = _handler(urlsplit(server).netloc, _State())
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        sys.stdout.write(f"http://127.0.0.1:{listening.server_port}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            sys.stdin.read()
        listening.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
