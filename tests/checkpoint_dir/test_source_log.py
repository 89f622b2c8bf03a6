from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.file_logs.compactions import is_accepted, parse_names, text_of
from seamark.checkpoint_dir.file_logs.source_log import (
    entries_up_to,
    escaped,
    is_file_log,
    log_problems,
    moved,
)
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import DamageError
from tests.checkpoint_dir.support.samples import log_sample, reader_of
from tests.support.counted_lines import lines_run

SPARKS = log_sample("logs/source")
CLEANED = log_sample("logs-cleaned/source")


def line(number: int, part: int = 0) -> str:
    return f'{{"path":"file:///in/{number}-{part}","timestamp":{number},"batchId":{number}}}'


def own(number: int) -> list[str]:
    return [line(number, part) for part in range(1 + number % 2)]


def entry(number: int) -> str:
    return text_of(own(number))


def compaction(number: int) -> str:
    return text_of(line for at in range(number + 1) for line in own(at))


def log_of(count: int, interval: int) -> dict[str, str]:
    """What a query with that setting has written, before anything is cleaned up."""
    return {
        f"{at}.compact" if (at + 1) % interval == 0 else str(at): compaction(at)
        if (at + 1) % interval == 0
        else entry(at)
        for at in range(count)
    }


def without(log: dict[str, str], below: int) -> dict[str, str]:
    """The log after Spark has removed what is older than a compaction."""
    return {name: text for name, text in log.items() if int(name.partition(".")[0]) >= below}


def cut(log: dict[str, str], last: int) -> dict[str, str]:
    return entries_up_to(log.keys(), last, reader_of(log))


def problems(log: dict[str, str]) -> list[tuple[str, str]]:
    return [(found.code, found.name) for found in log_problems(log.keys(), reader_of(log))]


def is_whole(log: dict[str, str], last: int) -> bool:
    """Whether a reader finds exactly the lines of all entries up to the last."""
    names = parse_names(log)
    base = names.compacted[-1] if names.compacted else -1
    kept = [*([f"{base}.compact"] if base >= 0 else []), *(str(at) for at in names.plain)]
    lines = [found for name in kept for found in log[name].split("\n")[1:]]
    return lines == compaction(last).split("\n")[1:] and names.newest == last


# what Spark wrote


def test_nothing_is_wrong_with_the_logs_of_spark() -> None:
    assert problems(SPARKS) == []
    assert problems(CLEANED) == []


def test_of_a_log_of_spark_only_what_a_restart_needs_is_taken() -> None:
    found = cut(SPARKS, 7)
    assert sorted(found) == ["2.compact", "5.compact", "6", "7"]
    assert all(found[name] == SPARKS[name] for name in found)


@pytest.mark.parametrize("last", range(8))
def test_what_spark_has_removed_is_made_again_byte_for_byte(last: int) -> None:
    rebuilt = cut(CLEANED, last)
    for name, text in rebuilt.items():
        if name in SPARKS:
            assert text == SPARKS[name]
    assert log_problems(rebuilt.keys(), reader_of(rebuilt)) == []


def test_before_the_first_entry_nothing_is_needed() -> None:
    assert cut(SPARKS, -1) == {}
    assert cut({}, -1) == {}


# intervals


def test_without_a_compaction_all_entries_are_needed() -> None:
    assert cut(log_of(8, 10), 5) == {str(at): entry(at) for at in range(6)}


@given(
    count=st.integers(1, 90),
    interval=st.sampled_from([1, 2, 3, 5, 7, 10, 30]),
    cleaned=st.integers(0, 90),
    back=st.integers(0, 90),
)
def test_a_restart_finds_every_entry_whatever_was_cleaned_up(
    count: int, interval: int, cleaned: int, back: int
) -> None:
    log = log_of(count, interval)
    newest = max(parse_names(log).compacted, default=-1)
    below = (min(cleaned, newest + 1) // interval) * interval - 1
    log = without(log, below)
    last = count - 1 - min(back, count - 1)
    found = cut(log, last)
    assert is_whole(found, last)
    compacted = parse_names(found).compacted
    if last < newest and last >= 2:
        # what was cut off no longer tells the interval: the default and the old one must do
        assert is_accepted(compacted, last), (sorted(found), last)
        assert is_accepted(compacted, last, interval) or interval > last
    for name, text in found.items():
        assert text == log.get(name, text), "an entry that is there is taken as it is"


def test_a_forgotten_setting_does_not_make_a_restored_log_unreadable() -> None:
    # written with an interval of 30: from one compaction alone a default restart works out 10
    found = cut(log_of(70, 30), 45)
    assert is_whole(found, 45)
    for setting in range(1, 60):
        assert is_accepted(parse_names(found).compacted, 45, setting)


def test_two_compactions_tell_the_interval_whatever_the_setting() -> None:
    found = cut(log_of(36, 7), 33)
    assert [name for name in found if name.endswith("compact")] == ["20.compact", "27.compact"]
    for setting in range(1, 60):
        assert is_accepted((20, 27), 33, setting)


# what cannot be done


@pytest.mark.parametrize("last", [5, 12])
def test_a_missing_entry_is_never_passed_over(last: int) -> None:
    log = log_of(14, 10)
    del log[str(last)]
    if last == 12:
        with pytest.raises(MissingVersion, match="entry 12"):
            cut(log, 13)
    else:
        assert is_whole(cut(log, 8), 8), "the compaction after it still has it"


def test_going_on_from_beyond_the_end_is_refused() -> None:
    with pytest.raises(MissingVersion, match="entry 8"):
        cut(log_of(8, 10), 8)
    with pytest.raises(MissingVersion, match="entry 0"):
        cut({}, 0)


@pytest.mark.parametrize(
    ("torn", "why"),
    [
        ("", "is empty"),
        ("v1", "no line of entry 3"),
        ("v2\n" + line(3), "begins with 'v2'"),
        ("v1\n" + line(3)[:-4], "line 2"),
        ("v1\n" + line(3) + "\n\n", "line 3"),
        ("v1\n" + line(4), "no line of entry 3"),
        ("v1\n" + line(3) + "\n" + line(4), "not its own"),
        ('v1\n{"path":3,"timestamp":0,"batchId":3}', "line 2"),
    ],
)
def test_a_torn_entry_is_told_and_not_stored(torn: str, why: str) -> None:
    log = log_of(8, 10) | {"3": torn}
    with pytest.raises(DamageError, match=why):
        cut(log, 7)
    assert problems(log) == [("source-log-damaged", "3")]


def test_a_compaction_that_lost_lines_is_told_and_not_stored() -> None:
    log = log_of(14, 10)
    lines = log["9.compact"].split("\n")
    log["9.compact"] = "\n".join(found for found in lines if '"batchId":4}' not in found)
    with pytest.raises(DamageError, match="no line of entry 4"):
        cut(log, 13)
    assert problems(log) == [("source-log-damaged", "9.compact")]


# what is told


def test_a_gap_that_a_restart_would_meet_is_told() -> None:
    log = log_of(14, 10)
    del log["11"]
    assert problems(log) == [("source-log-gap", "11")]
    log = log_of(5, 10)
    del log["0"]
    assert problems(log) == [("source-log-gap", "0")]


def test_what_a_compaction_has_replaced_may_be_missing() -> None:
    log = log_of(14, 10)
    del log["4"]
    assert problems(log) == []
    assert problems(without(log_of(64, 10), 49)) == []
    assert problems({}) == []


@pytest.mark.parametrize("interval", [1, 3, 10, 30])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 29, 45, 61])
def test_nothing_is_told_of_a_healthy_log_of_any_interval(interval: int, count: int) -> None:
    assert problems(log_of(count, interval)) == []


def test_an_entry_that_differs_from_its_compaction_is_told() -> None:
    log = log_of(24, 10)
    log["12"] = text_of([line(12, 7)])
    assert problems(log) == [("source-log-disagrees", "12")]
    log = log_of(24, 10)
    log["9.compact"] = log["9.compact"].replace("/in/4-0", "/in/other")
    assert problems(log) == [("source-log-disagrees", "9.compact")]


def test_a_lost_compaction_that_no_setting_makes_up_for_is_told() -> None:
    log = log_of(24, 5) | {"14": entry(14)}
    del log["14.compact"], log["19.compact"]
    assert ("source-log-interval", "9.compact") in problems(log | {"19": entry(19)})


# paths


def test_paths_move_and_stay_escaped_as_spark_writes_them() -> None:
    there = moved(SPARKS["1"], {"/tmp/spark-state-samples/in put": "s3a://raw/50% new"})
    assert json.loads(there.split("\n")[1])["path"] == "s3a://raw/50%25%20new/1%2050%25%20ü.json"
    back = moved(there, {"s3a://raw/50% new/": "file:/tmp/spark-state-samples/in put"})
    assert back == SPARKS["1"]


def test_a_path_moves_at_a_slash_only_and_by_its_longest_beginning() -> None:
    text = text_of(['{"path":"file:///in/a/b","timestamp":0,"batchId":0}'])
    assert moved(text, {"/in/a/": "/x"}) == text.replace("/in/a/b", "/x/b")
    assert moved(text, {"/i": "/x", "/in/a/bc": "/x", "s3://in": "/x"}) == text
    assert moved(text, {"/in": "/x", "/in/a": "/y"}) == text.replace("/in/a/b", "/y/b")
    assert moved(text, {"/": "hdfs://host:9/y"}) == text.replace("file://", "hdfs://host:9/y")


def test_what_other_sources_have_noted_is_not_touched() -> None:
    for text in ("v1\n1767225600000", 'v1\n{"trades":{"0":17}}', 'v1\n{"path":{"0":17}}', "", "v1"):
        assert moved(text, {"/": "/x"}) == text
        assert not is_file_log(text)
    assert is_file_log(SPARKS["0"])


def test_folders_are_escaped_as_java_does() -> None:
    assert escaped("/a b/é/100%/[x]#?") == "file:///a%20b/é/100%25/%5Bx%5D%23%3F"
    assert escaped("file:///a/b=c,d;e@f:g/") == "file:///a/b=c,d;e@f:g"


def test_of_very_many_compactions_the_one_that_has_an_entry_is_not_searched_for_each_entry() -> (
    None
):
    def taken(interval: int) -> int:
        newest = 4 * interval - 3
        log = {f"{at}.compact": "" for at in range(3 * interval - 2)}
        for at in (2 * interval - 1, newest):
            log[f"{at}.compact"] = text_of(line(number) for number in range(at + 1))
        names = log.keys()
        return lines_run(lambda: entries_up_to(names, newest - 1, reader_of(log)))

    assert taken(404) < 3 * taken(200)
