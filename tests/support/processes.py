"""Servers as processes on loopback, for tests: started, stopped, killed, paused, never left behind.

Each server runs under a small keeper process, which stops it when the test run ends in whatever
way, a ``kill -9`` of it included.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

START_SECONDS = 60.0
STOP_SECONDS = 15.0
# Below what systems give to outgoing connections: one of those cannot take the port of a server
# that is down for a moment, nor can a client that calls it meanwhile end up talking to itself.
PORTS = range(20_000, 30_000)

# Runs a command until our end of its stdin closes, which the system does for a dead process too.
KEEPER = """
import json, os, signal, subprocess, sys, threading
told = json.loads(sys.argv[1])
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=2, **told["identity"])
print(server.pid, flush=True)
def stop(*_):
    server.send_signal(told["ending"])
    server.send_signal(signal.SIGCONT)  # a paused one hears nothing else
    threading.Timer(5, server.kill).start()
def stop_with_parent():
    os.read(0, 1)
    stop()
signal.signal(signal.SIGTERM, stop)
threading.Thread(target=stop_with_parent, daemon=True).start()
status = server.wait()
os._exit(status & 255)
"""


class ServerUnavailable(RuntimeError):
    """A server cannot be had on this machine; the message says why. Tests skip with it."""


class Server:
    """A server on a port of loopback, which can go down and come up again on the same port.

    ``answers`` gets the process id and says whether the server is ready; an OSError is a no.
    ``ending`` is the signal that it ends by in good order. ``identity`` holds the arguments of
    ``subprocess.Popen`` that make it run as another user.
    """

    def __init__(
        self,
        name: str,
        port: int,
        command: Sequence[str],
        answers: Callable[[int], bool],
        *,
        ending: signal.Signals = signal.SIGTERM,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self._answers = answers
        told = json.dumps({"ending": ending, "identity": dict(identity or {})})
        self._command = [sys.executable, "-c", KEEPER, told, *command]
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        """The process id of the running server. Raises RuntimeError when it is down."""
        if self._keeper is None:
            raise RuntimeError(f"{self.name} is not running: start() it first")
        return self._pid

    def start(self) -> None:
        """Start it and wait until it answers. Raises ServerUnavailable with what it said."""
        if self._keeper is not None:
            raise RuntimeError(f"{self.name} is running already")
        with tempfile.TemporaryFile() as log:
            self._keeper = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )
            ready = False
            try:
                assert self._keeper.stdout is not None
                with self._keeper.stdout as said:
                    self._pid = int(said.readline() or 0)
                ready = self._becomes_ready(self._keeper)
            finally:
                if not ready:
                    self.stop()
            if not ready:
                log.seek(0)
                end = log.read().decode(errors="replace").strip()[-800:]
                raise ServerUnavailable(f"{self.name} did not start: {end}")

    def stop(self) -> None:
        """End it in good order; nothing happens when it is down."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.terminate()  # a forked worker may still hold the other end of that pipe
        try:
            keeper.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()

    def restart(self) -> None:
        """End it in good order and start it again over the same data; wait until it answers."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill it (SIGKILL), as a crash of it would; ``start()`` brings it up again."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._keeper is not None
        self._keeper.wait(STOP_SECONDS)  # it ends with its server
        self.stop()

    def pause(self) -> None:
        """Stop it in the middle of things (SIGSTOP): connections stay open and get no answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _becomes_ready(self, keeper: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while keeper.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self._answers(self._pid):
                    return True
            time.sleep(0.05)
        return False


AnyServer = TypeVar("AnyServer", bound=Server)


@contextlib.contextmanager
def running(on_port: Callable[[int], AnyServer]) -> Iterator[AnyServer]:
    """Run a server on a free port, yield it once it answers, and stop it in all cases."""
    for is_last in (False, False, True):
        server = on_port(free_port())
        try:
            server.start()
        except ServerUnavailable:
            if is_last:
                raise
            continue  # somebody else may have taken the port in between: try another one
        try:
            yield server
        finally:
            server.stop()
        return


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    chance = random.SystemRandom()  # the tests' own seed would give the same ports to all workers
    for port in chance.sample(PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise ServerUnavailable(f"no free port between {PORTS.start} and {PORTS.stop}")
