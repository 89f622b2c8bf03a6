"""A process that dies before any line of the sink: the next one finishes or undoes its work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from seamark.sinks import Committable
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, SINK, epoch, through_json
from seamark.testing.crashes import SimulatedCrash
from tests.sinks.support.deltas import (
    HandWrittenDelta,
    data_files,
    files_in_log,
    numbers,
    numbers_in,
)

EPOCHS = 3
MODES: list[dict[str, Any]] = [
    {},
    {"partition_by": "word"},
    {"mode": "upsert", "keys": "n"},
    {"mode": "overwrite"},
]
ROOT = Path(__file__).parents[2]


@contextmanager
def dying_before_line(number: int) -> Iterator[list[int]]:
    """Raise before the n-th line that runs in the modules of this sink; how many have run."""
    ran = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if "/seamark/sinks/delta/" not in name and "/seamark/sinks/tables/" not in name:
            return None
        if event == "line":
            ran[0] += 1
            if ran[0] == number:
                raise SimulatedCrash(f"before line {frame.f_lineno} of {name}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield ran
    finally:
        sys.settrace(before)


class Process:
    """What a pipeline does with a sink, and what outlives it."""

    def __init__(self, table: Path, options: dict[str, Any]) -> None:
        self._table = table
        self._options = options
        self._decided: Committable | None = None
        self._starts = 0

    def start(self) -> HandWrittenDelta:
        self._starts += 1
        sink = HandWrittenDelta(self._table, **self._options)
        sink.open(PIPELINE, SINK, numbers([]).schema)
        if self._decided is not None:
            sink.committed(OLD, self._decided["epoch"])
            sink.commit(self._decided)
        for attempt in sink.leftovers():
            if self._decided is None or attempt != self._decided["attempt"]:
                sink.abort(attempt)
        return sink

    def run(self, last: int = EPOCHS) -> HandWrittenDelta:
        sink = self.start()
        newest = sink.newest()
        done = self._decided["epoch"] if self._decided is not None else 0
        assert (newest.epoch if newest is not None else 0) == done
        for number in range(done + 1, last + 1):
            sink.stage(numbers([number, 10 + number]), epoch(number), f"a{self._starts}-{number}")
            self._decided = through_json(sink.prepare())
            sink.commit(self._decided)
        return sink


def expected(options: dict[str, Any], last: int = EPOCHS) -> list[int]:
    first = last if options.get("mode") == "overwrite" else 1
    return sorted(n for number in range(first, last + 1) for n in (number, 10 + number))


def lines_of_a_run(tmp_path: Path, options: dict[str, Any]) -> int:
    with dying_before_line(0) as ran:
        Process(tmp_path / "calm", options).run()
    return ran[0]


def check_death_before(table: Path, number: int, options: dict[str, Any]) -> None:
    process = Process(table, options)
    with pytest.raises(SimulatedCrash), dying_before_line(number):
        process.run()
    sink = process.run()
    assert numbers_in(table) == expected(options), number
    assert sink.leftovers() == [], number
    if options.get("mode") is None:
        assert data_files(table) == files_in_log(table), f"litter after line {number}"


@pytest.mark.slow
@pytest.mark.parametrize("options", MODES, ids=str)
def test_a_death_at_some_lines_costs_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    lines = lines_of_a_run(tmp_path, options)
    dice = random.Random(14)
    for number in dice.sample(range(1, lines + 1), 12):
        check_death_before(tmp_path / str(number), number, options)


@pytest.mark.chaos
@pytest.mark.parametrize("options", MODES, ids=str)
def test_a_death_at_every_fifth_line_costs_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    first = random.SystemRandom().randrange(1, 6)
    for number in range(first, lines_of_a_run(tmp_path, options) + 1, 5):
        check_death_before(tmp_path / str(number), number, options)


# real kills

CHILD = """
import os, signal, sys
from pathlib import Path
from tests.sinks.support.view_children import die_before_line
from tests.sinks.test_delta_crashes import KilledProcess
die_before_line(int(sys.argv[2]))
KilledProcess(Path(sys.argv[1])).run(int(sys.argv[3]))
"""


class KilledProcess(Process):
    """Keeps what it has decided in a file, as a checkpoint would."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "rows", {})
        self._manifest = root / "decided.json"
        self._starts = int.from_bytes(os.urandom(6))

    @property
    def _decided(self) -> Committable | None:
        import json

        if not self._manifest.exists():
            return None
        decided: Committable = json.loads(self._manifest.read_text())
        return decided

    @_decided.setter
    def _decided(self, committable: Committable | None) -> None:
        import json

        if committable is not None and hasattr(self, "_manifest"):
            whole = self._manifest.with_suffix(".new")
            whole.write_text(json.dumps(committable))
            whole.replace(self._manifest)


@pytest.mark.chaos
def test_real_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    dice = random.SystemRandom()
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    killed = 0
    for _ in range(6):
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(dice.randrange(300, 2500)), "9"]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
        )
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL)
    assert killed
    KilledProcess(tmp_path).run(9)
    assert numbers_in(tmp_path / "rows") == expected({}, 9)
    assert data_files(tmp_path / "rows") == files_in_log(tmp_path / "rows")
