"""What is printed to be typed can be typed: no name in it is more than one word to a shell."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.audit.files import read_files
from seamark.audit.iceberg import read_iceberg
from seamark.audit.postgres import read_postgres
from seamark.cli.app import run
from seamark.manifest import CheckpointManifest
from seamark.sinks.read_point import ReadPoint
from tests.audit.test_expectations import checkpoint, history

ROOT = Path(__file__).parents[1]

_COMMAND = re.compile(r"(?:\bseamark|\baws|\bkafka-\w+\.sh) [a-z-][^\n]*|--[a-z-]+[ =]\0")
_QUOTING = re.compile(r"(?:shlex\.)?(?:quote|join)\(|option_naming\(")
_NO_NAMES = {
    "'|'.join(readers)",
    "after",
    "barrier.to_batch",
    "batch - 1",
    "begun",
    "both",
    "candidates[0].operator.number",
    "earlier",
    "earlier[-1]",
    "form",
    "given",
    "max(number - 1, 0)",
    "max(planned, 0)",
    "newest_id",
    "partitions",
    "planned - 1",
    "where",
    "words",
}
"""Numbers, words of ours, and what was quoted in a line above."""


def unquoted(path: Path) -> list[str]:
    """What is put into a command as it is, in the f-strings of a module."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            else:
                assert isinstance(part, ast.FormattedValue)
                text += "\0"
                values.append(ast.unparse(part.value))
        for command in _COMMAND.finditer(text):
            begin = text[: command.start()].count("\0")
            for value in values[begin : begin + command[0].count("\0")]:
                if _QUOTING.match(value) is None and value not in _NO_NAMES:
                    found.append(f"{path.name}:{node.lineno} {value}")
    return found


def test_every_name_in_a_command_that_is_printed_is_quoted() -> None:
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert [each for module in modules for each in unquoted(module)] == []


HOSTILE = ["bars$(touch${IFS}PWNED)", "a b", "it's", "`touch PWNED`", "x;touch PWNED", "*", ""]


def words_in(line: str, folder: Path) -> list[str]:
    """What a shell makes of a line; whatever the line has run would have left a file."""
    shell = ["sh", "-c", f"printf '%s\\0' {line}"]
    told = subprocess.run(shell, cwd=folder, capture_output=True, check=True)
    assert list(folder.iterdir()) == []
    return told.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["files", "postgres", "iceberg"])
def test_the_name_of_a_sink_stays_one_word_of_the_option_that_an_audit_prints(
    tmp_path: Path, name: str, kind: str
) -> None:
    known = replace(history(checkpoint(1)), columns=())  # Spark parses their types
    newest = known.newest
    if kind == "iceberg":
        at = {"metadata_location": "https://evil.invalid/v1.metadata.json"}
        newest = replace(newest, point=ReadPoint("iceberg", "db.t", at))
    sink = replace(known, sink=name, kind=kind, target="hdfs://evil/x", epochs=(newest,))
    spark: Any = None  # nothing is read
    if kind == "files":
        (shown,) = read_files(spark, sink, is_named=False)
    elif kind == "postgres":
        (shown,) = read_postgres(spark, sink, None)
    else:
        (shown,) = read_iceberg(spark, sink, {})
    option = re.search("--target .*", shown.note)
    assert option is not None
    told, target = words_in(option[0], tmp_path)
    assert (told, target.rpartition("=")[0]) == ("--target", name)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_store_and_a_pin_stay_words_of_the_command_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    store = str(tmp_path / f"store {name}")
    with open_store(store) as opened:
        opened.save(CheckpointManifest.new(1, epoch=1))
    assert run(["pin", store, "1", "a-pin"]) == 0
    undo = re.search("seamark unpin .*", capsys.readouterr().out.replace("\n", " "))
    assert undo is not None
    assert words_in(undo[0].rstrip(), folder) == ["seamark", "unpin", store, "a-pin"]
