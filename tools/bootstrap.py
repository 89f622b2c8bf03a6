"""Set up ``.venv``, or another environment, for a make target, with a progress bar.

    python -m tools.bootstrap --for "the tests" --extras cli,java --group dev --stamp .venv/x.stamp

Needs nothing but Python's own library. The whole output of pip goes to a log; its last lines are
shown when it fails. The stamp is written only after everything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tools.logged_command import run_logged, tail
from tools.pip_progress import PipProgress
from tools.progress_bar import ProgressBar

ROOT = Path(__file__).resolve().parent.parent


class SetUpError(Exception):
    """The environment cannot be set up; the text says why and what to do."""


def group_requirements(pyproject: Path, group: str) -> list[str]:
    """Return the requirements of a dependency group (PEP 735), which older pips cannot install."""
    groups = tomllib.loads(pyproject.read_text())["dependency-groups"]

    def expand(name: str) -> Iterator[str]:
        for item in groups[name]:
            if isinstance(item, str):
                yield item
            else:
                yield from expand(item["include-group"])

    return list(dict.fromkeys(expand(group)))


def venv_python(venv: Path) -> Path:
    """Return the interpreter of an environment, which is made anew unless it is good.

    One that was copied along with its folder is not: its scripts run the code it was copied from.
    """
    python, root = venv / "bin" / "python", venv / "root"
    if root.exists() and root.read_text().strip() == str(venv.parent) and _has_pip(python):
        return python
    try:
        import ensurepip  # noqa: F401
        import venv as _  # noqa: F401
    except ModuleNotFoundError as missing:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetUpError(
            f"{sys.executable} lacks the module {missing.name}.\n"
            f"On Debian and Ubuntu: apt install python{version}-venv"
        ) from missing
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", venv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if made.returncode != 0:
        shutil.rmtree(venv, ignore_errors=True)
        raise SetUpError(f"{sys.executable} -m venv {venv} failed:\n{made.stdout.strip()}")
    root.write_text(f"{venv.parent}\n")
    return python


def _has_pip(python: Path) -> bool:
    try:
        done = subprocess.run([python, "-I", "-c", "import pip"], check=False, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Let one set-up at a time past a lock, which is a file or a folder; the others wait."""
    handle = os.open(lock, os.O_RDONLY if lock.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another set-up of {lock.stem} …", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def install(python: Path, requirements: list[str], log: Path, progress: PipProgress) -> None:
    """Run pip with a bar. Raises ``SetUpError`` with the tail of the log."""
    # what is imported gets compiled then; compiling all of it takes as long as installing it
    quick = ["--disable-pip-version-check", "--no-input", "--no-compile"]
    arguments = [*quick, "--progress-bar", "off"]
    log.write_bytes(b"")
    with (
        tempfile.TemporaryDirectory(prefix="pip-", dir=log.parent) as scratch,
        ProgressBar(sys.stdout) as bar,
    ):
        # a folder of its own lets the bar see the bytes of the download that is under way
        environment = os.environ | {"TMPDIR": scratch, "PIP_USER": "0", "PYTHONUNBUFFERED": "1"}

        def watch(lines: TextIO) -> None:
            progress.read(lines)
            bar.show(progress.fraction(), progress.words(Path(scratch)))

        command = [str(python), "-I", "-m", "pip", "install", *arguments, *requirements]
        code = run_logged(command, log, environment, watch, ROOT)
    if code != 0:
        raise SetUpError(
            f"pip failed (exit code {code}). It said:\n\n{tail(log)}\n\nAll of it: {log}"
        )


def set_up(
    purpose: str, extras: str, group: str, stamp: Path, expect: int, also: list[str]
) -> None:
    """Make the environment that a stamp lies in fit for a purpose, and write the stamp."""
    venv = stamp.parent
    with only_one(ROOT / f"{venv.name}.lock"):
        started = time.monotonic()
        version = sys.version.split()[0]
        print(f"Setting up {venv.name} for {purpose} (once; Python {version})", flush=True)
        python = venv_python(venv)
        requirements = ["-e", f".[{extras}]" if extras else ".", *also]
        requirements += group_requirements(ROOT / "pyproject.toml", group) if group else []
        (site_packages,) = (venv / "lib").glob("python3*/site-packages")
        log = venv / f"{stamp.stem}.log"
        progress = PipProgress(expect, site_packages)
        install(python, requirements, log, progress)
        stamp.touch()
    print(f"Ready: {progress.summary()} in {time.monotonic() - started:.0f} s", flush=True)


def main() -> int:
    """Run one set-up and return its exit code."""
    parser = argparse.ArgumentParser(description="Set up .venv with a progress bar.")
    parser.add_argument("--for", dest="purpose", required=True, help="what it is set up for")
    parser.add_argument("--extras", default="", help="extras of the package, by commas")
    parser.add_argument("--group", default="", help="dependency group of pyproject.toml")
    parser.add_argument("--also", action="append", default=[], help="one more requirement")
    parser.add_argument("--stamp", type=Path, required=True, help="file to write at the end")
    parser.add_argument("--expect", type=int, default=30, help="about how many packages it will be")
    given = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 gets '?', not a crash
    try:
        stamp = ROOT / given.stamp
        set_up(given.purpose, given.extras, given.group, stamp, given.expect, given.also)
    except SetUpError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; run it again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
