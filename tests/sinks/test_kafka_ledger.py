"""What the ledger of a Kafka sink remembers, without a broker."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from seamark.errors import DamageError, FormatTooNewError, LineageError
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.columns import RecordColumns
from seamark.sinks.kafka.epoch_writer import EpochWriter, PreparedRecords
from seamark.sinks.kafka.kept_records import TopicsNow, require_kept
from seamark.sinks.kafka.ledger import KEPT_EPOCHS, Entry, Ledger, ledger_name, slot_of
from seamark.sinks.kafka.staging import RecordStaging
from seamark.sinks.kafka.transactions import Limits
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, receipt


def ledger() -> Ledger:
    return Ledger(KafkaCluster("127.0.0.1:1"), "ledger", PIPELINE, SINK)


def entry(number: int, shard: int = 0) -> Entry:
    return Entry(receipt(number, f"a{number}"), shard, 7, {"t": {0: number}})


@pytest.mark.parametrize(
    "names", [("t", "p", "s"), (None, "p", "s"), ("t" * 249, "p" * 300, "s"), ("t", "a/b ü", "s")]
)
def test_the_name_of_a_ledger_is_one_that_kafka_takes(names: tuple[str | None, str, str]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", ledger_name(*names))


def test_no_two_outputs_share_a_ledger() -> None:
    outputs = [("a.b", "c", "d"), ("a", "b.c", "d"), ("a", "b", "c.d"), (None, "a.b", "c.d")]
    outputs += [("t", "a/b", "s"), ("t", "a_b", "s")]
    assert len({ledger_name(*output) for output in outputs}) == len(outputs)


def test_an_entry_is_read_as_it_was_written() -> None:
    read = ledger()
    for number in (1, 2):
        read._take(0, msgspec.json.encode(entry(number)))
    assert read.entry(0, 1) == entry(1)
    assert read.newest() == entry(2)
    assert read.entry(1, 1) is None


def test_another_outputs_entries_and_tombstones_are_passed_over() -> None:
    read = ledger()
    other = msgspec.structs.replace(receipt(1, "a1"), sink="other")
    read._take(0, msgspec.json.encode(Entry(other, 0, 7)))
    read._take(0, None)
    assert read.newest() is None


def test_it_remembers_as_many_epochs_as_compaction_keeps() -> None:
    read = ledger()
    for number in range(1, KEPT_EPOCHS + 3):
        read.note(entry(number))
    assert read.entry(0, 2) is None
    assert read.entry(0, 3) == entry(3)
    slots = {slot_of(receipt(number, "a"), 0) for number in range(1, 10 * KEPT_EPOCHS)}
    assert len(slots) == KEPT_EPOCHS


def test_what_cannot_be_read_is_an_error_and_not_an_epoch_that_is_missing() -> None:
    for value in (
        b"{",
        b'{"x":' + b"[" * 100_000,
        b'{"\xff":1}',
        b'{"receipt":{"pipeline":"\xff"}}',
    ):
        with pytest.raises(DamageError, match="cannot be read"):
            ledger()._take(0, value)
    with pytest.raises(FormatTooNewError):
        ledger()._take(0, b'{"version":2}')


def test_the_newest_epoch_is_one_that_any_shard_has_shown() -> None:
    read = ledger()
    assert read.newest_part() is None
    for shown in (entry(1), entry(1, shard=1), entry(2, shard=1), entry(2, shard=3)):
        read.note(shown)
    assert read.newest() == entry(1)
    assert read.newest_part() == entry(2, shard=1)
    assert read.parts(2) == [entry(2, shard=1), entry(2, shard=3)]
    read.note(entry(2))
    assert read.newest_part() == entry(2)


def test_the_rest_of_an_epoch_is_shared_as_what_is_there(tmp_path: Path) -> None:
    """With other shares some rows would come twice, and others never."""
    cluster = KafkaCluster("127.0.0.1:1")
    columns = RecordColumns.of(None, "value", None, None, None)
    limits = Limits(transaction=1, patience=1)
    writer = EpochWriter(cluster, "t", columns, RecordStaging(tmp_path), limits, None)
    writer._ledger = ledger()
    about = receipt(1, "a1")
    names = ("timeline", "epoch", "fingerprint", "attempt")
    own = {name: getattr(about, name) for name in names}
    prepared = PreparedRecords(**own, digest="d", rows=7, shards=2, topic="t", topics=["t"])
    for earlier in (Entry(about, 1, 7), Entry(about, 1, 7, shards=2)):
        writer._ledger.note(earlier)
        with pytest.raises(DamageError, match=r"the rest is lost: .*it is gone"):
            writer.show(prepared)
    writer._ledger.note(Entry(about, 1, 7, shards=4))
    with pytest.raises(DamageError, match="2 shards share epoch 1, and shard 1 of 4 is there"):
        writer.show(prepared)


# whether a topic still has what was shown


def shown(ends: dict[int, int], **ids: str) -> Entry:
    return msgspec.structs.replace(entry(7), ends={"t": ends}, ids=ids)


@pytest.mark.parametrize(
    ("newest", "now"),
    [
        (None, TopicsNow({"t": {0: 0}}, {"t": "c/2"})),
        (shown({0: 5}, t="c/1"), TopicsNow({"t": {0: 5, 1: 3}}, {"t": "c/1"})),
        (shown({0: 5}, t="c/1"), TopicsNow({}, {})),  # refused when it is written to
        (shown({0: 5}, t="c/1"), TopicsNow({"t": {0: 5}}, {"t": "moved to/2"})),
        (shown({0: 5}), TopicsNow({"t": {0: 5}}, {"t": "c/1"})),  # of an earlier Seamark
        (shown({0: 5}, t="c/1"), TopicsNow({"t": {0: 5}}, {})),  # brokers without ids
        (shown({0: 0, 1: 0}, t="c/1"), TopicsNow({"t": {0: 0, 1: 0}}, {"t": "c/2"})),
    ],
)
def test_a_topic_that_can_have_all_that_was_shown_is_written_to(
    newest: Entry | None, now: TopicsNow
) -> None:
    require_kept(newest, "t", now, "")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (TopicsNow({"t": {0: 4, 1: 9}}, {"t": "c/1"}), "ended at 5 in partition 0"),
        (TopicsNow({"t": {1: 9}}, {"t": "c/1"}), "which ends at 0"),
        (TopicsNow({"t": {0: 4}}, {"t": "moved to/2"}), "has lost records"),
        (TopicsNow({"t": {0: 50, 1: 9}}, {"t": "c/2"}), "made it anew"),
    ],
)
def test_a_topic_that_lacks_what_was_shown_is_not_written_to(now: TopicsNow, said: str) -> None:
    with pytest.raises(LineageError, match=said):
        require_kept(shown({0: 5, 1: 0}, t="c/1"), "t", now, "")
