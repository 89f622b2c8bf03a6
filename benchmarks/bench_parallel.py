"""1 GiB in 64 partitions to a local disk: one thread against two, and against the disk alone.

Every partition is 16 MiB that do not compress, so each is a file of its own, hashed on the way and
fsynced. The disk's limit is measured beside it: the same bytes to as many files, written and
fsynced by two threads, with no hash, no name to win and no manifest.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
from seamark.state import StateStore

MIB: Final = 1 << 20
PARTITION: Final = 16 * MIB
THREADS: Final = 2
NOISE: Final = os.urandom(PARTITION)


def save(folder: Path, partitions: int, threads: int) -> None:
    """One checkpoint; all partitions have the same bytes, which nothing here profits from."""
    with StateStore(folder, parallelism=threads) as store, store.begin(epoch=1) as writer:
        for partition in range(partitions):
            writer.put("join", partition, NOISE)
        writer.commit()


def write_plainly(folder: Path, partitions: int, threads: int) -> None:
    """The disk's limit: the same files without anything that Seamark adds."""
    folder.mkdir()

    def one(number: int) -> None:
        fd = os.open(folder / f"{number}.bin", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        view = memoryview(NOISE)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        os.close(fd)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(partitions)))


def measured(folder: Path, partitions: int, rounds: int) -> list[Row]:
    """All cases in turn; what one has written is removed before the next begins."""
    target = folder / "target"

    def save_with(threads: int) -> float:
        took = seconds(lambda: save(target, partitions, threads))
        shutil.rmtree(target)
        return took

    def plain_with(threads: int) -> float:
        took = seconds(lambda: write_plainly(target, partitions, threads))
        shutil.rmtree(target)
        return took

    cases = {
        "one": lambda: save_with(1),
        "two": lambda: save_with(THREADS),
        "plain, one": lambda: plain_with(1),
        "plain": lambda: plain_with(THREADS),
    }
    times = interleaved(cases, rounds)
    whole = f"{partitions * PARTITION // MIB} MiB in {partitions}"
    one, plain = in_milliseconds(times["one"]), in_milliseconds(times["plain"])
    return [
        Row(f"{whole}: 2 threads", f"1 thread ({one})", ratio(times["two"], times["one"]), 1 / 1.6),
        Row("or: 2 threads", f"write, fsync ({plain})", ratio(times["two"], times["plain"]), 1.1),
        Row("1 thread", "the same, 1 thread", ratio(times["one"], times["plain, one"])),
        Row("the disk, 2 threads", "1 thread", ratio(times["plain"], times["plain, one"])),
    ]


def memory(folder: Path, partitions: int) -> Row:
    """The peak of a process that only saves, beyond that of one that saves a single partition."""
    peaks = []
    for count in (1, partitions):
        command = [sys.executable, __file__, "--alone", str(folder / f"memory-{count}"), str(count)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
    return Row(
        "peak memory", f"{peaks[0] / MIB:.0f} MiB for 1 partition", peaks[1] / MIB, 256, "MiB"
    )


def alone(folder: Path, partitions: int) -> None:
    """Save once and print this process's peak of memory in bytes."""
    save(folder, partitions, THREADS)
    unit = 1 if sys.platform == "darwin" else 1024
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    partitions, rounds = (16, 3) if given.quick else (64, 7)
    with scratch(given.directory) as folder:
        rows = [*measured(folder, partitions, rounds), memory(folder, partitions)]
        show(
            f"partitions side by side on {file_system(folder)}, {rounds} rounds",
            rows,
            ("One of the first two limits is to be met: 0.625 × is 1.6 times as fast.",),
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
