"""Look for Redis and PostgreSQL, which some tests need; install them only when that is wanted.

    SERVERS=install python -m tools.servers --stamp .venv/servers.stamp

They are installed as root on Debian, and only with ``SERVERS=install`` or in CI (``CI=true``).
Otherwise a line says what to run. A server that is missing is no error: the tests that need it are
skipped. The stamp names the programs, and is written only when all of them are there.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import apt
from tools.environment import ROOT
from tools.locks import only_one

# One for the whole machine, whatever folder make runs in; apt-get's own are no help to 'update'.
PACKAGES_LOCK = Path("/var/lib/dpkg")


@dataclass(frozen=True)
class Program:
    """A server that the tests run: its programs, and where they may be besides the PATH."""

    name: str
    package: str
    files: tuple[str, ...]
    beside: str = ""

    def find(self) -> Path | None:
        """Return the folder that has all its programs, or None; of several versions the newest."""
        if (first := shutil.which(self.files[0])) is not None:
            folder = Path(first).absolute().parent
            if self._is_in(folder):
                return folder
        folders = Path("/").glob(self.beside.lstrip("/")) if self.beside else ()
        return max(filter(self._is_in, folders), key=_version, default=None)

    def paths(self) -> list[Path]:
        """Return where its programs are; nothing where it is missing."""
        folder = self.find()
        return [folder / file for file in self.files] if folder else []

    def _is_in(self, folder: Path) -> bool:
        return all(os.access(folder / file, os.X_OK) for file in self.files)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdecimal())


REDIS = Program("Redis", "redis-server", ("redis-server",))
# Debian keeps them off the PATH, so that several versions can be there.
POSTGRES = Program("PostgreSQL", "postgresql", ("postgres", "initdb"), "/usr/lib/postgresql/*/bin")
ALL = (REDIS, POSTGRES)


@dataclass(frozen=True)
class Plan:
    """What to do about programs that are missing: install packages, or tell the user a line."""

    install: tuple[str, ...] = ()
    tell: str = ""


def decide(missing: Sequence[Program], *, is_root: bool, has_apt: bool, may_install: bool) -> Plan:
    """Choose between installing what is missing, where we can and may, and telling about it."""
    if not missing:
        return Plan()
    packages = tuple(program.package for program in missing)
    if is_root and has_apt and may_install:
        return Plan(install=packages)
    if not has_apt:
        how = "install them with the system's package manager"
    elif is_root:
        how = f"make test SERVERS=install (it runs apt-get install {' '.join(packages)})"
    else:
        how = f"'apt-get install {' '.join(packages)}' as root"
    return Plan(tell=skipped(missing, "not installed", how))


def may_install(environment: Mapping[str, str]) -> bool:
    """Say whether somebody has asked for packages of the system to be installed."""
    return environment.get("CI") == "true" or environment.get("SERVERS") == "install"


def skipped(missing: Sequence[Program], why: str, how: str) -> str:
    """Say in one line which tests will not run, why, and how to get them."""
    names = " and ".join(program.name for program in missing)
    return f"Note: the tests that need {names} are skipped: {why}. To run them: {how}"


def missing_programs() -> list[Program]:
    """Return which servers are not on this machine."""
    return [program for program in ALL if program.find() is None]


def set_up(stamp: Path) -> None:
    """Install what is missing or tell about it; write the stamp if all is there in the end."""
    plan = _plan()
    if plan.install:
        with only_one(PACKAGES_LOCK):
            plan = _plan()  # the one that was waited for may have done it
            if plan.install:
                plan = _installed(plan, stamp.with_suffix(".log"))
    if plan.tell:
        print(plan.tell, file=sys.stderr, flush=True)
    else:
        stamp.write_text("".join(f"{path}\n" for program in ALL for path in program.paths()))


def _plan() -> Plan:
    has_apt = shutil.which("apt-get") is not None
    return decide(
        missing_programs(),
        is_root=os.geteuid() == 0,
        has_apt=has_apt,
        may_install=may_install(os.environ),
    )


def _installed(plan: Plan, log: Path) -> Plan:
    """Carry a plan out; return what is left to tell."""
    started = time.monotonic()
    packages = " and ".join(plan.install)
    print(
        f"Installing {packages} for the tests (once; apt-get, no service is left running)",
        flush=True,
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    worked = apt.install(plan.install, log)
    missing = missing_programs()
    if missing:
        said = "they are nowhere to be found" if worked else apt.complaints(log)
        how = f"see {log}, then make again"
        return Plan(tell=skipped(missing, f"apt-get failed ({said})", how))
    print(f"Ready: {packages} in {time.monotonic() - started:.0f} s", flush=True)
    return Plan()


def main() -> int:
    """Run the set-up and return its exit code."""
    parser = argparse.ArgumentParser(description="Have Redis and PostgreSQL for the tests.")
    parser.add_argument("--stamp", type=Path, required=True, help="file to write at the end")
    given = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 gets '?', not a crash
    try:
        set_up(ROOT / given.stamp)
    except KeyboardInterrupt:
        print("\nInterrupted; run it again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
