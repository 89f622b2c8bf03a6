"""What the demo shows: epochs, the kill, the recovery, the proof, and what to type next.

Tests: ``tests/cli/demo/test_view_reader.py``.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from seamark._common.text import grouped, phase_text, seconds_text, size_text
from seamark.cli.demo.pipeline import CHECKPOINTS, LARGE
from seamark.cli.demo.proof import Proof
from seamark.cli.demo.view_reader import Look, ViewReader, Watched
from seamark.pipeline.telemetry.reports import EpochStats, StartReport

_PHASES: Final = ("capture", "save", "commit")
"""What the checkpoint itself takes; most of the rest is Spark's."""
_PROOF_WIDTHS: Final = (-10, 11, 10, 7, 13)
_REFRESHED_PER_SECOND: Final = 10
_ROWS_PER_LINE: Final = 5


class Screen:
    """The demo on a console, in 80 columns."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waiting: Spinner | None = None

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line as it is."""
        self._console.print(Text(text, style))

    @contextmanager
    def live(self, view: ViewReader) -> Iterator[None]:
        """Keep the rows of the view below all else, as they change; nothing off a terminal."""

        def region() -> RenderableType:
            waiting = [self._waiting] if self._waiting is not None else []
            headline, *rows = view_lines(view.newest)
            return Group("", Text(headline, "bold"), *map(Text, rows), *waiting)

        if self._console.is_terminal:
            with Live(
                get_renderable=region,
                console=self._console,
                refresh_per_second=_REFRESHED_PER_SECOND,
                transient=True,
            ):
                yield
        else:
            yield

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Say what is being waited for; off a terminal in a line of its own."""
        if not self._console.is_terminal:
            self.line(text)
        self._waiting = Spinner("dots", text)
        try:
            yield
        finally:
            self._waiting = None

    def epochs(self, sinks: Sequence[str]) -> None:
        """Print the line above the epochs: rows of each sink, the checkpoint, and the times."""
        cells = ["epoch", *sinks, "checkpoint", "added", "took", *_PHASES]
        self.line(_columns(cells, _epoch_widths(sinks)), "bold")

    def epoch(self, figures: EpochStats, rows: Mapping[str, int]) -> None:
        """Print an epoch that is done, with the rows that each sink shows for it."""
        cells = [
            str(figures.epoch),
            *(str(rows[sink]) for sink in figures.sinks),
            str(figures.checkpoint_id),
            size_text(figures.new_bytes),
            seconds_text(figures.seconds),
            *(phase_text(figures.phases[phase]) for phase in _PHASES),
        ]
        self.line(_columns(cells, _epoch_widths(figures.sinks)))

    def killed(self, epoch: int, view: Look) -> None:
        """Show where the process died, and what a reader of the view sees of that."""
        self.line(f"{epoch:>5}  killed with SIGKILL between save and commit", "red")
        self.line(f"       its view, as another process reads it: {whole_text(view)}\n")

    def recovery(self, report: StartReport, view: Look) -> None:
        """Show what the start after the kill found and did, and what a reader sees of it."""
        headline, *rest = report.lines()
        self.line(headline, "bold")
        for line in rest:
            self.line(line)
        self.line(f"  view         {whole_text(view)}\n")

    def proof(self, proof: Proof) -> None:
        """Show the table, the first rows that are wrong, and the verdict."""
        head = ("Proof", "expected", "found", "lost", "duplicates")
        self.line(_columns(head, _PROOF_WIDTHS), "bold")
        for sink in proof.sinks:
            cells = [f"  {sink.sink}", *map(grouped, sink.to_dict().values())]
            self.line(_columns(cells, _PROOF_WIDTHS))
        for sink in proof.sinks:
            for finding in sink.findings():
                self.line(f"  {finding}", "yellow")
        if proof.watched is not None:
            self.line(_watched_text(proof.watched), "" if proof.watched.holds else "yellow")
        read = grouped(proof.progress.trades)
        self.line(f"Expected by Spark's own offset log ({read} trades) and the source's formula.")
        verdict = ("yes", "bold green") if proof.holds else ("no", "bold red")
        self._console.print(Text.assemble(("Exactly once: ", "bold"), verdict, "."))

    def next_steps(self, folder: Path) -> None:
        """Say where the checkpoints are and what to type next."""
        where = shlex.quote(str(folder))
        given = "" if folder == Path("demo") else f" --dir {where}"
        self.line(f"\nCheckpoints: {where}/{CHECKPOINTS}")
        self.line(f"  {_this_command()} list {where}/{CHECKPOINTS}")
        self.line("Take something away, and see whether the proof notices:")
        self.line(f"  rm {where}/{LARGE}/epoch=000005/part-*")
        self.line(f"  {_this_command()} demo --verify-only{given}")


def view_lines(view: Look) -> list[str]:
    """The view in a few lines: whether it is whole, and the price of each symbol."""
    cells = [f"{row.symbol} {row.price:6.2f}" for row in view.rows]
    lines = [cells[at : at + _ROWS_PER_LINE] for at in range(0, len(cells), _ROWS_PER_LINE)]
    return [f"latest, read while the pipeline runs: {whole_text(view)}"] + [
        "  " + "   ".join(line) for line in lines
    ]


def whole_text(view: Look) -> str:
    """What a reader sees in the view."""
    if not view.rows:
        return "nothing yet"
    which = "half an epoch" if view.epoch is None else f"all of epoch {view.epoch}"
    return f"{len(view.rows)} symbols, {which}"


def _watched_text(watched: Watched) -> str:
    if not watched.epochs:
        return "The view was never there for its reader."
    looks = f"View read {grouped(watched.looks)} times during the run"
    if watched.wrong:
        return f"{looks}: {watched.wrong} times half an epoch, or an old one."
    return f"{looks}: {watched.epochs} epochs, never half of one."


def _epoch_widths(sinks: Sequence[str]) -> list[int]:
    return [5, *(max(len(sink), 3) + 2 for sink in sinks), 12, 9, 8, 9, 7, 8]


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells in columns: to the right, or to the left where the width is negative."""
    return "".join(
        cell.ljust(-width) if width < 0 else cell.rjust(width)
        for cell, width in zip(cells, widths, strict=True)
    )


def _this_command() -> str:
    """How to call this program again."""
    if shutil.which("seamark"):
        return "seamark"
    return sys.argv[0] if Path(sys.argv[0]).name == "seamark" else "python -m seamark"
