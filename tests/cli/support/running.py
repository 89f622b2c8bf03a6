"""Running commands as a user does, and checkpoints whose manifests say what a pipeline's would."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seamark.cli.app import run
from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.store import CheckpointStore
from tests.support.databases import RedisServer
from tests.support.servers import ObjectServer

WIDTH = 80
NOBODY = 65534

SINKS: Mapping[str, tuple[str, str]] = {
    "sums": ("files", "/data/sums"),
    "view": ("key-value", "redis://localhost/0"),
    "alerts": ("function", "alert"),
    "shown": ("console", ""),
}


class Cli:
    """Runs commands in this process; what they print is kept, and is never too wide."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *args: object) -> int:
        code = run([str(each) for each in args])
        self.out, self.err = self._capsys.readouterr()
        if "--json" not in args and "-vv" not in args:
            paths = [str(each) for each in args if "/" in str(each)]
            for line in (self.out + self.err).splitlines():
                # a path is given as it is, so that it can be copied
                whole = any(path in line for path in paths) or len(line.split()) == 1
                too_wide = len(line) > WIDTH and not whole
                assert not too_wide, f"{len(line)} columns: {line}"
        return code

    def document(self, *args: object, code: int = 0) -> Any:
        """The JSON that a command prints."""
        found = self(*args, "--json")
        assert found == code, self.out + self.err
        return json.loads(self.out or self.err)


def options_of(server: ObjectServer, name: str = "--storage-option") -> list[str]:
    """How a server's options are given on the command line."""
    given = {**server.storage_options, "allow_http": "true"}
    given.pop("client_options")
    return [each for key, value in given.items() for each in (name, f"{key}={value}")]


def with_password(server: RedisServer, password: str) -> str:
    """The server's URL for a user who needs a password."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "operator", "on", f">{password}", "~*", "+@all")
    return server.url.replace("redis://", f"redis://operator:{password}@")


def epoch(
    store: CheckpointStore,
    checkpoint_id: int,
    number: int,
    *,
    sinks: Mapping[str, tuple[str, str]] = SINKS,
    pending: tuple[str, ...] = (),
    **fields: Any,
) -> CheckpointManifest:
    """Save a checkpoint as a pipeline does; sinks are committed unless pending."""
    extra = {
        "attempt": f"{store.owner().generation}-{checkpoint_id:032x}",
        "fingerprint": f"{number:064x}",
        "timings": {"capture": 0.009, "save": 0.003, "commit": 0.012},
        "structure": {
            "name": "orders",
            "sinks": {name: {"kind": k, "target": t} for name, (k, t) in sinks.items()},
        },
        "sink_guarantees": dict.fromkeys(sinks, "exactly once"),
        **fields.pop("extra", {}),
    }
    done, waiting = SinkCommitStatus.committed(), SinkCommitStatus.pending()
    return store.save(
        CheckpointManifest.new(
            checkpoint_id,
            epoch=number,
            sink_names=list(sinks),
            sink_commit_statuses={s: waiting if s in pending else done for s in sinks},
            sink_epochs={s: number - (s in pending) for s in sinks},
            operator_states={"agg": OperatorCheckpoint.inline(b"state of %d" % number)},
            extra=extra,
            **fields,
        )
    )


def flip(path: Path) -> None:
    """One wrong bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@contextmanager
def closed_folder() -> Iterator[Path]:
    """A folder that a user without rights may not look into."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folder = Path(above) / "store"
        folder.mkdir()
        folder.chmod(0)
        yield folder
        folder.chmod(0o755)


@contextmanager
def without_rights() -> Iterator[None]:
    """Be somebody whom the permissions of files bind, which root is not.

    What a command imports on its way must have been imported before.
    """
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
