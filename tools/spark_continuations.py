"""Continue Spark's old checkpoint directories and what was restored of them, and compare the two.

    python -m tools.spark_directories FOLDER --keep KEPT
    python -m tools.spark_continuations KEPT

For each directory below KEPT the query that once wrote it is started twice: on a copy of
``original`` and on a copy of ``restored``. Both get the same new input. Compared are the rows of
each batch, the state that Spark's reader finds afterwards, and the offset and commit logs but for
times and random ids. Where Spark refuses the original it must refuse the restored one by the same
errors. The queries stand in ``spark_continuations.scala``; the Scala compiler among PySpark's jars
compiles it. They run in the PySpark of the interpreter, so another version is tried by another one;
the errors that are known are those of 4.3.
The exit code is 1 when anything differs, or fails in a way that Spark is not known to fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from seamark.spark.java import java_home
from tools.continued_queries import Fitting, fitting_for
from tools.kafka import connector_jars
from tools.spark_directories import in_columns
from tools.topics import topic_behind

HEAD: Final = ("DIRECTORY", "QUERY", "BATCHES", "ROWS", "STATE", "OUTCOME")
EQUAL: Final = "equal"
_SOURCE: Final = Path(__file__).with_suffix(".scala")
_LIGHT: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STREAMS: Final = "org.apache.spark.sql.execution.streaming."
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "5",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.ui.enabled": "false",
}
_TIMES_AND_IDS: Final = ("batchTimestampMs", "stateUniqueIds")
_MOST_REASONS: Final = 3


@dataclass(frozen=True)
class Asked:
    """A query that is to be started on a directory. In a new one it reads its old input."""

    fitting: Fitting
    folder: Path


@dataclass(frozen=True)
class Told:
    """What a query did: the rows of its batches, the state after it, and what the logs gained."""

    errors: Sequence[str] = ()
    message: str = ""
    batches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    state: Mapping[str, Sequence[str]] = field(default_factory=dict)
    logs: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    name: str
    query: str
    result: str
    seen: Told = field(default_factory=Told)

    @property
    def is_bad(self) -> bool:
        """Whether the restored directory is not shown to be continued as the original one is."""
        return self.result.startswith(("differs", "failed"))

    def cells(self) -> tuple[str, ...]:
        """The texts of the row."""
        batches, state = self.seen.batches, self.seen.state
        rows = sum(map(len, batches.values()))
        kept = [row for rows in state.values() for row in rows]
        unread = sorted({row for row in kept if row.startswith("unreadable")})
        told = unread[-1] if unread else str(len(kept))
        return self.name, self.query, str(len(batches)), str(rows), told, self.result


def directories_below(kept: Path) -> list[str]:
    """The names of the directories that have both an original and a restored copy."""
    return sorted(
        path.parent.relative_to(kept).as_posix()
        for path in kept.glob("**/original")
        if (path / "offsets").is_dir() and (path.parent / "restored").is_dir()
    )


# the comparison


def result_of(fit: Fitting, original: Told, restored: Told) -> str:
    """What came of it, in words: equal, differs or refused alike.

    Where batches are missing they are compared in their order, and not by their numbers. An error
    that was not expected is no answer, though both have it: the query may be the wrong one.
    """
    if fit.has_gaps:
        original, restored = without_numbers(original), without_numbers(restored)
    reasons = list(differences(original, restored))
    if reasons:
        more = f" and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
        return f"differs: {'; '.join(reasons[:_MOST_REASONS])}{more}"
    if original.errors:
        known = bool(fit.refused_by) and original.errors[-1].endswith(fit.refused_by)
        kind = "refused alike" if known else "failed alike"
        named = f" ({original.message})" if not original.message.startswith("[") else ""
        return f"{kind}: {original.errors[-1]}{named}"
    if not original.batches:
        return "failed alike: no batch ran"
    return f"{EQUAL} but for batch numbers" if fit.has_gaps else EQUAL


def without_numbers(told: Told) -> Told:
    """The same with the batches counted from 0, and without the logs, which number them too."""
    ordered = sorted(told.batches, key=int)
    batches = {str(place): told.batches[number] for place, number in enumerate(ordered)}
    return replace(told, batches=batches, logs={})


def differences(original: Told, restored: Told) -> Iterator[str]:
    """How a query on the restored directory did not do what it did on the original one."""
    if original.errors != restored.errors:
        yield f"{_said(original.errors)} on the original, {_said(restored.errors)} on the restored"
    for kind, before, after in (
        ("batch", original.batches, restored.batches),
        ("state", original.state, restored.state),
        ("log", original.logs, restored.logs),
    ):
        for name in sorted(before.keys() | after.keys()):
            if name not in after or name not in before:
                yield f"{kind} {name} is only in the {'original' if name in before else 'restored'}"
            elif (lost := _texts(before[name])) != (new := _texts(after[name])):
                yield f"{kind} {name}: {(lost - new).total()} lost, {(new - lost).total()} new"


def _said(errors: Sequence[str]) -> str:
    return errors[-1] if errors else "no error"


def _texts(rows: Sequence[object]) -> Counter[str]:
    """Rows without their order; how often each comes counts."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def log_entries(root: Path, after: int) -> dict[str, list[object]]:
    """The entries of the offset and commit log past a batch, without times and random ids."""
    return {
        file.relative_to(root).as_posix(): [_lasting(line) for line in file.read_text().split("\n")]
        for log in ("offsets", "commits")
        for file in sorted((root / log).glob("[0-9]*"))
        if int(file.name) > after
    }


def _lasting(line: str) -> object:
    try:
        told = json.loads(line)
    except ValueError:
        return line
    if not isinstance(told, dict):
        return told
    return {key: value for key, value in told.items() if key not in _TIMES_AND_IDS}


def newest_commit(root: Path) -> int:
    """The newest batch that a directory calls finished; -1 for none."""
    return max((int(path.name) for path in (root / "commits").glob("[0-9]*")), default=-1)


# Spark


class ContinuationError(Exception):
    """The queries could not be run at all."""


def run_in_spark(asked: Sequence[Asked], scratch: Path) -> list[Told | None]:
    """Run queries one after the other, in one Spark; None for one that is not known there."""
    scratch.mkdir(parents=True, exist_ok=True)
    home, plan, out = _spark_home(), scratch / "asked.jsonl", scratch / "told.jsonl"
    lines = [
        {
            "query": each.fitting.query,
            "settings": each.fitting.settings,
            "options": each.fitting.options,
            "folder": str(each.folder),
        }
        for each in asked
    ]
    plan.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = [newest_commit(each.folder) for each in asked]
    jar = _compiled(home, scratch)
    places = {"spark.local.dir": scratch / "local", "spark.sql.warehouse.dir": scratch / "tables"}
    settings = [f"--conf={key}={value}" for key, value in {**_SETTINGS, **places}.items()]
    java = ("--driver-java-options", " ".join(_LIGHT), "--driver-memory", "2g")
    jars = ("--jars", ",".join(map(str, connector_jars()))) if connector_jars() else ()
    submit = [str(home / "bin/spark-submit"), "--master", "local[2]", *settings, *java, *jars]
    command = [*submit, "--class", "seamark.tools.Continuations", str(jar), str(plan), str(out)]
    _run(command, scratch)
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    return [
        Told(**answer, logs=log_entries(each.folder, newest)) if answer else None
        for each, newest, answer in zip(asked, before, answers, strict=True)
    ]


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ContinuationError(f"{sys.executable} has no PySpark")
    return Path(found.origin).parent


def _compiled(home: Path, scratch: Path) -> Path:
    """The jar of the Scala file. Spark 4.0 has its memory streams in another package."""
    text = _SOURCE.read_text()
    (sql,) = (home / "jars").glob("spark-sql_*.jar")
    with zipfile.ZipFile(sql) as archive:
        if f"{_STREAMS}runtime.MemoryStream".replace(".", "/") + ".class" not in archive.namelist():
            text = text.replace(f"{_STREAMS}runtime.MemoryStream", f"{_STREAMS}MemoryStream")
    source, classes, jar = scratch / _SOURCE.name, scratch / "classes", scratch / "queries.jar"
    source.write_text(text)
    classes.mkdir(exist_ok=True)
    java = [str(java_home() / "bin/java"), *_LIGHT, "-cp", str(home / "jars/*")]
    _run([*java, "scala.tools.nsc.Main", "-usejavacp", "-d", str(classes), str(source)], scratch)
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(classes.rglob("*.class")):
            archive.write(file, file.relative_to(classes))
    return jar


def _run(command: Sequence[str], scratch: Path) -> None:
    surroundings = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=scratch, env=surroundings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = (done.stdout + done.stderr).splitlines()
        end = "\n".join([line for line in told if not line.startswith("\tat ")][-20:])
        raise ContinuationError(f"{Path(command[0]).name} failed\n{end}")


# the command


def continued(kept: Path, scratch: Path) -> list[Outcome]:
    """Continue all directories below a folder; a row for each."""
    names = directories_below(kept)
    fitting = {name: found for name in names if (found := fitting_for(name)) is not None}
    asked = []
    with ExitStack() as stack:
        for number, (name, fit) in enumerate(fitting.items()):
            if fit.query == "kafka":
                topic = stack.enter_context(topic_behind(kept / name / "original"))
                fit = replace(fit, settings={**fit.settings, **topic})  # noqa: PLW2901
            for copy in ("original", "restored"):
                folder = scratch / str(number) / copy
                shutil.copytree(kept / name / copy, folder)
                asked.append(Asked(fit, folder))
        told = run_in_spark(asked, scratch / "run") if asked else []
    pairs = dict(zip(fitting, zip(told[::2], told[1::2], strict=True), strict=True))
    return [_outcome(name, fitting.get(name), *pairs.get(name, (None, None))) for name in names]


def _outcome(
    name: str, fit: Fitting | None, original: Told | None, restored: Told | None
) -> Outcome:
    if fit is None:
        return Outcome(name, "-", "no query: none is known for this name")
    if original is None or restored is None:
        return Outcome(name, fit.query, "no query: its source is not there")
    return Outcome(name, fit.query, result_of(fit, original, restored), original)


def table(outcomes: Sequence[Outcome]) -> str:
    """One row a directory."""
    return in_columns([HEAD, *(outcome.cells() for outcome in outcomes)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Continue all directories below a folder and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kept", type=Path, help="what spark_directories was given as --keep")
    parser.add_argument("--scratch", type=Path, help="where the continued copies stay; empty")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            outcomes = continued(asked.kept, asked.scratch or Path(temporary))
        except ContinuationError as error:
            print(error, file=sys.stderr)
            return 2
    if not outcomes:
        print(f"there is no original with a restored copy below {asked.kept}", file=sys.stderr)
        return 2
    print(table(outcomes))
    counts = Counter(outcome.result.partition(":")[0] for outcome in outcomes)
    told = ", ".join(f"{count} {result}" for result, count in counts.most_common())
    print(f"{len(outcomes)} directories: {told}")
    return 1 if any(outcome.is_bad for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
