"""One manifest that makes no sense is one row that says so: all others are told as ever."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark._common.json_documents import SELF_CHECKSUM, seal
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.cli.app import run
from seamark.errors import DamageError
from seamark.manifest import NAMED_FIELDS, SEAMARK_FIELDS
from seamark.native.snapshot import take_snapshot
from tests.cli.support.stores import Commands, fill, save, stored_manifest
from tests.native.support.growing import GrowingDirectory
from tests.native.support.tables import delta_table

ODD: list[Any] = [
    None, True, 0, -1, 2**63, 2**64, 1.5, 1e308, -1e308, "", "x", "²", "\x00\x1b[2J\n", "../x", "/",
    [], [[]], [1], [[2, 1]], [[1, 2**70]], [None], ["x"], {}, {"": 1}, {"x": "y"}, {"x": None},
    {"²": {"offsets": {"²": "²", "a٣": "1"}}}, {"sinks": 1}, {"sinks": {"bars": [1]}},
    {"bars": {"kind": []}}, {"offsets": {}}, {"x": 1e308, "y": 1e308}, {"x": [{}]},
]  # fmt: skip
RAW = ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "9" * 5000, '{"x": 1' + "0" * 400 + "}"]
"""JSON that Python could not have written."""

FIELDS = sorted((SEAMARK_FIELDS | NAMED_FIELDS) - {SELF_CHECKSUM})

COMMANDS = [
    ["list", "STORE"],
    ["list", "STORE", "--verify"],
    ["show", "STORE", "4"],
    ["show", "STORE", "3"],
    ["diff", "STORE", "3", "4"],
    ["verify", "STORE", "--read-data"],
    ["recover", "STORE", "--explain"],
    ["prune", "STORE", "--keep", "1"],
    ["rollback", "STORE", "2"],
    ["gc", "STORE"],
    ["sources", "STORE"],
    ["sources", "STORE", "--check"],
    ["cut", "STORE"],
    ["cut", "STORE", "--epoch", "4", "--for", "spark"],
    ["estimate", "STORE"],
    ["doctor", "STORE", "--read-only"],
    ["copy", "STORE", "NEW"],
]

READING_STRUCTURE = [
    words for words in COMMANDS if words[0] in ("cut", "show", "rollback", "sources")
]

RESTORES = [
    ["spark", "restore", "STORE", "latest", "NEW", "--query-id", "keep"],
    ["spark", "restore", "STORE", "1", "NEW", "--table", "TABLE"],
]


def odd_values() -> Iterator[str]:
    yield from map(json.dumps, ODD)
    yield from RAW


def replaced(document: bytes, field: str, value: str) -> bytes:
    """The document with one field changed, and the checksum that goes with it."""
    members = json.loads(document)
    members.pop(SELF_CHECKSUM)
    members[field] = "@@@"
    return seal(json.dumps(members).replace('"@@@"', value).encode())


@pytest.mark.parametrize("field", FIELDS)
def test_an_odd_value_in_any_field_is_an_answer_or_a_damaged_row(
    tmp_path: Path, field: str
) -> None:
    fill(tmp_path / "store")
    newest = stored_manifest(tmp_path / "store", 4)
    whole = newest.read_bytes()
    # all pairs of values and commands would take minutes
    others = COMMANDS[1:]
    for number, value in enumerate(odd_values()):
        newest.write_bytes(replaced(whole, field, value))
        chosen = [others[(number + len(field)) % len(others)]]
        if number % 3 == len(field) % 3:
            chosen.append(COMMANDS[0])
        for words in chosen:
            code, out, err = run_in(tmp_path, words, is_json=bool(number % 2))
            assert code in (0, 3, 4, 6), (words, value, code, err)
            if words[0] == "list" and not number % 2:
                told = [line.split()[:1] for line in out.splitlines()]
                assert ["3"] in told, (value, out, err)
                assert ["1"] in told, (value, out, err)


def run_in(root: Path, words: list[str], *, is_json: bool) -> tuple[int, str, str]:
    """Run a command on the store of a folder; nothing that it says is unexpected."""
    shutil.rmtree(root / "new", ignore_errors=True)
    given = [str(root / word.lower()) if word.isupper() else word for word in words]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*given, *(["--json"] if is_json else [])])
    told = out.getvalue(), err.getvalue()
    assert "should not have happened" not in "".join(told), (words, told)
    return code, *told


@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.parametrize("field", FIELDS)
def test_an_odd_value_in_a_snapshot_restores_or_says_why_it_does_not(
    tmp_path: Path, field: str
) -> None:
    GrowingDirectory(tmp_path / "query").run_batches(2)
    with open_store(tmp_path / "store") as store:
        take_snapshot(LocalDirectory(str(tmp_path / "query")), store)
    delta_table(tmp_path / "table", [None, ("q", 0)])
    newest = stored_manifest(tmp_path / "store", 1)
    whole = newest.read_bytes()
    for number, value in enumerate(odd_values()):
        newest.write_bytes(replaced(whole, field, value))
        words = RESTORES[(number // 2 + len(field)) % 2]
        code, _, err = run_in(tmp_path, words, is_json=bool(number % 2))
        # 1: a checkpoint without the id of a query, and --table
        assert code in (0, 1, 3, 4, 6), (words, value, code, err)


@pytest.mark.parametrize(
    ("offset", "written"),
    [
        ("5", "-1" + "0" * 400),
        ("5", "1" + "0" * 400),
        ("9" * 4300, "5"),
        ("1" + "0" * 400, "-5"),
    ],
    ids=["long ago", "far ahead", "very far", "far"],
)
@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_odd_offsets_and_times_of_kafka_are_no_fault_of_a_command(
    tmp_path: Path, words: list[str], offset: str, written: str
) -> None:
    """The values of several fields make sense together, and only one of them does not."""
    fill(tmp_path / "store")
    newest = stored_manifest(tmp_path / "store", 4)
    line = '{"trades":{"0":1,"1":1,"2":1}}'
    latest = "".join(f'\\"{part}\\":{offset},' for part in range(3)).rstrip(",")
    times = ",".join(f'"trades-{part}":{written}' for part in range(3))
    for field, value in {
        "source_offsets": json.dumps({"trades": {"metadata": {"line": line}}}),
        "source_latest": f'{{"trades":"{{\\"trades\\":{{{latest}}}}}"}}',
        "source_times": f'{{"trades":{{{times}}}}}',
    }.items():
        newest.write_bytes(replaced(newest.read_bytes(), field, value))
    code, _, err = run_in(tmp_path, words, is_json=False)
    assert code in (0, 3, 4, 6) or "does not say where source" in err, err


@pytest.mark.parametrize("value", [1, "x", [1], {"bars": 1}, {"bars": [1]}, None])
@pytest.mark.parametrize("part", ["sinks", "sources"])
@pytest.mark.parametrize("words", READING_STRUCTURE, ids=str)
def test_a_structure_that_describes_nothing_is_no_fault_of_a_command(
    tmp_path: Path, words: list[str], part: str, value: object
) -> None:
    fill(tmp_path / "store")
    for number in (3, 4):
        file = stored_manifest(tmp_path / "store", number)
        file.write_bytes(replaced(file.read_bytes(), "structure", json.dumps({part: value})))
    assert run_in(tmp_path, words, is_json=False)[0] == 0


@pytest.mark.parametrize("value", [5, "x", [1]])
def test_a_structure_that_is_none_is_a_damaged_row_and_no_start_goes_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: object
) -> None:
    fill(tmp_path / "store")
    newest = stored_manifest(tmp_path / "store", 4)
    newest.write_bytes(replaced(newest.read_bytes(), "structure", json.dumps(value)))
    run(["list", str(tmp_path / "store")])
    assert "its field 'structure' is not an object" in capsys.readouterr().out
    run(["recover", str(tmp_path / "store"), "--explain", "--json"])
    assert json.loads(capsys.readouterr().out)["chosen"]["id"] == 3


def test_timings_that_make_no_sense_cost_nothing_but_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "store")
    newest = stored_manifest(tmp_path / "store", 4)
    newest.write_bytes(replaced(newest.read_bytes(), "timings", '{"save": 1e300}'))
    run(["list", str(tmp_path / "store"), "--json"])
    assert json.loads(capsys.readouterr().out)["newest_valid"] == 4
    run(["show", str(tmp_path / "store"), "4"])
    assert "its field 'timings' is not an object of seconds" in capsys.readouterr().out


@pytest.mark.parametrize("generation", [7, 2**53])
@pytest.mark.parametrize("is_claimed_again", [False, True])
def test_one_manifest_of_a_generation_that_never_was_is_one_damaged_row(
    seamark: Commands, store: Path, generation: int, is_claimed_again: bool
) -> None:
    if is_claimed_again:
        with open_store(store) as found:
            found.claim()
    odd = stored_manifest(store, 2)
    odd.write_bytes(replaced(odd.read_bytes(), "generation", str(generation)))
    with open_store(store) as found:
        found.claim()
        save(found, 5, is_incremental=False, parent_id=None)
    rows = {row["id"]: row for row in seamark.json("list", store)["checkpoints"]}
    assert rows[5]["status"] == "valid"
    assert rows[1]["status"] == "valid"
    assert rows[2]["status"] == "damaged"
    checked = {row["id"]: row for row in seamark.json("verify", store, code=3)["checkpoints"]}
    assert f"it says generation {generation}" in str(checked[2])
    assert seamark.json("recover", store, "--explain")["chosen"]["id"] == 5
    seamark("show", store, 1)
    seamark("show", store, 2, code=3)
    seamark("copy", store, store.with_name("copy"), code=3)
    seamark("prune", store, "--keep", "1", "--yes")
    assert seamark.json("list", store)["newest_valid"] == 5


def test_a_newest_manifest_of_an_unknown_generation_puts_the_owner_in_doubt(
    seamark: Commands, store: Path
) -> None:
    odd = stored_manifest(store, 4)
    odd.write_bytes(replaced(odd.read_bytes(), "generation", "7"))
    seamark("recover", store, "--explain", code=3)
    assert "--rebuild-owner" in " ".join(seamark.err.split())
    for command in ("list", "verify"):
        found = seamark.json(command, store, code=3)
        assert [row["id"] for row in found["checkpoints"]] == [4, 3, 2, 1]
        assert found["checkpoints"][0]["status"] == "unreadable"
        assert {row["status"] for row in found["checkpoints"][1:]} <= {"valid", "ok"}
        shown = " ".join((seamark(command, store, code=3) + seamark.err).split())
        assert "checkpoint 4 was written by generation 7" in shown
        assert "--rebuild-owner" in shown
    assert seamark.json("list", store, code=3)["newest_valid"] is None
    with open_store(store) as found, pytest.raises(DamageError, match="too old"):
        found.claim()


@pytest.mark.parametrize("generation", [2**53 + 1, 2**63 - 1])
def test_a_generation_beyond_counting_is_damage_and_what_is_saved_later_is_found(
    seamark: Commands, store: Path, generation: int
) -> None:
    odd = stored_manifest(store, 4)
    odd.write_bytes(replaced(odd.read_bytes(), "generation", str(generation)))
    assert seamark.json("list", store)["newest_valid"] == 3
    with open_store(store) as found:
        found.claim()
        save(found, 5, is_incremental=False, parent_id=None)
        assert found.recover_latest_validated().chosen_id == 5


def test_an_owner_is_not_rebuilt_with_a_generation_that_nothing_could_follow(
    seamark: Commands, store: Path
) -> None:
    odd = stored_manifest(store, 4)
    odd.write_bytes(replaced(odd.read_bytes(), "generation", str(2**53)))
    seamark("doctor", store, "--rebuild-owner", "--yes", code=6)
    assert "Remove that manifest" in " ".join(seamark.err.split())
    odd.unlink()
    seamark.json("list", store)
