"""The command: run, kill, run again, prove.

Tests: ``tests/cli/test_demo.py``.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from seamark.cli.commands import Command, settings

if TYPE_CHECKING:
    from seamark.cli.demo.screen import Screen
    from seamark.cli.demo.view_reader import ViewReader, Watched
    from seamark.pipeline.telemetry.reports import EpochStats, StartReport

FATAL_EPOCH: Final = 8
LAST_EPOCH: Final = 15


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
def command(folder: Path, verify_only: bool) -> None:
    """Kill a running pipeline; no row is lost or duplicated.

    A streaming pipeline on a real Spark turns trades into bars, filters the large trades, and keeps
    a live view of the newest. It is killed with SIGKILL in the middle of an epoch and started
    again; then every row of all sinks is compared with what must be there. The exit code is 1 when
    a row is lost, doubled or wrong, or when a reader of the view saw half an epoch.
    """
    from seamark.cli.demo.proof import prove
    from seamark.cli.demo.screen import Screen
    from seamark.cli.output import stderr, stdout

    as_json = settings().as_json
    screen = Screen(stderr() if as_json else stdout())
    _require_spark()
    recovery, watched = (None, None) if verify_only else _run_and_kill_and_run(folder, screen)
    proof = prove(folder, watched)
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
    from seamark.errors import SeamarkError

    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "rocksdict")):
        raise SeamarkError(
            "the demo runs on a real Spark and RocksDB, which are not installed",
            hint="pip install 'seamark[cli,spark,rocksdb]', and 'seamark[java]' if there is no "
            "Java.",
        )


def _run_and_kill_and_run(folder: Path, screen: Screen) -> tuple[StartReport, Watched]:
    from seamark.cli.demo.folder import make_room
    from seamark.cli.demo.view_reader import ViewReader
    from seamark.spark.java import use_java

    use_java()
    make_room(folder)
    folder = folder.absolute()
    screen.line("A stream of trades, 1 000 an epoch, becomes bars of a minute (which need state),")
    screen.line("a list of large trades, and a live view of the newest: sinks that must agree.\n")
    with ViewReader(folder) as view, screen.live(view):
        _run_until_killed(folder, screen, view)
        report = _run_again(folder, screen, view)
    screen.line("       stopped with SIGTERM at the end of an epoch\n")
    return report, view.watched


def _run_until_killed(folder: Path, screen: Screen, view: ViewReader) -> None:
    from seamark.cli.demo.folder import SINKS
    from seamark.cli.demo.process import PipelineProcess

    with PipelineProcess(folder, fatal_epoch=FATAL_EPOCH) as process:
        with screen.waiting("Starting Spark …"):
            process.recovery()
        screen.epochs(SINKS)
        for figures in process.epochs():
            _show(figures, folder, screen, view)
        process.require_killed(FATAL_EPOCH)
    screen.killed(FATAL_EPOCH, view.look())


def _run_again(folder: Path, screen: Screen, view: ViewReader) -> StartReport:
    from seamark.cli.demo.folder import SINKS
    from seamark.cli.demo.process import PipelineProcess

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
    from seamark.cli.demo.folder import BARS, LARGE, LATEST
    from seamark.cli.demo.proof import rows_of_epoch

    rows = {sink: rows_of_epoch(folder / sink, figures.epoch) for sink in (BARS, LARGE)}
    screen.epoch(figures, rows | {LATEST: len(view.look().rows)})
