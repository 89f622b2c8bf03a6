from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.file_logs.compactions import is_accepted, parse_names, text_of
from seamark.checkpoint_dir.file_logs.sink_log import SinkRewind, rewound
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
