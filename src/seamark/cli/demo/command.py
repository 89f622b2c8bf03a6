"""The command: run, kill, run again, prove."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from seamark.cli.demo.screen import Screen
    from seamark.pipeline.figures import EpochFigures
    from seamark.pipeline.report import RecoveryReport

FATAL_EPOCH: Final = 8
LAST_EPOCH: Final = 15


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Where the demo keeps its files.",
)
@click.option("--verify-only", is_flag=True, help="Prove the demo that was run there before.")
@click.option("--json", "as_json", is_flag=True, help="Print the proof as JSON.")
def command(folder: Path, verify_only: bool, as_json: bool) -> None:
    """Kill a running pipeline; no row is lost or doubled.

    A streaming pipeline on a real Spark makes bars out of trades, and filters the large ones. It
    is killed with SIGKILL in the middle of an epoch, started again, and every row of both sinks is
    held against what must be there. The exit code is 1 when a row is lost, doubled or wrong.
    """
    from seamark.cli.demo.proof import prove
    from seamark.cli.demo.screen import Screen
    from seamark.cli.output import stderr, stdout

    screen = Screen(stderr() if as_json else stdout())
    _require_spark()
    recovery = None if verify_only else _run_and_kill_and_run(folder, screen)
    proof = prove(folder)
    if as_json:
        recovered = {"recovery": recovery.to_dict()} if recovery is not None else {}
        click.echo(json.dumps(proof.to_dict() | recovered))
    else:
        screen.proof(proof)
    if not proof.holds:
        sys.exit(1)
    if not as_json:
        screen.next_steps(folder)


def _require_spark() -> None:
    from seamark.errors import SeamarkError

    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SeamarkError(
            "the demo runs on a real Spark, which is not installed",
            hint="pip install 'seamark[cli,spark]', and 'seamark[java]' if there is no Java.",
        )


def _run_and_kill_and_run(folder: Path, screen: Screen) -> RecoveryReport:
    from seamark.cli.demo.folder import SINKS, make_room
    from seamark.cli.demo.process import PipelineProcess
    from seamark.spark.java import use_java

    use_java()
    make_room(folder)
    folder = folder.absolute()
    screen.line("A stream of trades, 1 000 an epoch, becomes bars of a minute (which need state)")
    screen.line("and a list of large trades: two sinks that must agree.\n")
    with PipelineProcess(folder, fatal_epoch=FATAL_EPOCH) as process:
        with screen.waiting("Starting Spark …"):
            process.recovery()
        screen.epochs(SINKS)
        for figures in process.epochs():
            _show(figures, folder, screen)
        process.require_killed(FATAL_EPOCH)
    screen.killed(FATAL_EPOCH)
    with PipelineProcess(folder) as process:
        with screen.waiting("Starting Spark again …"):
            report = process.recovery()
        screen.recovery(report)
        screen.epochs(SINKS)
        for figures in process.epochs():
            _show(figures, folder, screen)
            if figures.epoch == LAST_EPOCH:
                process.ask_to_stop()
        process.require_ended_well()
    screen.line("       stopped with SIGTERM at the end of an epoch\n")
    return report


def _show(figures: EpochFigures, folder: Path, screen: Screen) -> None:
    from seamark.cli.demo.proof import rows_of_epoch

    rows = {sink: rows_of_epoch(folder / sink, figures.epoch) for sink in figures.sinks}
    screen.epoch(figures, rows)
