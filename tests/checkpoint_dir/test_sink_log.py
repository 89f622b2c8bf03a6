from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.file_logs.compactions import (
    is_accepted,
    parse_names,
    restart_interval,
    text_of,
)
from seamark.checkpoint_dir.file_logs.sink_log import (
    SinkRewind,
    begun_after,
    rewound,
    with_empty_batch,
)
from seamark.errors import DamageError, RefusedError
from tests.checkpoint_dir.support.samples import log_sample, reader_of

SPARKS = log_sample("logs/sink")
CLEANED = log_sample("logs-cleaned/sink")


def line(batch: int, part: int = 0) -> str:
    return f'{{"path":"file:///out/{batch}-{part}","size":9,"isDir":false,"action":"add"}}'


def own(batch: int) -> list[str]:
    return [line(batch, part) for part in range(batch % 3)]


def log_of(count: int, interval: int) -> dict[str, str]:
    log: dict[str, str] = {}
    for at in range(count):
        if (at + 1) % interval == 0:
            log[f"{at}.compact"] = text_of(one for batch in range(at + 1) for one in own(batch))
        else:
            log[str(at)] = text_of(own(at))
    return log


def done(log: dict[str, str], rewind: SinkRewind) -> dict[str, str]:
    left = {**log, **rewind.write}
    for name in rewind.remove:
        del left[name]
    assert set(left) - set(rewind.write) - set(rewind.keep) <= {n for n in log if n[0] == "."}
    return left


def listed(log: dict[str, str]) -> list[str]:
    names = parse_names(log)
    base = names.compacted[-1] if names.compacted else -1
    entries = [*([f"{base}.compact"] if base >= 0 else [])]
    entries += [str(at) for at in names.plain if at > base]
    return [one for name in entries for one in log[name].split("\n")[1:]]


def paths(lines: list[str]) -> list[str]:
    return [one.split('"')[3] for one in lines]


@pytest.mark.parametrize("to_batch", range(-1, 8))
def test_a_log_of_spark_goes_back_to_every_batch_that_it_still_has(to_batch: int) -> None:
    rewind = rewound(SPARKS.keys(), reader_of(SPARKS), to_batch)
    left = listed(done(SPARKS, rewind))
    assert left == listed(SPARKS)[: to_batch + 1]
    assert list(rewind.unlisted) == paths(listed(SPARKS)[to_batch + 1 :])


def test_the_newest_entries_go_first_so_that_a_crash_leaves_no_gap() -> None:
    rewind = rewound(SPARKS.keys(), reader_of(SPARKS), 3)
    assert rewind.remove == ("7", "6", "5.compact", "4")
    assert rewind.keep == ("0", "1", "2.compact", "3")
    assert rewind.write == {}


def test_what_a_compaction_has_swallowed_is_refused_with_what_can_be_done() -> None:
    with pytest.raises(RefusedError, match="entry 0 is gone") as told:
        rewound(CLEANED.keys(), reader_of(CLEANED), 4)
    assert told.value.hint is not None
    assert "batch 5 to 7;" in told.value.hint
    assert "--new-file-sink OUT" in told.value.hint
    assert rewound(CLEANED.keys(), reader_of(CLEANED), 5).remove == ("7", "6")


def test_a_gap_is_refused_and_both_sides_of_it_are_named() -> None:
    log = log_of(25, 10)
    del log["13"]
    with pytest.raises(RefusedError, match="entry 13 is gone") as told:
        rewound(log.keys(), reader_of(log), 15)
    assert "batch 0 to 12, 19 to 24;" in str(told.value.hint)


def test_a_log_that_does_not_reach_the_batch_is_refused() -> None:
    with pytest.raises(RefusedError, match="ends at batch 7"):
        rewound(SPARKS.keys(), reader_of(SPARKS), 8)
    with pytest.raises(RefusedError, match="ends at batch -1"):
        rewound([], reader_of({}), 0)


def test_going_back_to_where_the_log_ends_changes_nothing() -> None:
    rewind = rewound(SPARKS.keys(), reader_of(SPARKS), 7)
    assert (rewind.remove, rewind.write, rewind.unlisted) == ((), {}, ())


def test_a_batch_that_wrote_no_file_is_an_entry_all_the_same() -> None:
    log = log_of(4, 10)
    assert log["3"] == "v1"
    assert rewound(log.keys(), reader_of(log), 2).remove == ("3",)


@pytest.mark.parametrize("torn", ["", "v1\n\n", "v1\n{", "v2", 'v1\n{"path":"file:///x"}'])
def test_a_torn_entry_is_told(torn: str) -> None:
    log = log_of(8, 10) | {"4": torn}
    with pytest.raises(DamageError):
        rewound(log.keys(), reader_of(log), 6)


@given(
    count=st.integers(1, 90),
    interval=st.sampled_from([1, 2, 3, 7, 10, 30]),
    cleaned=st.integers(0, 90),
    back=st.integers(0, 90),
)
def test_a_restart_finds_every_entry_that_is_left(
    count: int, interval: int, cleaned: int, back: int
) -> None:
    log = log_of(count, interval)
    newest = max(parse_names(log).compacted, default=-1)
    below = (min(cleaned, newest + 1) // interval) * interval - 1
    log = {name: text for name, text in log.items() if int(name.partition(".")[0]) >= below}
    last = count - 1 - min(back, count - 1)
    try:
        rewind = rewound(log.keys(), reader_of(log), last)
    except RefusedError:
        assert last < below
        return
    left = done(log, rewind)
    assert listed(left) == [one for batch in range(last + 1) for one in own(batch)]
    if last != count - 1:
        assert is_accepted(parse_names(left).compacted, last)


def test_a_forgotten_setting_does_not_make_the_log_that_is_left_unreadable() -> None:
    log = log_of(70, 30)
    rewind = rewound(log.keys(), reader_of(log), 45)
    assert list(rewind.write) == ["39.compact"]
    assert "39" in rewind.remove


@given(
    count=st.integers(1, 90),
    interval=st.sampled_from([1, 2, 3, 7, 10, 30]),
    cleaned=st.integers(0, 90),
)
def test_an_empty_batch_is_an_entry_that_a_restart_finds_and_a_way_back_takes_out(
    count: int, interval: int, cleaned: int
) -> None:
    log = log_of(count, interval)
    newest = max(parse_names(log).compacted, default=-1)
    below = (min(cleaned, newest + 1) // interval) * interval - 1
    log = {name: text for name, text in log.items() if int(name.partition(".")[0]) >= below}
    change = with_empty_batch(log.keys(), reader_of(log), count, interval)
    left = done(log, change)
    assert parse_names(left).newest == count
    assert listed(left) == listed(log)
    assert is_accepted(parse_names(left).compacted, count, interval)
    again = with_empty_batch(left.keys(), reader_of(left), count, interval)
    assert (again.write, again.remove) == ({}, ())
    back = rewound(left.keys(), reader_of(left), count - 1)
    assert set(back.remove) >= set(change.write)
    assert back.unlisted == ()
    assert listed(done(left, back)) == listed(log)


@pytest.mark.parametrize(
    ("count", "interval", "name"),
    [
        (5, 10, "5"),
        (9, 10, "9.compact"),
        (19, 10, "19.compact"),
        (25, 3, "25"),
        (26, 3, "26.compact"),
        (5, 3, "5.compact"),  # one compaction, at 2, tells as much as two
        (39, 30, "39.compact"),  # right for both: 30 as before, and 10 as without a setting
        (45, 30, "45"),
        (59, 30, "59.compact"),
    ],
)
def test_without_a_setting_the_log_tells_whether_a_batch_is_compacted(
    count: int, interval: int, name: str
) -> None:
    log = log_of(count, interval)
    assert list(with_empty_batch(log.keys(), reader_of(log), count).write) == [name]


def test_an_empty_batch_is_refused_where_it_is_not_the_next_one_or_spark_could_not_go_on() -> None:
    log = log_of(14, 10)
    for batch in (12, 15, 0):
        with pytest.raises(RefusedError, match="ends at batch 13"):
            with_empty_batch(log.keys(), reader_of(log), batch)
    with pytest.raises(RefusedError, match="another entry of batch 13 already: 13"):
        with_empty_batch(log.keys(), reader_of(log), 13)
    del log["12"]
    with pytest.raises(RefusedError, match="entry 12 of the sink's log is gone") as told:
        with_empty_batch(log.keys(), reader_of(log), 14)
    assert "--to-batch 13 --new-file-sink OUT" in str(told.value.hint)
    log = log_of(15, 10)
    with pytest.raises(RefusedError, match="with an interval of 4"):
        with_empty_batch(log.keys(), reader_of(log), 15, 4)


@pytest.mark.parametrize("torn", ["", "v1\n\n", "v1\n{", "v2", 'v1\n{"path":"file:///x"}'])
def test_a_torn_entry_is_not_compacted(torn: str) -> None:
    log = log_of(8, 3) | {"7": torn}
    with pytest.raises(DamageError):
        with_empty_batch(log.keys(), reader_of(log), 8)


@given(last=st.integers(2, 300), setting=st.integers(1, 100), batches=st.integers(1, 40))
def test_a_new_folder_has_what_spark_asks_for_with_every_setting(
    last: int, setting: int, batches: int
) -> None:
    log = dict(begun_after([], reader_of({}), last).write)
    assert is_accepted(parse_names(log).compacted, last, setting)
    interval = restart_interval(parse_names(log).compacted, setting)
    for batch in range(last + 1, last + 1 + batches):
        if (batch + 1) % interval == 0:
            for at in range(max(batch - interval, 0), batch):
                assert (f"{at}.compact" if (at + 1) % interval == 0 else str(at)) in log
            log[f"{batch}.compact"] = ""
        else:
            log[str(batch)] = ""


@given(last=st.integers(0, 60), written=st.integers(0, 12))
def test_a_new_folder_is_finished_where_an_earlier_run_ended(last: int, written: int) -> None:
    whole = dict(begun_after([], reader_of({}), last).write)
    part = dict(list(whole.items())[:written])
    assert part | dict(begun_after(part.keys(), reader_of(part), last).write) == whole
    with pytest.raises(RefusedError, match="not new"):
        begun_after(["1000"], reader_of({"1000": "v1"}), last)
    if part:
        used = part | {min(part): f"v1\n{line(0)}"}
        with pytest.raises(RefusedError, match=f"not new.*entry {min(part)}"):
            begun_after(used.keys(), reader_of(used), last)
