"""Names and messages from a store change nothing on a screen but the place they are given."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
from rich.cells import cell_len

from seamark import ConnectorCheckpoint, open_store
from seamark._control_characters import escape_controls
from seamark.cli.app import run
from seamark.cli.error_report import error_lines
from seamark.cli.layout import print_facts, print_paragraph, print_rows
from seamark.cli.output import print_json
from seamark.cli.standard_streams import log_lines
from seamark.errors import DamageError
from seamark.manifest import SinkCommitStatus
from tests.cli.support.stores import COMMITTED, Commands, save
from tests.cli.test_app import on_a_terminal

OBEYED = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\r\u202e\u200f\u2028"
"""Erases the screen, sets its title, colours it, goes back, and turns the direction."""


def is_harmless(text: str) -> bool:
    return not any(char in text for char in OBEYED if not char.isprintable())


@pytest.fixture
def hostile(store: Path) -> Path:
    """A store with a sink whose name and message are escape sequences and faked rows."""
    name = f"bars{OBEYED}\n 9 9 valid"
    with open_store(store) as found:
        failed = SinkCommitStatus.failed(f"{OBEYED}\n 9 9 valid")
        statuses = {name: failed, "large": COMMITTED}
        save(
            found,
            5,
            sink_names=[name],
            sink_epochs={name: 5},
            sink_commit_statuses=statuses,
            extra={"writer": f"driver{OBEYED}", "structure": {f"a{OBEYED}": OBEYED}},
        )
    return store


@pytest.mark.parametrize(
    "words",
    [
        ["list", "STORE"],
        ["list", "STORE", "--json"],
        ["show", "STORE", "5"],
        ["show", "STORE", "5", "--json"],
        ["diff", "STORE", "4", "5"],
        ["recover", "STORE", "--explain"],
        ["verify", "STORE"],
        ["cut", "STORE"],
        ["cut", "STORE", "--json"],
    ],
)
def test_no_command_passes_on_what_a_terminal_would_obey(
    seamark: Commands, hostile: Path, words: list[str]
) -> None:
    out = seamark(*(str(hostile) if word == "STORE" else word for word in words))
    assert is_harmless(out + seamark.err)


def test_on_a_terminal_with_colours_it_is_the_same(hostile: Path) -> None:
    for words in (["list", str(hostile)], ["show", str(hostile), "5"]):
        shown = on_a_terminal(f"from seamark.cli.app import run; run({words!r})")
        assert "\x1b[2J" not in shown
        assert "\x1b]0" not in shown
        assert "\\x1b[2J" in shown


def test_a_name_cannot_look_like_a_row(seamark: Commands, hostile: Path) -> None:
    lines = seamark("list", hostile).splitlines()
    assert not any(line.split()[:3] == ["9", "9", "valid"] for line in lines)


def test_what_was_there_can_still_be_told(seamark: Commands, hostile: Path) -> None:
    assert "\\x1b[2J" in seamark("show", hostile, 5)
    (name, _) = seamark.json("show", hostile, 5)["sinks"]
    assert name == f"bars{OBEYED}\n 9 9 valid"  # as JSON it is the same


def test_errors_and_log_lines_are_harmless_too(capsys: pytest.CaptureFixture[str]) -> None:
    told = error_lines(DamageError(f"x{OBEYED}", where=OBEYED, hint=f"a\n{OBEYED}"))
    assert is_harmless("\n".join(told))
    with log_lines():
        logging.getLogger("seamark.store").warning("it said %s\nwarning: and more", OBEYED)
    err = capsys.readouterr().err
    assert is_harmless(err)
    assert err.count("\nwarning") == 0


@pytest.mark.parametrize("text", ["plain", "äöü – · …", "日本語", "naïve 🎉", "عربي"])
def test_ordinary_letters_stay_as_they_are(text: str) -> None:
    assert escape_controls(text) == text


def test_json_stays_readable_in_any_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"日本": "x\x9by"})
    assert capsys.readouterr().out == '{"日本": "x\\u009by"}\n'


def test_wide_letters_and_long_names_stay_within_80_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide = "漢字の名前" * 30
    print_rows(["NAME", "WHY"], [(wide, wide), ("a", "b")], notes=[f"{wide[:20]} {wide[:20]}"])
    print_facts([("a-very-long-name" * 8, "its value"), (wide, "value"), ("short", "fact")])
    print_paragraph(" ".join([wide[:15]] * 20))
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert "  short  fact" in out
    assert out.replace("\n", "").replace(" ", "").count("漢字の名前") >= 60


def test_an_error_with_wide_letters_stays_within_80_columns() -> None:
    error = DamageError(" ".join(["漢字の名前"] * 20), where=" ".join(["状態"] * 60))
    assert max(map(cell_len, error_lines(error))) <= 80


FORGED = "x\nFORGED 9 chosen"


@pytest.fixture
def forging(store: Path) -> Path:
    """A store whose every name and message tries to begin a line of its own."""
    sources = {FORGED: ConnectorCheckpoint({FORGED: FORGED}), "trades": ConnectorCheckpoint()}
    with open_store(store) as found:
        for number in (5, 6):
            save(
                found,
                number,
                is_incremental=False,
                parent_id=None,
                source_offsets=sources,
                table_offsets=sources,
                source_watermarks={FORGED: 1},
                sink_names=[FORGED],
                sink_epochs={FORGED: number, "other\nFORGED": 1},
                sink_commit_statuses={FORGED: SinkCommitStatus.failed(FORGED)},
                inflight_data={FORGED: []},
                extra={
                    "writer": FORGED,
                    "attempt": FORGED,
                    "structure": {FORGED: f"{number}{FORGED}", "sinks": {FORGED: {"kind": FORGED}}},
                    "native": {FORGED: FORGED},
                    "timings": {FORGED: 1.0},
                    "sink_guarantees": {FORGED: FORGED},
                },
            )
        found.pin(FORGED, 5)
    return store


@pytest.mark.parametrize(
    "words",
    [
        ["list", "STORE"],
        ["show", "STORE", "6"],
        ["diff", "STORE", "5", "6"],
        ["recover", "STORE", "--explain"],
        ["verify", "STORE", "--read-data"],
        ["prune", "STORE", "--keep", "1"],
        ["rollback", "STORE", "5"],
        ["doctor", "STORE", "--read-only"],
        ["show", "STORE", FORGED + "?"],
        ["sources", "STORE"],
        ["spark", "inspect", "STORE" + FORGED],
    ],
)
def test_no_name_can_begin_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], forging: Path, words: list[str]
) -> None:
    run([word.replace("STORE", str(forging)) for word in words])
    out, err = capsys.readouterr()
    for line in (*out.splitlines(), *err.splitlines()):
        # what an error quotes stands deeper than its own parts
        assert not line.removeprefix("  ").startswith("FORGED"), line


def test_a_traceback_shows_names_of_a_store_and_obeys_none() -> None:
    try:
        raise DamageError(f"the sink {OBEYED} is gone", where=f"a{OBEYED}", hint="Restore it.")
    except DamageError as error:
        shown = "".join(traceback.format_exception(error))
    assert is_harmless(shown)
    assert "\\x1b[2J" in shown
    assert "\n  Restore it." in shown
