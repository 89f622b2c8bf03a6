"""What a user sees of a running pipeline: lines on a terminal, log records everywhere else."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from seamark._common.logs import logger_named
from seamark._common.progress_bars import Advance, progress_bar_on
from seamark._common.text import grouped, phase_text, seconds_text, size_text
from seamark._control_characters import escape_controls, escape_controls_in_json
from seamark.pipeline.telemetry.reports import (
    TEXT_COLUMN,
    WIDTH,
    EpochStats,
    StartReport,
    in_order,
)

if TYPE_CHECKING:
    from rich.console import Console

StyledLine = list[tuple[str, str]]
"""A line in parts, each with its style for terminals that have colours."""

LONG_WORK: Final = 32 << 20
"""Bytes from which on it is worth telling that something takes a while."""

_logger: Final = logger_named("seamark.pipeline")
_NEEDS_QUOTES: Final = re.compile(r'[\s="\\]|^$')
_LABEL_STYLES: Final = {"skipped": "yellow", "note": "yellow"}


class Display:
    """Shows one pipeline on stderr when that is a terminal, and in the log when it is not.

    Epochs and recoveries always reach the logger ``seamark.pipeline``, with all figures as fields
    of the record. On a terminal the epochs are logged at DEBUG, so that nobody sees them twice.
    """

    def __init__(self, pipeline: str, stream: TextIO | None = None) -> None:
        self._pipeline = pipeline
        # sys.stderr is None in a process without a console
        self._terminal = open_terminal(stream if stream is not None else sys.stderr)

    def show_epoch(self, stats: EpochStats) -> None:
        """Show an epoch that is done, in one line."""
        shown = self._print(lambda terminal: [epoch_line(stats, terminal.width())])
        level = logging.DEBUG if shown else logging.INFO
        fields = {"event": "epoch", "pipeline": self._pipeline, **stats.fields()}
        _logger.log(level, "%s", key_values(fields), extra=fields)

    def show_recovery(self, report: StartReport) -> None:
        """Show what a start found and did; a damaged checkpoint makes it a warning."""
        self._print(lambda _: [_report_line(line) for line in report.lines()])
        level = logging.WARNING if report.skipped else logging.INFO
        fields: dict[str, Any] = {"event": "recovery", "pipeline": self._pipeline}
        message = key_values({**fields, **report.fields()})
        _logger.log(level, "%s", message, extra={**fields, "recovery": report.to_dict()})

    @contextmanager
    def long_work(self, what: str, size: int) -> Iterator[Advance]:
        """A bar for work on that many bytes, which is gone when the work is done.

        Where there is no terminal, one record says what is about to take a while. Work that is over
        before a bar could be read has neither.
        """
        if size < LONG_WORK:
            yield _nothing
            return
        bar = ExitStack()
        advance: Advance = _nothing
        if isinstance(self._terminal, StyledTerminal) and self._terminal.is_interactive:
            try:
                advance = bar.enter_context(self._terminal.bar(what, size))
            except Exception as error:  # noqa: BLE001 - as for lines
                self._lost(error)
        else:
            fields = {"event": "work", "pipeline": self._pipeline, "work": what, "bytes": size}
            _logger.info("%s: %s", what, size_text(size), extra=fields)
        try:
            yield advance
        finally:
            try:
                bar.close()
            except Exception as error:  # noqa: BLE001 - as for lines
                self._lost(error)

    def _print(self, lines: Callable[[Terminal], list[StyledLine]]) -> bool:
        """Whether the lines were printed; False where there is no terminal, or no longer one."""
        if self._terminal is None:
            return False
        try:
            for line in lines(self._terminal):
                self._terminal.print(line)
        except Exception as error:  # noqa: BLE001 - rich has errors of its own
            self._lost(error)
            return False
        return True

    def _lost(self, error: Exception) -> None:
        """A terminal that was closed is no reason to stop a pipeline."""
        self._terminal = None
        _logger.warning("the terminal is gone (%s): progress goes to the log", error)


def _nothing(by: float = 1, *, total: float | None = None) -> None:
    """For work that nobody watches."""


def epoch_line(stats: EpochStats, width: int) -> StyledLine:
    """One epoch in one line, with as many of its longest phases as fit into ``width``."""
    rows = [(sink, stats.rows_per_sink.get(sink)) for sink in stats.sinks]
    sinks = [sink if count is None else f"{sink} {grouped(count)}" for sink, count in rows]
    between = " " if sinks == stats.sinks else "  "
    columns = [
        (f"epoch {stats.epoch:>3}", "bold"),
        (between.join(sinks), "cyan"),
        (f"checkpoint {stats.checkpoint_id}", "green"),
        (size_text(stats.new_bytes), ""),
        (seconds_text(stats.seconds), "bold"),
    ]
    line = [piece for column in columns if column[0] for piece in (column, ("  ", ""))][:-1]
    room = width - sum(len(text) for text, _ in line)
    if phases := _phases_that_fit(stats.phases, room):
        line.append((phases, "dim"))
    return line


def _phases_that_fit(phases: Mapping[str, float], room: int) -> str:
    """The phases that take a millisecond, in order, the shortest left out until they fit."""
    kept = {phase: took for phase, took in in_order(phases).items() if round(took * 1000) >= 1}
    while kept:
        text = ", ".join(f"{phase} {phase_text(took)}" for phase, took in kept.items())
        if len(f" ({text})") <= room:
            return f" ({text})"
        del kept[min(kept, key=kept.__getitem__)]
    return ""


def _report_line(line: str) -> StyledLine:
    if line.startswith("Recovery"):
        return [(line, "bold")]
    label, text = line[:TEXT_COLUMN], line[TEXT_COLUMN:]
    return [(label, _LABEL_STYLES.get(label.strip(), "dim")), (text, "")]


def key_values(fields: Mapping[str, Any]) -> str:
    """Fields as ``key=value`` in one line; what is unknown or empty is left out."""
    pairs = []
    for key, value in fields.items():
        if isinstance(value, Mapping):
            pairs.append(key_values({f"{key}.{member}": item for member, item in value.items()}))
        elif value is not None and value not in ("", []):
            pairs.append(f"{_quoted(key)}={_quoted(_one_text(value))}")
    return " ".join(pair for pair in pairs if pair)


def _one_text(value: Any) -> str:
    if isinstance(value, list):
        plain = not any(_NEEDS_QUOTES.search(item) for item in value)
        return ("," if plain else "; ").join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    # an error's text may have line breaks: as JSON it stays on one line
    if _NEEDS_QUOTES.search(text) or escape_controls(text) != text:
        return escape_controls_in_json(json.dumps(text, ensure_ascii=False))
    return text


class PlainTerminal:
    """A terminal without colours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def width(self) -> int:
        """How many columns it has at the moment."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or WIDTH
        except OSError:
            return WIDTH

    def print(self, line: StyledLine) -> None:
        """Print one line as it is; ``OSError`` or ``ValueError`` when the terminal was closed."""
        self._stream.write("".join(text for text, _ in line) + "\n")
        self._stream.flush()


class StyledTerminal:
    """A terminal with colours, unless NO_COLOR is set or it says that it is a dumb one."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def width(self) -> int:
        """How many columns it has at the moment."""
        return self._console.width

    def print(self, line: StyledLine) -> None:
        """Print one line; square brackets in names are not taken for styles."""
        from rich.text import Text

        self._console.print(Text.assemble(*line))

    @property
    def is_interactive(self) -> bool:
        """Whether a line can be drawn again; a dumb terminal cannot do that."""
        return self._console.is_interactive and not self._console.is_dumb_terminal

    def bar(self, what: str, size: int) -> AbstractContextManager[Advance]:
        """A bar for work on that many bytes."""
        return progress_bar_on(self._console, what, size, of_bytes=True, hidden=False)


Terminal = PlainTerminal | StyledTerminal
"""Something that a person looks at."""


def open_terminal(stream: TextIO | None) -> Terminal | None:
    """The terminal behind a stream, or None when nobody looks at it."""
    if stream is None or stream.closed or not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return PlainTerminal(stream)
    return StyledTerminal(Console(file=stream, highlight=False, soft_wrap=True))
