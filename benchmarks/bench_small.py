"""Small checkpoints on a local disk, where the time is that of a few fsyncs.

Beside a script that makes the same four, and beside LaminarDB, which makes four of its own.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import laminardb
import msgspec

from harness import Row, file_system, in_milliseconds, interleaved, options, ratio, scratch, show
from plain_manifest import PlainManifest, plain_copy
from seamark import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint, open_store

PARTS: Final = 10
STATE: Final = os.urandom(4096)
PER_ROUND: Final = 20
NEVER_MS: Final = 3_600_000


def full() -> CheckpointManifest:
    """Ten sources and ten operators with 4 KiB of inline state each."""
    position = ConnectorCheckpoint({"partition-0": "123456789", "partition-1": "987654321"}, 7)
    return CheckpointManifest.new(
        1,
        epoch=1,
        source_names=[f"source-{n}" for n in range(PARTS)],
        source_offsets={f"source-{n}": position for n in range(PARTS)},
        operator_states={f"operator-{n}": OperatorCheckpoint.inline(STATE) for n in range(PARTS)},
    )


def write_plainly(root: Path, manifest: PlainManifest) -> None:
    """The least that makes a checkpoint durable: a file in a folder of its own, and a pointer."""
    checkpoints = f"{root}/checkpoints"
    folder = f"{checkpoints}/checkpoint_{manifest.checkpoint_id:06}"
    os.mkdir(folder)
    _sync(checkpoints)
    _write(f"{folder}/manifest.json", msgspec.json.encode(manifest))
    _sync(folder)
    _write(f"{checkpoints}/latest.tmp", b"checkpoint_%06d" % manifest.checkpoint_id)
    os.replace(f"{checkpoints}/latest.tmp", f"{checkpoints}/latest.txt")


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


@contextmanager
def seamark_saves(
    root: Path, manifest: CheckpointManifest, *, claimed: bool = True
) -> Iterator[Callable[[], None]]:
    """One save per call, by one open handle."""
    with open_store(root) as store:
        ids = itertools.count(store.claim().tombstone_id if claimed else 1)

        def save() -> None:
            number = next(ids)
            store.save(manifest.replace(checkpoint_id=number, epoch=number))

        yield save


@contextmanager
def plain_saves(root: Path, manifest: PlainManifest) -> Iterator[Callable[[], None]]:
    """One save per call, by the minimal script."""
    (root / "checkpoints").mkdir(parents=True)
    ids = itertools.count(1)

    def save() -> None:
        number = next(ids)
        write_plainly(root, msgspec.structs.replace(manifest, checkpoint_id=number, epoch=number))

    yield save


@contextmanager
def laminardb_saves(root: Path) -> Iterator[Callable[[], None]]:
    """One manual checkpoint per call, which is empty; those by the timer are far away."""
    config = laminardb.LaminarConfig(storage_dir=str(root), checkpoint_interval_ms=NEVER_MS)
    engine = laminardb.open("bench", config=config)
    engine.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    engine.start()
    try:

        def save() -> None:
            engine.checkpoint()

        yield save
    finally:
        engine.shutdown()


def timed(
    folder: Path, writer: Callable[[Path], AbstractContextManager[Callable[[], None]]]
) -> Callable[[], float]:
    """Time some saves into a new folder, after one of warm-up; seconds per save.

    What a create costs depends on where the file system puts a folder. New ones in each round, made
    one right after the other, share that fate.
    """
    numbers = itertools.count()

    def run() -> float:
        with writer(folder / f"{next(numbers)}") as save:
            save()
            started = time.perf_counter()
            for _ in range(PER_ROUND):
                save()
            return (time.perf_counter() - started) / PER_ROUND

    return run


def timing(folder: Path, rounds: int) -> list[Row]:
    """All writers in the same rounds on the same disk."""
    for name in WRITERS:
        (folder / name).mkdir()
    cases = {name: timed(folder / name, writer) for name, writer in WRITERS.items()}
    times = interleaved(cases, rounds)
    script = f"the same fsyncs and JSON ({in_milliseconds(times['script'])})"
    other = f"laminardb's checkpoint() ({in_milliseconds(times['laminardb'])})"
    return [
        Row("10 sources, 10 operators", script, ratio(times["seamark"], times["script"]), 1.6),
        Row("the same, unclaimed", script, ratio(times["unclaimed"], times["script"]), 1.6),
        Row("an empty manifest", other, ratio(times["empty"], times["laminardb"]), 1.0),
    ]


FULL: Final = full()
PLAIN: Final = plain_copy(FULL)
EMPTY: Final = CheckpointManifest.new(1, epoch=1)

WRITERS: Final = {
    "seamark": lambda root: seamark_saves(root, FULL),
    "script": lambda root: plain_saves(root, PLAIN),
    "unclaimed": lambda root: seamark_saves(root, FULL, claimed=False),
    "empty": lambda root: seamark_saves(root, EMPTY),
    "laminardb": laminardb_saves,
}


def fsyncs_per_save(writer: str, folder: Path) -> float | None:
    """Real calls by strace: those of thirty saves less those of ten; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    counts = []
    for number in (10, 30):
        log = folder / f"{writer}-{number}.strace"
        command = [strace, "-f", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        child = [sys.executable, __file__, "--saves", writer, str(folder / log.stem), str(number)]
        done = subprocess.run([*command, *child], check=False, capture_output=True)
        if done.returncode != 0:
            return None  # no permission to trace
        counts.append(len(re.findall(r"\bf(?:data)?sync\(", log.read_text())))
    return (counts[1] - counts[0]) / 20


def fsync_note(folder: Path) -> str:
    """How many fsyncs each writer really makes."""
    counts = {name: fsyncs_per_save(name, folder) for name in ("seamark", "script", "laminardb")}
    said = ", ".join(f"{name} {count:g}" for name, count in counts.items() if count is not None)
    return f"fsyncs per save: {said}" if said else "fsyncs were not counted: strace is missing"


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    rounds = 5 if given.quick else 21
    with scratch(given.directory) as folder:
        rows = timing(folder, rounds)
        notes = (fsync_note(folder),)
        title = f"small checkpoints on {file_system(folder)}, {rounds} rounds of {PER_ROUND}"
        show(title, rows, notes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--saves"]:
        with WRITERS[sys.argv[2]](Path(sys.argv[3])) as save_once:
            for _ in range(int(sys.argv[4])):
                save_once()
    else:
        main()
