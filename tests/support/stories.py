"""Pages of the documentation that are run from top to bottom, as a reader would do it.

A block of Python that begins with a file name is that file. Each line of a console block that
begins with ``$`` is a command, and what follows is what it prints. ``/data/`` is a folder of the
test. A command must succeed, unless the next one is ``echo $?``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seamark.spark.java import java_home

ROOT: Final = Path(__file__).resolve().parents[2]
LEFT_OUT: Final = ("pip install", "kubectl", "docker")
"""Commands that are not run: they would change the environment, or need one that is not here."""
_BLOCK: Final = re.compile(r"^```(python|console)\n(.*?)^```$", re.S | re.M)
_CHANGES: Final = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d[:-]?\d\d[:-]?\d\d(\.\d+)?( UTC|Z)?", "TIME"),
    (r"rolled-back-[\dTZ-]+", "rolled-back-TIME"),
    (r"\b\d+(\.\d+)? (s|ms|min|h) ago|\bjust now", "AGO"),
    (r"\b\d+(\.\d+)? (s|ms)\b", "SECONDS"),
    (r"\b\d+(\.\d+)? (B|KiB|MiB)(?!\w)", "SIZE"),
    (r"\b[0-9a-f]{12}\b", "DIGEST"),
    (r"Spark 4\.\d( or newer)?", "Spark 4"),
]
"""What is not the same in two runs."""


@dataclass(frozen=True)
class Command:
    """A line that a page has its reader type, and what the page says that it prints."""

    line: str
    shown: str


@dataclass(frozen=True)
class Program:
    """A file that a page has its reader write."""

    name: str
    text: str


@dataclass(frozen=True)
class Told:
    """A command of a page, and what happened when it was run."""

    command: Command
    printed: str
    code: int
    errors: str


def steps_of(page: str) -> list[Command | Program]:
    """The files and commands of a page, in their order."""
    steps: list[Command | Program] = []
    for kind, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "python":
            if name := re.match(r"# (\w+\.py)\n", text):
                steps.append(Program(name[1], text))
            continue
        for line, shown in re.findall(r"^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", text, re.S | re.M):
            steps.append(Command(line, shown))
    return steps


def play(page: str, folder: Path, replaced: Mapping[str, str] | None = None) -> Iterator[Told]:
    """Do what a page says, in a folder; tell of each command what happened."""
    words = {"/data/": f"{folder}/", **(replaced or {})}
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }
    code = 0
    for step in steps_of(page):
        if isinstance(step, Program):
            (folder / step.name).write_text(_with(words, step.text))
            continue
        if step.line.startswith(LEFT_OUT):
            continue
        if step.line == "echo $?":
            yield Told(step, f"{code}\n", 0, "")
            continue
        done = subprocess.run(
            ["bash", "-c", _with(words, step.line)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        # as a shell says it, whether the program or the shell itself was killed
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        yield Told(step, done.stdout.replace(f"{folder}/", "/data/"), code, done.stderr)


def _with(words: Mapping[str, str], text: str) -> str:
    for here, there in words.items():
        text = text.replace(here, there)
    return text


def alike(text: str) -> str:
    """An output without line ends, and without what differs between two runs."""
    text = " ".join(text.split())  # first, because a number and its unit may be on two lines
    for pattern, word in _CHANGES:
        text = re.sub(pattern, word, text)
    return text


def check(page: str, folder: Path, replaced: Mapping[str, str] | None = None) -> None:
    """Do what a page says; every command must print what the page shows."""
    told = list(play(page, folder, replaced))
    assert told, f"{page} has no command"
    for each, following in zip(told, [*told[1:], None], strict=True):
        expected_to_fail = following is not None and following.command.line == "echo $?"
        assert each.code == 0 or expected_to_fail, (each.command.line, each.errors, each.printed)
        pattern = re.escape(alike(each.command.shown)).replace("…", ".*")
        assert re.fullmatch(pattern, alike(each.printed)), (
            f"{page}: {each.command.line}\nshown:   {alike(each.command.shown)}\n"
            f"printed: {alike(each.printed)}\n{each.errors}"
        )
