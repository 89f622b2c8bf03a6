"""The command line starts quickly, tells errors as promised and answers with their exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from seamark import SeamarkError, __version__, limits
from seamark.cli.app import COMMANDS, app, run
from seamark.cli.commands import Settings
from seamark.cli.error_report import error_lines, report_error
from seamark.errors import DamageError, FencedError, InvalidInputError

FENCED = FencedError(
    "this store belongs to another writer",
    where="s3://bucket/trades was claimed by generation 8 (driver-2, pid 4121) 3 s ago; "
    "this process holds generation 7.",
    hint="Stop one of the two drivers; the other goes on.",
)


def seamark(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seamark", *args],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_command_without_loading_any() -> None:
    code = "import sys; from seamark.cli.app import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, (module, line) in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert line in done.stdout
        assert module not in done.stdout
    for heavy in ("rich.console", "msgspec", "obstore", "pyspark"):
        assert heavy not in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_line_of_the_command_s_own_help(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]


def test_the_version_can_be_asked_for_in_three_ways() -> None:
    assert seamark("--version").stdout == f"seamark {__version__}\n"
    assert seamark("version").stdout.split()[:2] == ["seamark", __version__]
    found = json.loads(seamark("version", "--json").stdout)
    assert found["seamark"] == __version__
    assert found["msgspec"] is not None


def test_a_command_that_does_not_exist_is_told_and_exits_with_2() -> None:
    done = seamark("recvoer")
    assert done.returncode == 2
    assert "No such command 'recvoer'" in done.stderr


def test_an_error_says_what_where_what_next_and_its_exit_code_within_80_columns() -> None:
    assert error_lines(FENCED) == [
        "error: this store belongs to another writer",
        "  s3://bucket/trades was claimed by generation 8 (driver-2, pid 4121) 3 s ago;",
        "  this process holds generation 7.",
        "  Stop one of the two drivers; the other goes on.                    exit code 5",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_that_repeats_a_very_long_name_is_told_by_its_beginning(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    long = "no " * limits.LONGEST_ERROR
    error = DamageError(f"password=abc {long}", where=long, hint=f"{long} s3://KEY:SECRET@b")
    assert report_error(error, Settings(as_json=as_json)) == 3
    told = capsys.readouterr().err
    assert 3 * limits.LONGEST_ERROR < len(told) < 4 * limits.LONGEST_ERROR
    assert "no no" in told
    assert "abc" not in told
    assert "KEY" not in told


def test_an_error_without_details_and_a_long_path_stay_whole() -> None:
    assert error_lines(InvalidInputError("no"))[0] == "error: no"
    assert error_lines(InvalidInputError(""))[0] == "error: InvalidInputError"
    path = "/a-long-path" * 20
    assert f"  {path}" in error_lines(DamageError("gone", where=path))


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("fail")
    def command() -> None:
        raise error

    monkeypatch.setattr(app, "get_command", lambda *_: command)


@pytest.mark.parametrize("error", [FENCED, DamageError("x"), SeamarkError("[bold]y[/bold] {z}")])
def test_an_error_of_a_command_goes_to_stderr_and_becomes_its_exit_code(
    error: SeamarkError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(error, monkeypatch)
    assert run(["fail"]) == error.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "\n".join(error_lines(error)) + "\n"


def test_a_bug_is_told_as_one_with_its_trace_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(ZeroDivisionError("oops"), monkeypatch)
    assert run(["fail"]) == 1
    told = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in told
    assert "a fault of Seamark itself" in told
    assert "Traceback" not in told
    assert run(["-v", "fail"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert run(["-vv", "fail"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said", ["Answer from Java side is empty", "Error while sending or receiving"]
)
def test_a_spark_whose_process_has_ended_is_no_fault_of_seamark(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from py4j.protocol import Py4JNetworkError

    failing(Py4JNetworkError(said), monkeypatch)
    assert run(["fail"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "Spark's process has ended" in told
    assert "fault of Seamark" not in told


def test_an_error_is_json_when_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(FENCED, monkeypatch)
    assert run(["--json", "fail"]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["error"]["kind"] == "FencedError"
    assert json.loads(err)["error"]["exit_code"] == 5


def test_an_interrupt_is_130_and_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(KeyboardInterrupt(), monkeypatch)
    assert run(["-vv", "fail"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_shell_completes_commands_without_loading_any() -> None:
    def ask(words: str, position: int) -> list[str]:
        code = (
            "import atexit, sys; from seamark.cli.app import run\n"
            "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); run()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ
            | {
                "_SEAMARK_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(position),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert "seamark.cli.list" not in done.stderr
        assert "rich" not in done.stderr.split()
        return [line.split(",")[1] for line in done.stdout.splitlines()]

    assert ask("seamark ", 1) == list(COMMANDS)
    assert ask("seamark ver", 1) == ["verify", "version"]
    assert "--json" in ask("seamark --", 1)


def test_the_script_for_a_shell_can_be_asked_for() -> None:
    done = seamark(_SEAMARK_COMPLETE="zsh_source")
    assert done.returncode == 0
    assert "#compdef seamark" in done.stdout


def on_a_terminal(code: str, **environment: str) -> str:
    """Run Python with stdout and stderr on a terminal, and return what it showed."""
    ours, theirs = pty.openpty()
    cleared = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=theirs,
        stderr=theirs,
        env=cleared | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux says end of file on a terminal this way
        pass
    finally:
        os.close(ours)
    assert child.wait() == 0
    return shown.decode()


PRINT_AN_ERROR = (
    "from seamark.cli.error_report import print_error; from seamark.errors import DamageError;"
    "print_error(DamageError('state.bin is damaged'))"
)


def test_colours_are_there_on_a_terminal_and_gone_with_no_color() -> None:
    assert "\x1b[1;31merror:\x1b[0m" in on_a_terminal(PRINT_AN_ERROR)
    # bold is no colour; what must go is red
    assert "31m" not in on_a_terminal(PRINT_AN_ERROR, NO_COLOR="1")


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'rich' else real(n, *a)\n"
        "from seamark.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'seamark[cli]'" in done.stderr
