"""A terminal gets a line an epoch; everything else gets log records with all figures."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from seamark._common.logs import logger_named
from seamark.pipeline.telemetry.display import LONG_WORK, Display, epoch_line, key_values
from tests.pipeline.support.epochs import EPOCH_14, RECOVERY, epoch, recovery

ROOT = Path(__file__).parents[2]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3|9)[0-7][0-9;]*m")
FULL_LINE = (
    "epoch  14  bars large  checkpoint 15  41 KiB  0.41 s "
    "(write 380 ms, capture 9 ms, save 3 ms, commit 12 ms)"
)


@contextmanager
def terminal(columns: int = 120) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A real terminal: a stream to write to it, and what was written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w", encoding="utf-8") as stream:

        def written() -> str:
            stream.flush()
            os.set_blocking(screen.fileno(), False)
            text = b""
            while chunk := screen.read(65536):
                text += chunk
            return text.decode().replace("\r\n", "\n")

        yield stream, written


@pytest.fixture(autouse=True)
def usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing rich fails, as where it is not installed."""
    for name in ("rich", "rich.console", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)


def line_of(width: int, **changes: Any) -> str:
    """The plain text of an epoch's line."""
    return "".join(text for text, _ in epoch_line(epoch(**changes), width))


def test_a_terminal_gets_one_line_an_epoch() -> None:
    with terminal() as (stream, written):
        display = Display("trades", stream)
        display.show_epoch(EPOCH_14)
        display.show_epoch(epoch(epoch=15, checkpoint_id=16))
        text = written()
    assert COLOURS.search(text)
    first, second = ESCAPES.sub("", text).splitlines()
    assert first == FULL_LINE
    assert second.startswith("epoch  15  bars large  checkpoint 16")


def test_colours_vanish_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal() as (stream, written):
        Display("trades", stream).show_epoch(EPOCH_14)
        text = written()
    assert not COLOURS.search(text)
    assert ESCAPES.sub("", text) == FULL_LINE + "\n"


def test_a_dumb_terminal_gets_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as (stream, written):
        Display("trades", stream).show_epoch(EPOCH_14)
        text = written()
    assert text.startswith("epoch  14  bars large  checkpoint 15")
    assert "\x1b" not in text


@pytest.mark.usefixtures("no_rich")
def test_without_rich_a_terminal_gets_plain_lines() -> None:
    with terminal(columns=110) as (stream, written):
        display = Display("trades", stream)
        display.show_epoch(EPOCH_14)
        display.show_recovery(RECOVERY)
        assert written().splitlines() == [FULL_LINE, *RECOVERY.lines()]


@pytest.mark.usefixtures("no_rich")
def test_without_rich_the_line_fits_a_narrow_terminal_too() -> None:
    with terminal(columns=80) as (stream, written):
        Display("trades", stream).show_epoch(EPOCH_14)
        assert len(written().rstrip("\n")) <= 80


def test_a_name_in_square_brackets_is_printed_as_it_is() -> None:
    with terminal() as (stream, written):
        Display("trades", stream).show_epoch(epoch(sinks=["[red]", "[/]"]))
        assert "[red] [/]" in ESCAPES.sub("", written())


def test_the_recovery_report_is_printed_as_it_is_laid_out() -> None:
    report = recovery(skipped=[(16, "state.bin: SHA-256 differs " * 4)], notes=["[bold]"])
    with terminal() as (stream, written):
        Display("trades", stream).show_recovery(report)
        assert ESCAPES.sub("", written()).splitlines() == report.lines()


OBEYED = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
"""Erases the screen, sets its title, colours it and turns the direction."""


@pytest.mark.parametrize("where", ["on a terminal", "in the log"])
def test_a_start_tells_nothing_that_a_terminal_would_obey(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = f"op{OBEYED}"
    report = recovery(
        skipped=[(16, f"operator '{odd}': damaged")], finished={odd: odd}, notes=[f"x{OBEYED}"]
    )
    with caplog.at_level(logging.INFO, "seamark.pipeline"), terminal() as (stream, written):
        Display("trades", stream if where == "on a terminal" else io.StringIO()).show_recovery(
            report
        )
        logger_named("seamark.store").warning("it is damaged: %s\nINFO forged", odd)
        told = ESCAPES.sub("", written()) + "\n".join(r.getMessage() for r in caplog.records)
    assert told.count("[2J") >= 4
    assert not any(char in told for char in OBEYED if not char.isprintable())
    assert "\nINFO forged" not in told


def test_phases_that_do_not_fit_are_left_out_shortest_first() -> None:
    assert line_of(120) == FULL_LINE
    assert line_of(85).endswith("0.41 s (write 380 ms, commit 12 ms)")
    assert line_of(60).endswith("0.41 s")
    assert all(len(line_of(width)) <= width for width in range(60, 120))


def test_rows_are_shown_where_they_were_counted() -> None:
    line = line_of(120, rows_per_sink={"bars": 1234567, "large": None})
    assert line.startswith("epoch  14  bars 1 234 567  large  checkpoint 15")


def test_an_epoch_without_sinks_leaves_no_gap() -> None:
    assert line_of(60, sinks=[]).startswith("epoch  14  checkpoint 15  41 KiB")


def test_off_a_terminal_an_epoch_is_one_log_record(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades", stream).show_epoch(epoch(rows_per_sink={"bars": 10, "large": 31}))
    assert stream.getvalue() == ""
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "event=epoch pipeline=trades epoch=14 checkpoint_id=15 seconds=0.412 sinks=bars,large "
        "rows.bars=10 rows.large=31 new_bytes=41984 full_bytes=3250586 watermark=1700000000000 "
        "phases.begin=0.0001 phases.write=0.38 phases.prepare=0.0002 phases.capture=0.009 "
        "phases.save=0.003 phases.commit=0.012 phases.record=0.0004 phases.retain=0.0"
    )
    fields = vars(record)
    assert fields["event"] == "epoch"
    assert fields["rows"] == {"bars": 10, "large": 31}
    assert fields["phases"]["write"] == 0.38
    assert fields["full_bytes"] == 3250586


def test_what_is_not_known_is_left_out_of_the_message(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades", io.StringIO()).show_epoch(epoch(watermark=None))
    assert "watermark" not in caplog.text
    assert "rows" not in caplog.text
    assert vars(caplog.records[0])["watermark"] is None


def test_off_a_terminal_a_recovery_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades", io.StringIO()).show_recovery(RECOVERY)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "event=recovery pipeline=trades seconds=0.183 chosen_id=15 epoch=15 fresh_start=false "
        'damaged=0 verified="SHA-256, 3 files, 41 KiB" '
        'finished.large="committed from its committable" '
        'finished.bars="already committed" working_copy="kept, commits/14 written" '
        "copy_outcome=kept restored_bytes=0"
    )
    assert vars(record)["recovery"] == RECOVERY.to_dict()


def test_a_damaged_checkpoint_is_a_warning_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    report = recovery(skipped=[(17, "torn\n  here"), (16, "missing")])
    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades", io.StringIO()).show_recovery(report)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert r'skipped="17: torn\n  here; 16: missing"' in record.getMessage()
    assert "\n" not in record.getMessage()


def test_on_a_terminal_epochs_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with terminal() as (stream, _), caplog.at_level(logging.DEBUG, "seamark.pipeline"):
        display = Display("trades", stream)
        display.show_epoch(EPOCH_14)
        display.show_recovery(RECOVERY)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.INFO]


@pytest.mark.parametrize("with_rich", [True, False])
def test_a_terminal_that_goes_away_does_not_stop_the_pipeline(
    with_rich: bool, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    if not with_rich:
        request.getfixturevalue("no_rich")
    ours, theirs = pty.openpty()
    with (
        open(theirs, "wb", buffering=0) as raw,
        caplog.at_level(logging.INFO, "seamark.pipeline"),
    ):
        stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        display = Display("trades", stream)
        os.close(ours)
        display.show_epoch(EPOCH_14)
        display.show_epoch(EPOCH_14)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "the terminal is gone" in caplog.records[0].getMessage()


def test_a_process_without_stderr_logs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades").show_epoch(EPOCH_14)
    assert len(caplog.records) == 1


def test_keys_and_values_with_blanks_are_quoted() -> None:
    fields = {"a": "x y", "b": {"my sink": 'say "hi"'}, "c": ["p q", "r"], "d": True, "e": ""}
    assert key_values(fields) == 'a="x y" "b.my sink"="say \\"hi\\"" c="p q; r" d=true'


def test_a_piped_process_prints_nothing_of_its_own() -> None:
    code = (
        "from seamark.pipeline.telemetry.display import Display\n"
        "from tests.pipeline.support.epochs import EPOCH_14\n"
        "Display('trades').show_epoch(EPOCH_14)\n"
        "import sys, json; print(json.dumps('rich' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) is False


# work that takes long

GIB = 1 << 30


def test_long_work_has_a_bar_that_is_gone_before_the_next_line() -> None:
    with terminal() as (stream, written):
        display = Display("trades", stream)
        with display.long_work("restoring the working copy", 4 * GIB) as advance:
            advance(GIB)
            advance(GIB)
        shown = written()
        display.show_epoch(EPOCH_14)
        after = written()
    assert "restoring the working copy" in shown
    assert "2.1/4.3 GB" in ESCAPES.sub("", shown)
    # the last thing is to go back and clear the line
    assert shown.endswith("\x1b[1A\x1b[2K")
    assert ESCAPES.sub("", after) == FULL_LINE + "\n"


@pytest.mark.parametrize("stream", ["a file", "a dumb terminal", "a terminal without rich"])
def test_long_work_that_nobody_watches_is_one_log_record(
    stream: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    caplog.set_level(logging.INFO, "seamark.pipeline")
    if stream == "a dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    elif stream == "a terminal without rich":
        request.getfixturevalue("no_rich")
    with terminal() as (screen, written):
        display = Display("trades", io.StringIO() if stream == "a file" else screen)
        with display.long_work("proving the working copy", GIB) as advance:
            advance(GIB)
        assert written() == ""
    (record,) = caplog.records
    assert record.getMessage() == "proving the working copy: 1.0 GiB"
    assert (record.__dict__["event"], record.__dict__["bytes"]) == ("work", GIB)


def test_short_work_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seamark.pipeline")
    with terminal() as (stream, written):
        for display in (Display("trades", stream), Display("trades", io.StringIO())):
            with display.long_work("restoring", LONG_WORK - 1) as advance:
                advance(1)
        assert written() == ""
    assert caplog.records == []


def test_an_error_during_long_work_takes_the_bar_away_and_passes_on() -> None:
    with terminal() as (stream, written):
        display = Display("trades", stream)
        with pytest.raises(ValueError, match="damaged"), display.long_work("restoring", GIB):
            raise ValueError("damaged")
        assert written().endswith("\x1b[1A\x1b[2K")
