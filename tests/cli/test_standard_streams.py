"""Closed and full streams, foreign encodings: a command still does and answers what it should."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.cli.app import run
from tests.cli.support.stores import manifest
from tests.cli.test_app import on_a_terminal


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``seamark`` with the redirections of a shell."""
    command = f"{shlex.quote(sys.executable)} -m seamark {line}"
    return subprocess.run(
        ["sh", "-c", command], env=os.environ | environment, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("list store >&-", 0),
        ("list store >&- 2>&-", 0),
        ("list nowhere 2>&-", 4),
        ("list nowhere 2>/dev/full", 4),
        ("list --nonsense 2>/dev/full", 2),
        ("list nowhere >/dev/full", 4),
    ],
)
def test_a_stream_that_is_closed_or_full_does_not_change_the_answer(
    store: Path, line: str, code: int
) -> None:
    done = shell(line)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("line", ["list store", "show store 1 --json", "--help"])
def test_output_that_is_lost_is_told_and_is_no_fault_of_seamark(store: Path, line: str) -> None:
    done = shell(f"{line} >/dev/full")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"fault of Seamark" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_letters_that_the_output_cannot_show_do_not_end_a_command(store: Path) -> None:
    from seamark import open_store

    with open_store(store) as found:
        found.save(manifest(5, sink_names=["日本"], sink_epochs={"日本": 5}))
    done = shell("show store 5", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert b"??" in done.stdout
    done = shell("show store 5 --json", PYTHONIOENCODING="latin-1")
    assert "日本" in json.loads(done.stdout.decode("latin-1"))["sinks"]


def test_an_interrupt_while_it_is_loaded_is_130_and_no_trace() -> None:
    code = (
        "import sys\n"
        "class Slow:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'seamark.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from seamark.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize(
    "words",
    [
        ["list", "x", "redis://:hunter2@host/0"],
        ["redis://user:hunter2@host"],
        ["list", "s3:/AKIA:hunter2@bucket/x"],
        ["list", "x", "aws_secret_access_key=hunter2"],
        ["verify", "x", "--seed", "redis://:hunter2@host/0"],
    ],
)
def test_a_password_in_a_mistyped_command_line_is_not_repeated(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    for line in (words, [*words, "--json"], ["--json", *words]):
        assert run(line) in (1, 2, 4)
        out, err = capsys.readouterr()
        assert "hunter2" not in out + err
        assert "***" in err


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--json"],
        ["list", "x", "--nonsense", "--json"],
        ["nonsense", "--json"],
        ["--json"],
        ["--json", "prune", "x", "--keep", "many"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_json_when_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run(words) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["exit_code"] == 2
    assert error["what"]
    assert set(error) == {"kind", "what", "where", "hint", "exit_code"}


@pytest.mark.parametrize("text", ["9" * 21, "9" * 5000, "18446744073709551616", "٣", "²"])
def test_a_number_that_no_checkpoint_has_is_not_found(
    capsys: pytest.CaptureFixture[str], store: Path, text: str
) -> None:
    assert run(["show", str(store), text]) == 4
    assert len(capsys.readouterr().err) < 500


def test_an_error_takes_the_width_of_the_terminal() -> None:
    code = (
        "from seamark.cli.error_report import print_error; from seamark.errors import DamageError;"
        "print_error(DamageError('word ' * 30))"
    )
    wide = on_a_terminal(code, COLUMNS="200", NO_COLOR="1").splitlines()
    narrow = on_a_terminal(code, COLUMNS="50", NO_COLOR="1").splitlines()
    assert len(wide) < len(narrow)


@pytest.mark.parametrize(
    ("words", "position"),
    [
        ("seamark list ", 2),
        ("seamark copy a ", 3),
        ("seamark sources ", 2),
        ("seamark spark inspect ", 3),
        ("seamark spark snapshot a ", 4),
        ("seamark spark state ", 3),
    ],
)
def test_a_shell_completes_the_paths_of_places(words: str, position: int) -> None:
    asked = {"_SEAMARK_COMPLETE": "bash_complete", "COMP_WORDS": words}
    done = shell("", COMP_CWORD=str(position), **asked)
    assert done.stdout.split(b",")[0] == b"dir", done


def test_every_argument_that_is_a_place_is_completed_as_one() -> None:
    import click

    from seamark.cli.app import app
    from seamark.cli.commands import PLACE

    def commands(group: click.Group) -> list[click.Command]:
        context = click.Context(group)
        found = [group.get_command(context, name) for name in group.list_commands(context)]
        known = [each for each in found if each is not None]
        return [c for k in known for c in (commands(k) if isinstance(k, click.Group) else [k])]

    places = {"store", "source", "target", "path", "url"}
    arguments = [
        (command.name, parameter)
        for command in commands(app)
        for parameter in command.params
        if isinstance(parameter, click.Argument) and parameter.name in places
    ]
    assert len(arguments) >= 24
    assert [name for name, parameter in arguments if parameter.type is not PLACE] == []
