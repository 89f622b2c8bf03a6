"""Cases: a spot in a file of a place is blown up in one way, and each command reads the place."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from seamark.errors import SeamarkError
from tests.amplifier.support.commands import OF_PLACE, typed
from tests.amplifier.support.places import fit, make_all
from tests.amplifier.support.spots import readable
from tests.amplifier.support.worker import Measured, Worker

SIZE: Final = 1_000_000
SECONDS: Final = 2.0
UNITS: Final = 20
"""How much longer a command may take: two seconds of the processor, or so many units of
:attr:`Worker.unit` where these are more, on a slow machine or one with much to do."""
MEMORY: Final = 200 << 20
_FITTED: Final = ("pipeline", "snapshots", "rocksdb-snapshots")


class Case(NamedTuple):
    """How a place is blown up."""

    place: str
    path: str
    where: str
    how: str
    apply: Callable[[Path], None]

    @property
    def name(self) -> str:
        return f"{self.place}/{self.path}{self.where}: {self.how}"


class Found(NamedTuple):
    """A command that took too much, or did not know what to say."""

    case: str
    command: str
    why: str
    said: str

    def __str__(self) -> str:
        return f"{self.command}\n    {self.case}\n    {self.why}\n    {self.said.strip()[-300:]}"


class Amplifier:
    """All places, and what each command takes for the healthy ones."""

    def __init__(self, root: Path, worker: Worker) -> None:
        self._healthy, self._work, self._out = root / "healthy", root / "work", root / "out"
        self._worker = worker
        make_all(self._healthy)
        shutil.copytree(self._healthy, self._work)
        self._usual: dict[tuple[str, str], Measured] = {}

    def usual(self, place: str, line: str) -> Measured:
        """What a command takes for the healthy example, which must be there."""
        if (place, line) not in self._usual:
            self._usual[place, line] = self._run(place, line)
        return self._usual[place, line]

    def _run(self, place: str, line: str) -> Measured:
        words = typed(line, str(self._work / place), str(self._out / "new"))
        self._out.mkdir(exist_ok=True)
        try:
            return self._worker.run(words)
        finally:
            shutil.rmtree(self._out, ignore_errors=True)

    def cases(
        self, places: Iterable[str] = tuple(OF_PLACE), only: str = "", size: int = SIZE
    ) -> Iterator[Case]:
        """Every case there is, or those of the files whose path has ``only`` in it."""
        for place in places:
            root, seen = self._healthy / place, set()
            # the newest entry of a log or store stands for all of them
            for file in sorted((path for path in root.rglob("*") if path.is_file()), reverse=True):
                path = str(file.relative_to(root))
                if only not in path:
                    continue
                for spot in readable(file.read_bytes()):
                    key = re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", path), spot.where
                    if key in seen:
                        continue  # another entry of the same log
                    seen.add(key)
                    for how, made in spot.changes(size):
                        yield Case(place, path, spot.where, how, _writing(path, made))
                for how, change in _names(path, size // 500):
                    yield Case(place, path, " name", how, change)

    def tried(self, case: Case, lines: Sequence[str] | None = None) -> Iterator[Found]:
        """Apply a case, and run the commands that read the place."""
        lines = OF_PLACE[case.place] if lines is None else lines
        usual = {line: self.usual(case.place, line) for line in lines}
        root = self._work / case.place
        try:
            try:
                case.apply(root)
            except (SeamarkError, ValueError, TypeError, OverflowError, RecursionError):
                return  # what is around it cannot hold it
            if case.place in _FITTED and not case.path.endswith("owner.json"):
                fit(root)
            for line in lines:
                took = self._run(case.place, line)
                why = _too_much(took, usual[line], self._worker.unit)
                if why:
                    yield Found(case.name, line, why, took.said)
        finally:
            shutil.rmtree(root)
            shutil.copytree(self._healthy / case.place, root)


def _too_much(took: Measured, usual: Measured, unit: float) -> str:
    if took.code < 0 or took.is_fault:
        return f"ended with {took.code}, and not as one of our errors"
    seconds, memory = took.seconds - usual.seconds, took.memory - usual.memory
    if seconds > max(SECONDS, UNITS * unit) or memory > MEMORY:
        return f"{seconds:.1f} s, {memory >> 20} MiB more than for the healthy one"
    return ""


def _writing(path: str, made: Callable[[], bytes]) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        data = made()
        file = root / path
        file.unlink()  # it may be linked
        file.write_bytes(data)

    return apply


def _names(path: str, many: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """The same file under very many names, by each number in its path."""
    parts = path.split("/")
    for at, part in enumerate(parts):
        digits = "".join(filter(str.isdigit, part))
        if not digits or digits not in part:
            continue
        for how, number in (("many names", 1_000), ("many names far away", 10**16)):

            def apply(
                root: Path,
                at: int = at,
                part: str = part,
                digits: str = digits,
                first: int = number,
            ) -> None:
                for number in range(first, first + many):
                    name = part.replace(digits, f"{number:0{len(digits)}}", 1)
                    target = root.joinpath(*parts[:at], name, *parts[at + 1 :])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with suppress(FileExistsError):
                        os.link(root / path, target)

            yield f"{how} of {part!r}", apply


def in_turn(cases: Iterable[Case], seed: int) -> Iterator[Case]:
    """All cases in rounds, each of which has one case of every spot."""
    chance = random.Random(seed)
    by_spot: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        by_spot.setdefault((case.place, case.path, case.where), []).append(case)
    spots = list(by_spot.values())
    for spot in spots:
        chance.shuffle(spot)
    while spots:
        chance.shuffle(spots)
        yield from [spot.pop() for spot in spots]
        spots = [spot for spot in spots if spot]
