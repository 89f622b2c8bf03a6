"""Real databases on loopback, for tests: plain context managers.

``redis_server()`` runs Redis, ``postgres_server()`` runs PostgreSQL, each over a temporary folder
and with nothing of the system's own: no configuration, no data, no service.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from tests.support.processes import Server, ServerUnavailable, running
from tools.servers import POSTGRES, REDIS, Program

INITDB_SECONDS = 60.0
SETTINGS = ("listen_addresses=127.0.0.1", "max_prepared_transactions=8")
# Nobody reads these tables after a power cut.
QUICK = ("fsync=off", "full_page_writes=off")


class RedisServer(Server):
    """A running Redis: ``restart()``, ``kill()`` and ``start()``, ``pause()`` and ``resume()``."""

    @property
    def url(self) -> str:
        """Where clients find it, the same after each start."""
        return f"redis://127.0.0.1:{self.port}/0"


@contextlib.contextmanager
def redis_server(
    folder: Path | None = None,
    *,
    appendonly: bool = True,
    fsync: Literal["always", "everysec", "no"] = "always",
    extra: Sequence[str] = (),
) -> Iterator[RedisServer]:
    """Run Redis over a folder, a temporary one unless given.

    As it is, it loses nothing when it is killed; with ``appendonly=False`` it keeps nothing.
    Raises ServerUnavailable where Redis is not installed.
    """
    program = _program(REDIS, "redis-server")
    with contextlib.ExitStack() as stack:
        data = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redis-")))
        append = ["--appendonly", "yes" if appendonly else "no", "--appendfsync", fsync]
        place = ["--bind", "127.0.0.1", "--dir", str(data), "--save", ""]

        def on_port(port: int) -> RedisServer:
            command = [program, "--port", str(port), *place, *append, *extra]
            return RedisServer("redis", port, command, lambda pid: _redis_answers(port, pid))

        yield stack.enter_context(running(on_port))


def _redis_answers(port: int, pid: int) -> bool:
    """Say whether this very process serves the port, and has read its data in."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"INFO server\r\nPING\r\nQUIT\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return f"\r\nprocess_id:{pid}\r\n".encode() in answer and b"+PONG\r\n" in answer


@dataclass(frozen=True)
class PostgresServer:
    """A running PostgreSQL: where it is, as a URL for libpq, and its process."""

    dsn: str
    process: Server
    """A test that restarts, kills or pauses it starts a server of its own."""

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}"))


@contextlib.contextmanager
def postgres_server(
    within: Path | None = None, *, durable: bool = False
) -> Iterator[PostgresServer]:
    """Run PostgreSQL, which lets everybody on loopback in, as the user ``postgres``.

    Its files are in a temporary folder, which can be ``within`` another one. With ``durable`` it
    waits for the disk. Raises ServerUnavailable where PostgreSQL is not installed or cannot make
    its files.
    """
    initdb, postgres = _program(POSTGRES, "initdb"), _program(POSTGRES, "postgres")
    identity = _postgres_identity()
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=within) as folder:
        if identity:
            os.chown(folder, identity["user"], identity["group"])
        data = Path(folder, "data")
        _make_cluster(initdb, data, identity)

        def on_port(port: int) -> Server:
            settings = [*SETTINGS, f"port={port}", f"unix_socket_directories={folder}"]
            settings += [] if durable else QUICK
            flags = [part for setting in settings for part in ("-c", setting)]
            return Server(
                "postgres",
                port,
                [postgres, "-D", str(data), *flags],
                lambda pid: _postgres_is_ready(data, pid),
                ending=signal.SIGINT,  # SIGTERM would wait until the last client has left
                identity=identity,
            )

        with running(on_port) as server:
            url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
            yield PostgresServer(url, server)


def _postgres_identity() -> dict[str, Any]:
    """Return what makes a process run as another user when we are root, which PostgreSQL refuses.

    Debian's package brings the user ``postgres``; ``nobody`` is everywhere.
    """
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServerUnavailable("PostgreSQL refuses to run as root, and there is no user to run it as")


def _make_cluster(initdb: str, data: Path, identity: Mapping[str, Any]) -> None:
    flags = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(
        [initdb, "-D", str(data), *flags],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=INITDB_SECONDS,
        check=False,
        cwd=data.parent,  # that other user may not enter ours
        **identity,
    )
    if done.returncode != 0:
        raise ServerUnavailable(f"initdb failed: {done.stderr.strip()[-800:]}")


def _postgres_is_ready(data: Path, pid: int) -> bool:
    """Say whether this very process says in its lock file that it lets clients in."""
    lines = (data / "postmaster.pid").read_text().splitlines()
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _program(wanted: Program, name: str) -> str:
    found = wanted.find()
    if found is None:
        raise ServerUnavailable(f"{wanted.name} is not installed (Debian: {wanted.package})")
    return str(found / name)
