"""The tool that continues Spark's own checkpoint directories and what is restored of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.native.support.inspected import make_hdfs, offsets, write
from tools import spark_continuations, spark_directories
from tools.continued_queries import QUERIES, Fitting, fitting_for
from tools.spark_continuations import (
    Asked,
    Outcome,
    Told,
    directories_below,
    log_entries,
    main,
    newest_commit,
    result_of,
    run_in_spark,
    table,
)
from tools.topics import positions

PLAIN = Fitting("count")
KNOWN = Fitting("sum-decimal", refused_by="ROW_FORMAT")
TOLD = Told(
    batches={"8": ["a", "b", "b"], "9": []},
    state={"0 left": ["x"], "0 right": []},
    logs={"offsets/8": [{"batchWatermarkMs": 0}, 1]},
)
REFUSED = Told(errors=["STREAM_FAILED", "STATE.ROW_FORMAT"], message="wrong")


def test_what_does_the_same_is_equal_in_whatever_order_its_rows_come() -> None:
    other = replace(TOLD, batches={"9": [], "8": ["b", "a", "b"]})
    assert result_of(PLAIN, TOLD, other) == "equal"


@pytest.mark.parametrize(
    ("restored", "reason"),
    [
        (replace(TOLD, batches={"8": ["a", "b"], "9": []}), "batch 8: 1 lost, 0 new"),
        (replace(TOLD, batches={"8": ["a", "a", "b"], "9": []}), "batch 8: 1 lost, 1 new"),
        (replace(TOLD, batches={"8": ["a", "b", "b"]}), "batch 9 is only in the original"),
        (replace(TOLD, batches={**TOLD.batches, "10": []}), "batch 10 is only in the restored"),
        (replace(TOLD, state={"0 left": ["y"], "0 right": []}), "state 0 left: 1 lost, 1 new"),
        (replace(TOLD, state={"0 left": ["x"]}), "state 0 right is only in the original"),
        (replace(TOLD, logs={"offsets/8": [{"batchWatermarkMs": 1}, 1]}), "log offsets/8: 1 lost"),
        (replace(TOLD, logs={"offsets/8": [{"batchWatermarkMs": 0}, 2]}), "log offsets/8: 1 lost"),
        (replace(TOLD, errors=["E"]), "no error on the original, E on the restored"),
    ],
)
@pytest.mark.parametrize("fit", [PLAIN, KNOWN])
def test_every_difference_is_told(fit: Fitting, restored: Told, reason: str) -> None:
    for one, other in ((TOLD, restored), (restored, TOLD)):
        result = result_of(fit, one, other)
        assert result.startswith("differs: ")
        assert Outcome("here", fit.query, result).is_bad
    assert reason in result_of(fit, TOLD, restored)


def test_an_error_counts_only_if_both_have_it_and_spark_is_known_to_give_it() -> None:
    known = result_of(KNOWN, REFUSED, REFUSED)
    assert known == "refused alike: STATE.ROW_FORMAT (wrong)"
    assert not Outcome("here", "sum-decimal", known).is_bad
    for fit in (PLAIN, replace(KNOWN, refused_by="OTHER")):
        result = result_of(fit, REFUSED, REFUSED)
        assert result.startswith("failed alike: ")
        assert Outcome("here", fit.query, result).is_bad
    elsewhere = replace(REFUSED, errors=["OTHER", "STATE.ROW_FORMAT"])
    assert result_of(KNOWN, REFUSED, elsewhere).startswith("differs: ")
    assert result_of(KNOWN, REFUSED, TOLD).startswith("differs: ")
    assert result_of(KNOWN, REFUSED, replace(REFUSED, batches={"8": []})).startswith("differs: ")


def test_queries_that_ran_nothing_show_nothing() -> None:
    result = result_of(PLAIN, Told(), Told())
    assert (result, Outcome("here", "count", result).is_bad) == ("failed alike: no batch ran", True)


def test_where_batches_are_missing_their_rows_are_compared_in_order() -> None:
    gaps = replace(PLAIN, has_gaps=True)
    original, restored = ({first: ["a"], second: ["b"]} for first, second in (("9", "10"), "78"))
    told = replace(TOLD, batches=original)
    assert result_of(gaps, told, replace(told, batches=restored)) == "equal but for batch numbers"
    assert result_of(PLAIN, told, replace(told, batches=restored)).startswith("differs: ")
    exchanged = replace(told, batches={"7": ["b"], "8": ["a"]})
    assert result_of(gaps, told, exchanged).startswith("differs: batch 0")
    assert result_of(gaps, told, replace(told, state={})).startswith("differs: state 0 left")


def test_log_entries_are_compared_but_for_times_and_random_ids(tmp_path: Path) -> None:
    for place, time, uid in ((tmp_path / "a", 1, "u"), (tmp_path / "b", 2, "v")):
        write(place, "offsets/7", "older")
        write(place, "offsets/8", f'v1\n{{"batchWatermarkMs":5,"batchTimestampMs":{time}}}\n3')
        commit = {"nextBatchWatermarkMs": 5, "stateUniqueIds": {"0": [[uid]]}}
        write(place, "commits/8", f"v2\n{json.dumps(commit)}")
    entries = log_entries(tmp_path / "a", 7)
    assert entries == {
        "offsets/8": ["v1", {"batchWatermarkMs": 5}, 3],
        "commits/8": ["v2", {"nextBatchWatermarkMs": 5}],
    }
    assert entries == log_entries(tmp_path / "b", 7)


def test_the_logs_that_a_query_adds_to_begin_behind_its_newest_commit(tmp_path: Path) -> None:
    assert newest_commit(make_hdfs(tmp_path)) == 7
    assert newest_commit(tmp_path / "none") == -1


@pytest.mark.parametrize("provider", ["4.0.0/hdfs", "4.0.0/rocksdb", "4.0.0-checkpoint-v2/rocksdb"])
def test_each_directory_has_the_query_of_its_name(provider: str) -> None:
    for operator, query in (("agg", "count-pairs"), ("join2", "join"), ("limit", "limit")):
        found = fitting_for(f"some/where/checkpoint-version-{provider}/{operator}")
        assert found is not None
        assert (found.query, bool(found.settings)) == (query, "v2" in provider)
    assert fitting_for("some/where/else") is None


def test_each_query_that_a_directory_has_is_in_the_scala_file() -> None:
    text = Path(spark_continuations.__file__).with_suffix(".scala").read_text()
    assert [fit.query for fit in QUERIES.values() if f'case "{fit.query}"' not in text] == []


def test_a_directory_counts_if_it_was_restored(tmp_path: Path) -> None:
    make_hdfs(tmp_path / "deep/here/original")
    make_hdfs(tmp_path / "lost/original")
    shutil.copytree(tmp_path / "deep/here/original", tmp_path / "deep/here/restored")
    assert directories_below(tmp_path) == ["deep/here"]


def test_the_table_names_what_was_compared() -> None:
    unread = replace(TOLD, state={"0": ["unreadable: A", "unreadable: B"]})
    rows = [Outcome("one", "count", "equal", TOLD), Outcome("two", "-", "no query", unread)]
    lines = [line.split(maxsplit=5) for line in table(rows).splitlines()]
    assert lines[1] == ["one", "count", "2", "3", "1", "equal"]
    assert lines[2][4:] == ["unreadable:", "B  no query"]


def test_a_folder_without_any_is_an_error_and_a_name_without_query_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    for copy in ("original", "restored"):
        make_hdfs(tmp_path / "unheard" / copy)
    assert main([str(tmp_path)]) == 0
    assert "no query: none is known for this name" in capsys.readouterr().out


def test_what_kafka_had_given_is_in_the_newest_entry(tmp_path: Path) -> None:
    write(tmp_path, "offsets/0", offsets(0))
    write(tmp_path, "offsets/10", 'v1\n{}\n{"words":{"1":3,"0":2}}')
    assert positions(tmp_path) == ("words", {0: 2, 1: 3})


def _read_again(root: Path) -> None:
    """The newest batch forgets that it read its rows."""
    newest = root / "offsets/3"
    _change(newest, newest.read_bytes()[:-1] + b"2")


def _older_state(root: Path) -> None:
    """A partition forgets what the newest batch did to its state."""
    for partition in range(5):
        older = root / f"state/0/{partition}/3.delta"
        _change(root / f"state/0/{partition}/4.delta", older.read_bytes())


def _change(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    for sums in file.parent.glob(f".{file.name}*crc"):
        sums.unlink()


@pytest.mark.slow
@pytest.mark.spark
def test_a_restored_directory_is_continued_equal_and_a_broken_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "4.0.0/hdfs/agg"
    made, kept = tmp_path / "made", tmp_path / "kept"
    (told,) = run_in_spark([Asked(QUERIES[name], made / name)], tmp_path / "making")
    assert told is not None
    assert (told.errors, len(told.batches)) == ([], 4)
    assert spark_directories.main([str(made), "--keep", str(kept)]) == 0
    for change in (_read_again, _older_state):
        shutil.copytree(kept / name, kept / change.__name__ / name)
        change(kept / change.__name__ / name / "restored")
    capsys.readouterr()
    assert main([str(kept)]) == 1
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines()[1:-1]}
    assert rows[name].endswith(" equal")
    assert "differs: batch 4: " in rows[f"_read_again/{name}"]
    assert "differs: batch 4: " in rows[f"_older_state/{name}"]
