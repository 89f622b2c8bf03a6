"""Runs commands in forks of one process that has imported what they need, and measures each.

A fork takes some milliseconds, where a new process takes half a second. Its processor time and the
most memory that it held are the kernel's own account, that of processes that it started included.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

MOST_SECONDS: Final = 20
MOST_MEMORY: Final = 3 << 30
PATIENCE: Final = 300
_FAULT: Final = 1
_LAST_WORDS: Final = 1_000


class Measured(NamedTuple):
    """What a command took."""

    code: int
    """Its exit code; negative when it was killed."""
    seconds: float
    """Processor time."""
    memory: int
    """The most bytes that it, or one process that it started, held."""
    said: str
    """The end of what it wrote to stderr."""

    @property
    def is_fault(self) -> bool:
        """Whether it ended in an error that is none of ours, or in none that says anything."""
        return "fault of Seamark" in self.said or "Traceback" in self.said


class Worker:
    """A process that waits for commands."""

    def __init__(self, scratch: Path) -> None:
        self.unit = _unit()
        """Processor time of a fixed piece of work: about a tenth of a second."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, words: Sequence[str]) -> Measured:
        """Run one command to its end."""
        question, answer = _pipes(self._process)
        question.write(json.dumps(list(words)) + "\n")
        question.flush()
        return Measured(*json.loads(answer.readline()))


def _unit() -> float:
    text = json.dumps([{"name": "a" * 20, "values": [1, 2, 3], "more": {"b": None}}] * 15_000)
    before = time.process_time()
    json.loads(text)
    sum(len(str(number)) for number in range(300_000))
    return time.process_time() - before


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


# in the process


def main(scratch: str) -> None:
    """Answer one line for each line."""
    _import_all()
    _refuse_spark()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_forked(json.loads(line), scratch)) + "\n")
        sys.stdout.flush()


def _import_all() -> None:
    from seamark.cli.app import COMMANDS
    from seamark.cli.spark import COMMANDS as SPARK

    for module, _ in [*COMMANDS.values(), *SPARK.values()]:
        import_module(module)
    for module in (
        "seamark.cli.error_report",
        "seamark.native.delta_checkpoints",
        "seamark.reports.state_rows",
        "seamark.ui.app",
        "seamark.audit.auditing",
        "seamark.progress.rocksdb.ledger",
        "seamark.sources",
        "seamark.spark.batch_log",
        "uuid",
        "rich.table",
    ):
        import_module(module)


def _refuse_spark() -> None:
    """A command that has come so far as to start Spark has read what it reads itself."""
    from seamark.errors import RefusedError
    from seamark.spark import own_session

    def refuse() -> Any:
        raise RefusedError("there is no Spark here")

    own_session._session = refuse


def _forked(words: list[str], scratch: str) -> Measured:
    err = f"{scratch}/err"
    Path(err).write_bytes(b"")
    child = os.fork()
    if child == 0:
        code = _FAULT
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(PATIENCE)
            null, told = os.open(os.devnull, os.O_RDWR), os.open(err, os.O_WRONLY)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.dup2(told, 2)
            code = _run(words)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 - it is told
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind
    said = Path(err).read_bytes()[-_LAST_WORDS:].decode(errors="replace")
    seconds = used.ru_utime + used.ru_stime
    return Measured(os.waitstatus_to_exitcode(status), seconds, used.ru_maxrss * 1024, said)


def _run(words: list[str]) -> int:
    if words[0] == "page":
        return asyncio.run(_pages(words[1]))
    from seamark.cli.app import run

    return run(words)


async def _pages(url: str) -> int:
    """Ask for the pages of a place, as a browser would."""
    from seamark.ui.app import Page
    from seamark.ui.guard import Access
    from seamark.ui.places import places_at

    (place,) = places_at([url], {})
    page = Page([place], Access(), redact=str)
    page.live.start()
    await page.live.want_all(PATIENCE)
    at = f"/p/{place.slug}"
    newest = max(getattr(getattr(place.watch, "state", None), "ids", None) or [1])
    statuses = [
        await _asked(page.app, path, query)
        for path, query in (
            ("/", ""),
            (at, ""),
            (f"{at}/checkpoint/{newest}", ""),
            (f"{at}/diff", f"a={max(newest - 1, 1)}&b={newest}"),
            (f"{at}/restart", ""),
            (f"/api{at}/list", ""),
            (f"/api{at}/history", ""),
            (f"/api{at}/inspect", ""),
        )
    ]
    return 0 if max(statuses) < HTTPStatus.INTERNAL_SERVER_ERROR else 1


async def _asked(app: Any, path: str, query: str) -> int:
    status = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return status


if __name__ == "__main__":
    main(sys.argv[1])
