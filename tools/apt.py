"""Install Debian packages with a progress bar, and start none of the services they bring."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tools.logged_command import run_logged
from tools.progress_bar import ProgressBar

POLICY = Path("/usr/sbin/policy-rc.d")
MARK = "# Written by Seamark's set-up of its tests"

# Where on the bar each step begins, and how much of it it takes.
_STEPS = {"update": (0.0, 0.2), "dl": (0.2, 0.3), "pm": (0.5, 0.5)}
_STATUS = re.compile(r"^(dl|pm)status:.*?:([\d.]+):(.*)$")
# Options that a machine which somebody else is installing on, or has configured, needs.
_PATIENT = ["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"]


class AptProgress:
    """How far ``apt-get update`` and then ``apt-get install`` are, from their status lines."""

    def __init__(self) -> None:
        self.updating = True
        self._started = time.monotonic()
        self._furthest = 0.0
        self._now = "reading what there is"
        self._partial = ""

    def read(self, log: TextIO) -> None:
        """Take in what was written since the last call."""
        *lines, self._partial = (self._partial + log.read()).split("\n")
        for line in lines:
            self.line(line)

    def line(self, line: str) -> None:
        """Take in one line of the output."""
        if match := _STATUS.match(line):
            begin, share = _STEPS["update" if self.updating else match[1]]
            done = begin + share * min(float(match[2]) / 100, 1.0)
            self._furthest = max(self._furthest, done)
            if not self.updating:
                self._now = match[3]

    def fraction(self) -> float:
        """Return how full the bar is, from 0 to 1; it never goes back."""
        return self._furthest

    def words(self) -> str:
        """Say what is going on, with the seconds."""
        return f"{time.monotonic() - self._started:.0f} s · {self._now}"


def install(packages: Sequence[str], log: Path) -> bool:
    """Install packages as root with a bar; say whether it worked. The log has all the output."""
    log.write_bytes(b"")
    # RUNLEVEL is for an init that has no policy-rc.d, or one that lets services start
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "LC_ALL": "C"}
    progress = AptProgress()
    with services_stay_down(), ProgressBar(sys.stdout) as bar:

        def watch(lines: TextIO) -> None:
            progress.read(lines)
            bar.show(progress.fraction(), progress.words())

        def apt_get(*arguments: str) -> int:
            command = ["apt-get", "-q", "-o", "APT::Status-Fd=1", *_PATIENT, *arguments]
            return run_logged(command, log, os.environ | quiet, watch)

        apt_get("update")  # what was read before may do when this fails
        progress.updating = False
        return apt_get("install", "-y", "--no-install-recommends", *packages) == 0


@contextmanager
def services_stay_down(policy: Path = POLICY) -> Iterator[None]:
    """Forbid packages to start services meanwhile, unless the machine has a policy of its own."""
    with suppress(FileNotFoundError):
        if MARK in policy.read_text(errors="replace"):
            policy.unlink()  # of a set-up that was killed
    script = f"#!/bin/sh\n{MARK}; forbids nothing when that has ended.\n"
    script += f"kill -0 {os.getpid()} 2>/dev/null && exit 101\nexit 0\n"
    try:
        handle = os.open(policy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    try:
        with open(handle, "w") as out:
            out.write(script)
        policy.chmod(0o755)  # whatever the umask
        yield
    finally:
        policy.unlink(missing_ok=True)


def complaints(log: Path) -> str:
    """Return what apt-get gave as the reason, in one line."""
    lines = log.read_text(errors="replace").splitlines()
    said = [line[3:] for line in lines if line.startswith("E: ")]
    return "; ".join(said) or (lines[-1] if lines else "no output")
