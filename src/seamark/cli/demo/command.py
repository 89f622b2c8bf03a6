"""The command: run, kill, run again, prove."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from seamark._common.limited_process import python_command
from seamark.cli.commands import Command, settings
from seamark.cli.demo.page import page_beside
from seamark.cli.demo.pipeline import BARS, LARGE, LATEST, LOG, SINKS, make_room
from seamark.cli.demo.proof import Proof, prove, rows_of_epoch
from seamark.cli.demo.screen import Screen
from seamark.cli.demo.view_reader import ViewReader, Watched
from seamark.cli.output import stderr, stdout
from seamark.errors import SeamarkError
from seamark.pipeline.telemetry.reports import EpochStats, StartReport
from seamark.spark.java import use_java

FATAL_EPOCH: Final = 8
LAST_EPOCH: Final = 15
_TAIL_LINES: Final = 12


@click.command("demo", cls=Command)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Where the demo keeps its files.",
)
@click.option("--verify-only", is_flag=True, help="Only check the result of an earlier demo.")
@click.option("--ui", "with_page", is_flag=True, help="Show the page beside it.")
def command(folder: Path, verify_only: bool, with_page: bool) -> None:
    """Kill a running pipeline; no row is lost or duplicated.

    A streaming pipeline on a real Spark turns trades into bars, filters the large trades, and keeps
    a live view of the newest. It is killed with SIGKILL in the middle of an epoch and started
    again; then every row of all sinks is compared with what must be there. The exit code is 1 when
    a row is lost, doubled or wrong, or when a reader of the view saw half an epoch.
    """
    as_json = settings().as_json
    screen = Screen(stderr() if as_json else stdout())
    _require_spark()
    with ExitStack() as page:
        recovery, watched = None, None
        if not verify_only:
            use_java()
            make_room(folder)
            if with_page:
                page.enter_context(page_beside(folder.absolute(), screen))
            recovery, watched = _run_and_kill_and_run(folder, screen)
        _show_proof(prove(folder, watched), recovery, folder, screen)


def _show_proof(proof: Proof, recovery: StartReport | None, folder: Path, screen: Screen) -> None:
    as_json = settings().as_json
    if as_json:
        recovered = {"recovery": recovery.to_dict()} if recovery is not None else {}
        click.echo(json.dumps(proof.to_dict() | recovered))
    else:
        screen.proof(proof)
    if not proof.holds:
        raise click.exceptions.Exit(1)
    if not as_json:
        screen.next_steps(folder)


def _require_spark() -> None:
    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "rocksdict")):
        raise SeamarkError(
            "the demo runs on a real Spark and RocksDB, which are not installed",
            hint="pip install 'seamark[cli,spark,rocksdb]', and 'seamark[java]' if there is no "
            "Java.",
        )


def _run_and_kill_and_run(folder: Path, screen: Screen) -> tuple[StartReport, Watched]:
    folder = folder.absolute()
    screen.line("A stream of trades, 1 000 an epoch, becomes bars of a minute (which need state),")
    screen.line("a list of large trades, and a live view of the newest: sinks that must agree.\n")
    with ViewReader(folder) as view, screen.live(view):
        _run_until_killed(folder, screen, view)
        report = _run_again(folder, screen, view)
    screen.line("       stopped with SIGTERM at the end of an epoch\n")
    return report, view.watched


def _run_until_killed(folder: Path, screen: Screen, view: ViewReader) -> None:
    with PipelineProcess(folder, fatal_epoch=FATAL_EPOCH) as process:
        with screen.waiting("Starting Spark …"):
            process.recovery()
        screen.epochs(SINKS)
        for figures in process.epochs():
            _show(figures, folder, screen, view)
        process.require_killed(FATAL_EPOCH)
    screen.killed(FATAL_EPOCH, view.look())


def _run_again(folder: Path, screen: Screen, view: ViewReader) -> StartReport:
    with PipelineProcess(folder) as process:
        with screen.waiting("Starting Spark again …"):
            report = process.recovery()
        screen.recovery(report, view.look())
        screen.epochs(SINKS)
        for figures in process.epochs():
            _show(figures, folder, screen, view)
            if figures.epoch == LAST_EPOCH:
                process.ask_to_stop()
        process.require_ended_well()
    return report


def _show(figures: EpochStats, folder: Path, screen: Screen, view: ViewReader) -> None:
    rows = {sink: rows_of_epoch(folder / sink, figures.epoch) for sink in (BARS, LARGE)}
    screen.epoch(figures, rows | {LATEST: len(view.look().rows)})


class PipelineProcess:
    """A running pipeline, with its JVM in one process group; leaving the ``with`` ends both."""

    def __init__(self, folder: Path, *, fatal_epoch: int | None = None) -> None:
        self._log = folder / LOG
        arguments = [str(folder)] if fatal_epoch is None else [str(folder), str(fatal_epoch)]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [*python_command("seamark.cli.demo.pipeline"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._events = self._read_events()
        self.killed_in: int | None = None
        """The epoch in which it said that it would be killed."""

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def recovery(self) -> StartReport:
        """Wait for Spark, and for what the start found in the store."""
        for event in self._events:
            if event["event"] == "recovery":
                fields = event["report"]
                skipped = [
                    (skipped_one["checkpoint_id"], skipped_one["reason"])
                    for skipped_one in fields["skipped"]
                ]
                return StartReport(**{**fields, "skipped": skipped})
        raise self._failure()

    def epochs(self) -> Iterator[EpochStats]:
        """The epochs as they are done, until the process and its JVM have ended."""
        for event in self._events:
            kind = event.pop("event")
            if kind == "killing":
                self.killed_in = event["epoch"]
            elif kind == "epoch":
                yield EpochStats(rows_per_sink=event.pop("rows"), **event)

    def ask_to_stop(self) -> None:
        """Send SIGTERM: it finishes the epoch and ends."""
        self._child.terminate()

    def require_killed(self, epoch: int) -> None:
        """Raise unless it was killed with SIGKILL at the right place in ``epoch``."""
        if self._child.wait() != -signal.SIGKILL or self.killed_in != epoch:
            raise self._failure()

    def require_ended_well(self) -> None:
        """Raise unless its exit code is 0."""
        if self._child.wait() != 0:
            raise self._failure()

    def _read_events(self) -> Iterator[dict[str, Any]]:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            # the JVM shares stdout, so that its end is seen too; what it prints is not for us
            if line.startswith('{"event"'):
                yield json.loads(line)

    def _failure(self) -> SeamarkError:
        code = self._child.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        tail = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return SeamarkError(
            f"the demo's pipeline ended {how}, which was not to happen",
            where="\n".join(["Its log ends with:", *tail] if tail else []),
            hint=f"The whole log: {self._log}",
        )
