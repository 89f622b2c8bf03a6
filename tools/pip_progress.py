"""How far pip is, from the lines it writes and the files it leaves."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TextIO

# Shares of the bar. Downloads come with the metadata or after it, as the index offers.
_COLLECT, _FETCH, _INSTALL = 0.15, 0.45, 0.40

_COLLECTING = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
_SATISFIED = re.compile(r"^Requirement already satisfied: ([A-Za-z0-9._-]+)")
_FETCHING = re.compile(r"^\s*(Downloading|Using cached) (\S+?)(?: \(([\d.]+ \w+)\))?$")
_INSTALLING = re.compile(r"^Installing collected packages: (.+)$")
_BUILDING = re.compile(r"^\s*Building (?:editable|wheel) for ([A-Za-z0-9._-]+)")


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package_of(file_name: str) -> str:
    """Return the package of a wheel's or a source archive's file name."""
    match = re.match(r"(.+?)-\d", file_name.rsplit("/", 1)[-1])
    return normal(match[1] if match else file_name)


class PipProgress:
    """Counts of one run of ``pip install``.

    ``expect`` is a guess of how many packages it will be: only pip knows, and only near the end.
    """

    def __init__(self, expect: int, site_packages: Path) -> None:
        self._expect = max(1, expect)
        self._site_packages = site_packages
        self._started = time.monotonic()
        self._present = set(self._on_disk())
        self._collected: set[str] = set()
        self._fetched: set[str] = set()
        self._to_install: list[str] = []
        self._now = ""
        self._file: tuple[str, str] | None = None
        self._partial = ""
        self._furthest = 0.0

    def read(self, log: TextIO) -> None:
        """Take in what pip has written since the last call."""
        *lines, self._partial = (self._partial + log.read()).split("\n")
        for line in lines:
            self.line(line)

    def line(self, line: str) -> None:
        """Take in one line of pip's output."""
        if match := _COLLECTING.match(line):
            self._collected.add(normal(match[1]))
        if match := _SATISFIED.match(line):
            self._fetched.add(normal(match[1]))
        elif match := _FETCHING.match(line):
            self._take_file(match[1], match[2], match[3] or "")
        elif match := _BUILDING.match(line):
            self._now, self._file = f"building {match[1]}", None
        elif match := _INSTALLING.match(line):
            self._to_install = [normal(name) for name in match[1].split(", ")]
            self._now, self._file = "installing", None

    def fraction(self) -> float:
        """Return how full the bar is, from 0 to 1; it never goes back."""
        expected = max(self._expect, len(self._collected))
        done = _COLLECT * len(self._collected) / expected + _FETCH * len(self._fetched) / expected
        if self._to_install:
            done = _COLLECT + _FETCH + _INSTALL * self._installed() / len(self._to_install)
        self._furthest = max(self._furthest, min(done, 1.0))
        return self._furthest

    def words(self, scratch: Path) -> str:
        """Say what is going on, with the counts and the seconds."""
        seconds = f"{time.monotonic() - self._started:.0f} s"
        if self._to_install:
            done, total = self._installed(), len(self._to_install)
            end = " · finishing" if done == total else ""
            return f"installed {done}/{total} · {seconds}{end}"
        now = self._now
        if self._file:
            name, size = self._file
            now = f"{package_of(name)} {_megabytes_of(scratch, name)}{size}"
        count = f"found {len(self._collected)}" if self._collected else "preparing"
        return " · ".join(filter(None, [count, seconds, now]))

    def summary(self) -> str:
        """Say what was done in the end."""
        count = len(self._to_install)
        return f"{count} package{'' if count == 1 else 's'} installed"

    def _take_file(self, verb: str, name: str, size: str) -> None:
        if name.endswith(".metadata"):
            return
        self._fetched.add(package_of(name))
        self._now = ""
        self._file = (name.rsplit("/", 1)[-1], size) if verb == "Downloading" else None

    def _installed(self) -> int:
        return len((set(self._on_disk()) - self._present) & set(self._to_install))

    def _on_disk(self) -> list[str]:
        # pip writes INSTALLER last but one, when the files of the package are in place
        return [package_of(path.parent.name) for path in self._site_packages.glob("*/INSTALLER")]


def _megabytes_of(scratch: Path, name: str) -> str:
    """Say how much of a download is there; nothing for one that is small or just began."""
    try:
        size = max(
            (path.stat().st_size for path in scratch.glob(f"pip-unpack-*/{name}")), default=0
        )
    except FileNotFoundError:
        return ""
    return f"{size / 1e6:.1f} of " if size >= 1e6 else ""
