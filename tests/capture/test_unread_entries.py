"""A restored directory has Spark read nothing but what it plans itself, or was planned to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.capture.declared_inputs import DeclaredInput
from seamark.capture.gap_lines import apply_gaps
from seamark.capture.unread_entries import (
    forget_undeclared,
    forget_unread,
    plan_again,
    require_declared_batch,
)
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import Plan
from seamark.spark.kafka.subscriptions import Subscription

INSIDE, OUTSIDE = "file:///data/in", "file:///home/secret"
FILES = DeclaredInput("rows", "file:/data/in", (0,))
OTHER = DeclaredInput("rows", None, (0,))


def line(number: int, folder: str = INSIDE) -> str:
    return f'{{"path":"{folder}/{number}","timestamp":1,"batchId":{number}}}'


def restored(folder: Path, *entries: str, at: str = '{"logOffset":1}', batch: int = 1) -> LocalCopy:
    copy = LocalCopy(str(folder))
    copy.write(f"offsets/{batch - 1}", b'v1\n{}\n{"logOffset":0}')
    copy.write(f"offsets/{batch}", f"v1\n{{}}\n{at}".encode())
    copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    for name in entries:
        number = int(name.split(".")[0].lstrip("+"))
        lines = [line(n) for n in range(number + 1)] if "compact" in name else [line(number)]
        copy.write(f"sources/0/{name}", "\n".join(["v1", *lines]).encode())
    return copy


def entries(copy: LocalCopy) -> set[str]:
    return {path.removeprefix("sources/0/") for path in copy.files_below("sources")}


def test_what_a_file_source_has_noted_after_the_batch_is_removed(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0", "1", "2", "3", "9.compact", "02", "+2")
    forget_unread(copy, 1, [FILES])
    assert entries(copy) == {"0", "1"}


def test_a_whole_log_stays_as_it_is(tmp_path: Path) -> None:
    copy = restored(tmp_path, "9.compact", "19.compact", "20", at='{"logOffset":20}')
    forget_unread(copy, 1, [FILES])
    assert entries(copy) == {"9.compact", "19.compact", "20"}


def test_of_a_source_that_has_read_nothing_no_file_is_noted(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0", at="-")
    forget_unread(copy, 1, [OTHER])
    assert entries(copy) == {"0"}  # other sources note where they began
    forget_unread(copy, 1, [FILES])
    assert entries(copy) == set()


def test_formats_of_others_are_followed_by_their_offsets(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0", "2")
    copy.write("sources/0/notes", b"any")
    forget_unread(copy, 1, [OTHER])
    assert entries(copy) == {"0", "notes"}


@pytest.mark.parametrize("name", ["1", "1.compact"])
@pytest.mark.parametrize(
    "odd",
    [
        line(2, OUTSIDE),
        line(2, OUTSIDE).replace('"batchId":2', '"batchId": 2'),
        line(1, OUTSIDE).replace("}", ',"batchId":2}'),
        line(2, OUTSIDE).replace("batchId", "batch\\u0049d"),
        "nonsense",
    ],
)
def test_an_entry_that_has_read_lines_of_a_later_one_is_damage(
    tmp_path: Path, name: str, odd: str
) -> None:
    copy = restored(tmp_path, "0", name)
    copy.write(f"sources/0/{name}", "\n".join(["v1", line(1), odd]).encode())
    with pytest.raises(DamageError, match=r"sources/0/1(\.compact)? holds a line"):
        forget_unread(copy, 1, [FILES])


@pytest.mark.parametrize("text", [b"v1\n\xff", f"v1\n{line(0)}".encode()])
def test_an_entry_that_is_no_text_or_another_one_is_damage(tmp_path: Path, text: bytes) -> None:
    copy = restored(tmp_path, "0")
    copy.write("sources/0/1", text)
    with pytest.raises(DamageError, match=r"sources/0/1 (is not a text|holds a line of entry 0)"):
        forget_unread(copy, 1, [FILES])


def test_of_a_batch_whose_plan_is_torn_nothing_is_read(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0", "1")
    copy.write("offsets/1", b"v1")
    with pytest.raises(DamageError, match="what batch 1 reads is not known"):
        require_declared_batch(copy, 1, [FILES])


def test_where_a_source_is_not_known_its_log_stays_up_to_the_last_entry_that_was_read(
    tmp_path: Path,
) -> None:
    copy = restored(tmp_path, "0", "1", "2", at='{"logOffset":1}\n{"logOffset":0}')
    forget_unread(copy, 1, [None, OTHER._replace(lines=(1,))])
    assert entries(copy) == {"0", "1"}


def test_a_batch_that_runs_again_reads_only_what_is_declared(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0")
    copy.write("sources/0/1", "\n".join(["v1", line(1, OUTSIDE)]).encode())
    forget_unread(copy, 1, [FILES])
    copy.remove("commits/1")
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a file"):
        forget_unread(copy, 1, [FILES])
    copy.remove("sources/0/1")
    with pytest.raises(DamageError, match="reads entries 1 to 1 of the log sources/0"):
        require_declared_batch(copy, 1, [FILES])


def test_a_checkpoint_without_the_offsets_of_its_batch_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="lacks 'offsets/2'"):
        forget_unread(restored(tmp_path, "0"), 2, [FILES])


def test_of_a_directory_of_any_query_entries_after_the_batch_are_removed(tmp_path: Path) -> None:
    copy = restored(tmp_path, "0", "1", "2", "9.compact")
    forget_undeclared(copy, 1)
    assert entries(copy) == {"0", "1"}
    kafka = restored(tmp_path / "kafka", at='{"mine":{"0":4}}')
    kafka.write("sources/0/0", b'v1\n{"mine":{"0":0}}')
    forget_undeclared(kafka, 1)
    assert entries(kafka) == {"0"}


@pytest.mark.parametrize("batch", [0, 2])
def test_a_plan_takes_the_place_of_all_that_spark_has_noted_for_its_batch(
    tmp_path: Path, batch: int
) -> None:
    here = 0 if batch == 0 else 2
    spark = [f"{number}" for number in range(here, here + 3)]
    copy = restored(tmp_path, *([] if batch == 0 else ["0", "1"]), *spark)
    copy.write(f"offsets/{batch}", f'v1\n{{}}\n{{"logOffset":{here + 2}}}'.encode())
    earlier = Plan(f'v1\n{{}}\n{{"logOffset":{here}}}', {f"sources/0/{here}": f"v1\n{line(here)}"})
    plan_again(copy, batch, earlier, [FILES])
    assert entries(copy) == {f"{number}" for number in range(here + 1)}
    assert copy.read_text(f"offsets/{batch}") == earlier.offsets


def test_a_gap_of_a_later_epoch_does_not_change_a_plan_that_was_checked(tmp_path: Path) -> None:
    copy = restored(tmp_path)
    later = {"epoch": 2, "source": "rows", "line": '{"logOffset":9}'}
    assert not apply_gaps(copy, [later], ["rows"], 0)
    assert copy.read_text("offsets/1") == 'v1\n{}\n{"logOffset":1}'
    assert apply_gaps(copy, [later], ["rows"], 1)
    assert copy.read_text("offsets/1") == 'v1\n{}\n{"logOffset":9}'


def test_a_batch_that_runs_again_reads_only_declared_topics(tmp_path: Path) -> None:
    copy = restored(tmp_path, at='{"trades":{"0":1},"salaries":{"0":1}}')
    copy.write("offsets/0", b'v1\n{}\n{"trades":{"0":0}}')
    trades = DeclaredInput("rows", None, (0,), Subscription("", frozenset({"trades"})))
    forget_unread(copy, 1, [trades])  # a topic that is not read any more stays in old offsets
    copy.remove("commits/1")
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a topic"):
        forget_unread(copy, 1, [trades])
