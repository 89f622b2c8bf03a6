"""What the page costs: a pipeline that serves it, a store with many viewers, and the first paint.

One stateful pipeline runs with and without ``ui=``, in turns: each for a block of epochs, then the
other. While the page is served, a viewer in a process of its own does what a browser does with an
open history: it listens for news and fetches page and picture after each. The figure is the median
of the ratios, block by block.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

import seamark
from bench_epochs import durations, totals, trades
from harness import Row, in_milliseconds, options, ratio, scratch, show
from seamark.sinks import FileSink
from tests.pipeline.support.driver import session
from tests.ui.support.stores import fill
from tests.ui.test_load import VIEWERS, big_store, requests_of

_VIEWER: Final = """
import sys, urllib.request
base = sys.argv[1]
def get(path):
    with urllib.request.urlopen(base + path) as answer:
        return answer.read()
with urllib.request.urlopen(base + "events?place=pipeline") as news:
    get("p/pipeline"), get("api/p/pipeline/history")
    print("listening", flush=True)
    for line in news:  # the step of a running epoch comes by itself, and is only shown
        if line == b"event: changed\\n":
            get("p/pipeline"), get("api/p/pipeline/history")
            print("seen", flush=True)
"""


class Block(NamedTuple):
    """What a block of epochs took."""

    median: float
    """Of its epochs, in milliseconds."""
    news: int = 0
    """How often a viewer has seen some."""
    share: float = 0.0
    """Processor time of the page's own threads, of the time that the block lasted."""


def page_seconds() -> float:
    """Processor time that the threads of the page have used so far."""
    names = {thread.native_id for thread in threading.enumerate() if "seamark-ui" in thread.name}
    stats = (Path(f"/proc/self/task/{number}/schedstat").read_text() for number in names)
    return sum(int(text.split()[0]) for text in stats) / 1e9


def block(spark: SparkSession, folder: Path, epochs: int, *, ui: int | None) -> Block:
    """Run a block of epochs, watched by a viewer if there is a page."""
    pipeline = seamark.Pipeline("bench", folder / "store", output_mode="update", ui=ui)
    rows = pipeline.source("trades", trades(spark))
    pipeline.sink("totals", totals(rows), FileSink(folder / "out"))
    run = pipeline.start()
    viewer: subprocess.Popen[bytes] | None = None
    if run.page_url is not None:
        command = [sys.executable, "-c", _VIEWER, run.page_url]
        viewer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert viewer.stdout is not None
        assert viewer.stdout.readline() == b"listening\n"
    used: list[float] = []
    started, before = time.perf_counter(), page_seconds()

    def stop() -> None:
        used.append((page_seconds() - before) / (time.perf_counter() - started))
        run.stop()

    took = durations(run.query, epochs, stop)
    if viewer is None:
        return Block(statistics.median(took))
    said, _ = viewer.communicate()  # the stream ends with the run
    return Block(statistics.median(took), said.count(b"seen"), used[0])


def with_and_without(spark: SparkSession, folder: Path, *, quick: bool) -> list[Row]:
    """Blocks of epochs with and without a page, in turns."""
    epochs, rounds = (12, 3) if quick else (30, 10)
    cases: dict[str, int | None] = {"without": None, "with": 0}
    took: dict[str, list[float]] = {name: [] for name in cases}
    blocks: list[Block] = []
    for turn in range(rounds):
        for name in list(cases) if turn % 2 == 0 else reversed(list(cases)):
            blocks.append(block(spark, folder / name, epochs, ui=cases[name]))
            took[name].append(blocks[-1].median)
    found = ratio(took["with"], took["without"])
    each = [a / b for a, b in zip(took["with"], took["without"], strict=True)]
    seen = sum(each.news for each in blocks)
    share = 100 * statistics.median(each.share for each in blocks if each.share)
    print(f"{rounds} rounds of {epochs} epochs; a viewer has seen news {seen} times")
    print(f"  ratios: {' '.join(f'{value:.3f}' for value in sorted(each))}")
    plain = in_milliseconds([value / 1000 for value in took["without"]])
    return [
        Row("an epoch with ui= and a viewer", f"without ({plain})", found, 1.01),
        Row("processor time of the page's threads", "one core", share, 1.0, " %"),
    ]


def first_paint(folder: Path, *, quick: bool) -> Row:
    """From the request to the last byte of the overview, of servers that have just started."""
    fill(folder / "orders", 200)
    took = []
    for _ in range(3 if quick else 7):
        command = [sys.executable, "-m", "seamark", "--json", "ui", str(folder / "orders")]
        with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            said: dict[str, Any] = json.loads(server.stdout.readline())
            started = time.perf_counter()
            with urllib.request.urlopen(said["url"]) as answer:
                answer.read()
            took.append(time.perf_counter() - started)
            server.terminate()
    print(f"first paint, ms: {' '.join(f'{1000 * value:.0f}' for value in sorted(took))}")
    return Row("the first page of a fresh server", "-", 1000 * max(took), 200.0, " ms")


def many_viewers() -> Row:
    """Requests to a store of 1 000 checkpoints, of 50 viewers against one."""
    blobs = big_store(1000)
    alone = requests_of(1, blobs)
    found = requests_of(VIEWERS, blobs) / alone
    return Row(f"requests to a store, {VIEWERS} viewers", f"one viewer ({alone})", found, 1.0)


def main() -> None:
    """Measure all three."""
    given = options(__doc__)
    with scratch(given.directory) as folder:
        rows = [first_paint(folder, quick=given.quick), many_viewers()]
        spark = session()
        spark.conf.set("spark.sql.shuffle.partitions", 4)
        rows = with_and_without(spark, folder, quick=given.quick) + rows
        show("The page", rows)
        spark.stop()


if __name__ == "__main__":
    main()
