"""What the demo shows: epochs, the kill, the recovery, the proof, and what to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from seamark.cli.demo.folder import CHECKPOINTS, LARGE
from seamark.cli.demo.proof import Proof
from seamark.pipeline.display import epoch_line
from seamark.pipeline.figures import EpochFigures
from seamark.pipeline.report import RecoveryReport

_PHASES: Final = ("capture", "save", "commit")
"""What the checkpoint itself takes; the rest of the time is Spark's."""


class Screen:
    """The demo on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line as it is."""
        self._console.print(Text(text, style))

    @contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Say what is being waited for; off a terminal in a line of its own."""
        if self._console.is_terminal:
            with self._console.status(words):
                yield
        else:
            self.line(words)
            yield

    def epoch(self, figures: EpochFigures, rows: Mapping[str, int]) -> None:
        """Show an epoch as a pipeline on a terminal does, with the rows that each sink shows."""
        phases = {phase: figures.phases[phase] for phase in _PHASES if phase in figures.phases}
        shown = replace(figures, rows_per_sink=dict(rows), phases=phases)
        self._console.print(Text.assemble(*epoch_line(shown, self._console.width)))

    def killed(self, epoch: int) -> None:
        """Show where the process died."""
        where = "killed with SIGKILL between save and commit"
        self._console.print(Text.assemble((f"epoch {epoch:>3}  ", "bold"), (where, "red")))
        self.line()

    def recovery(self, report: RecoveryReport) -> None:
        """Show what the start after the kill found and did."""
        headline, *rest = report.lines()
        self.line(headline, "bold")
        for line in rest:
            self.line(line)
        self.line()

    def proof(self, proof: Proof) -> None:
        """Show the table, the verdict, and the first rows that are wrong."""
        self.line(
            f"{'Proof':<10}{'expected':>11}{'found':>10}{'lost':>7}{'duplicates':>13}", "bold"
        )
        for sink in proof.sinks:
            figures = sink.to_dict()
            expected, found = figures["expected"], figures["found"]
            lost, duplicates = figures["lost"], figures["duplicates"]
            self.line(
                f"  {sink.sink:<8}{expected:>11,}{found:>10,}{lost:>7,}{duplicates:>13,}".replace(
                    ",", " "
                )
            )
        progress = proof.progress
        trades = f"{progress.trades:,}".replace(",", " ")
        self.line(
            f"Expected: by Spark's own offset log ({trades} trades in {progress.batch + 1} "
            "batches) and the\nsource's formula. Found: by reading the files.",
            "dim",
        )
        for sink in proof.sinks:
            for finding in sink.findings():
                self.line(f"  {finding}", "yellow")
        verdict = ("yes", "bold green") if proof.holds else ("no", "bold red")
        self._console.print(Text.assemble(("Exactly once: ", "bold"), verdict, "."))

    def next_steps(self, folder: Path) -> None:
        """Say where the checkpoints are and what to type next."""
        where = shlex.quote(str(folder))
        given = "" if folder == Path("demo") else f" --dir {where}"
        self.line()
        self.line(f"Checkpoints: {where}/{CHECKPOINTS}     Try: ls {where}/{CHECKPOINTS}")
        self.line("Do not believe it? Remove a file and ask again:")
        self.line(f"  rm {where}/{LARGE}/epoch=000005/part-*")
        self.line(f"  {_this_command()} demo --verify-only{given}")


def _this_command() -> str:
    """How to call this program again."""
    if shutil.which("seamark"):
        return "seamark"
    return sys.argv[0] if Path(sys.argv[0]).name == "seamark" else "python -m seamark"
