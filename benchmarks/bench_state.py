"""Large state: saved, loaded and verified, against scripts that do no more than they must.

Both sides write the same incompressible bytes, hash them with SHA-256 in a second thread, and end
with one fsync of the file; memory is the peak of a process that does nothing else.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from harness import (
    Row,
    file_system,
    in_milliseconds,
    interleaved,
    options,
    ratio,
    scratch,
    seconds,
    show,
)
from seamark import CheckpointManifest, OperatorCheckpoint, open_store

CHUNK: Final = 4 << 20
MIB: Final = 1 << 20
NOISE: Final = os.urandom(8 * CHUNK)


def chunks(size: int) -> Iterator[memoryview]:
    """``size`` bytes that do not compress, made at no cost to either side."""
    noise = memoryview(NOISE)
    for start in range(0, size, CHUNK):
        at = start % len(NOISE)
        yield noise[at : at + CHUNK]


def save(store: Path, checkpoint_id: int, size: int) -> None:
    """Save one checkpoint whose operator has ``size`` bytes of state."""
    state = {"join": OperatorCheckpoint.in_sidecar(0, size)}
    manifest = CheckpointManifest.new(checkpoint_id, epoch=1, operator_states=state)
    with open_store(store) as handle:
        handle.save_with_state(manifest, chunks(size))


def load(store: Path, checkpoint_id: int) -> None:
    """Take every piece, as a program that restores its state does; verified at the end."""
    with open_store(store) as handle:
        for _ in handle.stream_state_data(checkpoint_id):
            pass


def validate(store: Path, checkpoint_id: int) -> None:
    """Verify a checkpoint with a handle that knows nothing of it."""
    with open_store(store) as handle:
        assert handle.validate_checkpoint(checkpoint_id).valid


def write_and_hash(path: Path, size: int) -> None:
    """The least that a durable, hashed file needs: each chunk is written while it is hashed."""
    hasher = hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with ThreadPoolExecutor(1) as pool:
        for chunk in chunks(size):
            hashed = pool.submit(hasher.update, chunk)
            os.write(fd, chunk)
            hashed.result()
    os.fsync(fd)
    os.close(fd)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    hasher.hexdigest()


def read_and_hash(path: Path) -> None:
    """The least that a verified read needs: each chunk is hashed while the next one is read."""
    hasher = hashlib.sha256()
    buffers = [memoryview(bytearray(CHUNK)) for _ in range(2)]
    running: Future[None] | None = None
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(1) as pool:
        turn = 0
        while count := file.readinto(buffers[turn]):
            if running is not None:
                running.result()
            running = pool.submit(hasher.update, buffers[turn][:count])
            turn = 1 - turn
    hasher.hexdigest()


def forget(path: Path) -> None:
    """Drop a file that was fsynced from the page cache; needs no privilege."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def saving(folder: Path, size: int, rounds: int) -> list[Row]:
    """Save anew each time; what the round before has left is removed before the clock starts."""
    number = 0
    store, plain = folder / "saved", folder / "plain.bin"

    def state(checkpoint_id: int) -> Path:
        return store / f"checkpoints/checkpoint_{checkpoint_id:06}/state.bin"

    def ours() -> float:
        nonlocal number
        number += 1
        took = seconds(lambda: save(store, number, size))
        state(number).unlink()
        return took

    def baseline() -> float:
        took = seconds(lambda: write_and_hash(plain, size))
        plain.unlink()
        return took

    times = interleaved({"ours": ours, "baseline": baseline}, rounds)
    what = f"save {size // MIB} MiB"
    said = f"write and hash at once, fsync ({in_milliseconds(times['baseline'])})"
    return [Row(what, said, ratio(times["ours"], times["baseline"]), 1.15)]


def loading(folder: Path, size: int, rounds: int, *, cached: bool) -> list[Row]:
    """Load and validate one checkpoint, with its bytes in the page cache or dropped from it."""
    store, plain = folder / "loaded", folder / "same.bin"
    state = store / "checkpoints/checkpoint_000001/state.bin"
    if not plain.exists():
        save(store, 1, size)
        write_and_hash(plain, size)

    def run(path: Path, work: Callable[[], None]) -> float:
        if not cached:
            forget(path)
        return seconds(work)

    cases = {
        "baseline": lambda: run(plain, lambda: read_and_hash(plain)),
        "load": lambda: run(state, lambda: load(store, 1)),
        "validate": lambda: run(state, lambda: validate(store, 1)),
    }
    times = interleaved(cases, rounds)
    said = f"hash one piece, read the next ({in_milliseconds(times['baseline'])})"
    cache = "cached" if cached else "cache dropped"
    return [
        Row(f"{what} {size // MIB} MiB, {cache}", said, ratio(times[name], times["baseline"]), 1.15)
        for name, what in (("load", "load"), ("validate", "validate"))
    ]


def memory(folder: Path, size: int) -> list[Row]:
    """Peaks of processes that only save, and only load."""
    rows = []
    for what in ("save", "load"):
        command = [sys.executable, __file__, "--alone", what, str(folder / "memory"), str(size)]
        peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(Row(f"peak memory, {what}", "-", peak / MIB, 256, "MiB", strict=True))
    return rows


def alone(what: str, store: Path, size: int) -> None:
    """Do one thing and print this process's peak of memory in bytes."""
    if what == "save":
        save(store, 1, size)
    else:
        load(store, 1)
    unit = 1 if sys.platform == "darwin" else 1024
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    size, rounds = (64 * MIB, 3) if given.quick else (1024 * MIB, 7)
    with scratch(given.directory) as folder:
        rows = [
            *saving(folder, size, rounds),
            *loading(folder, size, rounds, cached=True),
            *loading(folder, size, rounds, cached=False),
            *memory(folder, size),
        ]
        show(f"large state on {file_system(folder)}, {rounds} rounds", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
