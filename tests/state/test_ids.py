"""Ids and paths of state checkpoints, against the document that describes them."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uuid_utils
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import InvalidInputError
from seamark.state import CheckpointId, CheckpointManifestV2, CheckpointPaths, layout

ID = CheckpointId.parse("01956e3a-9c00-7abc-8def-0123456789ab")
OTHER = CheckpointId.parse("01956e3a-9c01-7abc-8def-0123456789ab")
ESCAPING = ["", ".", "..", "a/b", "/a", "a/", "../a", "a\\b", "..\\a", "a\x00b", "\x00", "\ud800"]


# The document's own tests.


def test_checkpoint_id_time_sortable() -> None:
    first = CheckpointId.now()
    time.sleep(0.002)
    second = CheckpointId.now()
    assert first < second
    assert first.to_string_id() < second.to_string_id()


def test_checkpoint_id_display() -> None:
    shown = str(CheckpointId.now())
    assert len(shown) == 36
    assert shown.count("-") == 4


def test_checkpoint_paths() -> None:
    paths = CheckpointPaths("s3://my-bucket/checkpoints")
    folder = f"s3://my-bucket/checkpoints/{ID}/"
    assert paths.latest_pointer() == "s3://my-bucket/checkpoints/_latest"
    assert paths.checkpoint_dir(ID) == folder
    assert paths.manifest(ID) == folder + "manifest.json"
    assert paths.snapshot(ID, "window-agg", 3) == folder + "operators/window-agg/partition-3.snap"
    assert paths.delta(ID, "window-agg", 3) == folder + "operators/window-agg/partition-3.delta"
    assert paths.source_offset(ID, "kafka-trades") == folder + "offsets/kafka-trades.json"


def test_checkpoint_paths_trailing_slash() -> None:
    assert CheckpointPaths("prefix/").manifest(ID) == CheckpointPaths("prefix").manifest(ID)
    assert CheckpointPaths("prefix").manifest(ID) == f"prefix/{ID}/manifest.json"
    assert CheckpointPaths().manifest(ID) == f"checkpoints/{ID}/manifest.json"


# Ids.


@pytest.mark.slow
def test_100_000_ids_of_one_process_strictly_increase() -> None:
    ids = [CheckpointId.now() for _ in range(100_000)]
    assert all(first < second for first, second in itertools.pairwise(ids))
    texts = [str(made) for made in ids]
    assert texts == sorted(set(texts))
    assert len(ids) > 10 * len({made.timestamp_ms for made in ids})  # many in one millisecond


def test_ids_of_many_threads_are_unique_and_increase_in_each_of_them() -> None:
    def make(_: int) -> list[CheckpointId]:
        return [CheckpointId.now() for _ in range(5000)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    assert all(ids == sorted(ids) for ids in made)
    assert len({made for ids in made for made in ids}) == 40_000


def test_an_id_is_a_uuid_of_version_7_and_tells_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_last_value", 0)  # whatever this process has made before
    before = time.time_ns() // 1_000_000
    made = CheckpointId.now()
    after = time.time_ns() // 1_000_000
    assert made.as_uuid().version == 7
    assert made.as_uuid().variant == uuid.RFC_4122
    # ids made before within the same millisecond may have run a little ahead of the clock
    assert before - 1000 <= made.timestamp_ms <= after + 1000


def test_ids_increase_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = CheckpointId.now()
    past = uuid_utils.UUID(int=newest.as_uuid().int - (1 << 100))
    monkeypatch.setattr(uuid_utils, "uuid7", lambda: past)
    ids = [CheckpointId.now() for _ in range(100)]
    assert newest < ids[0]
    assert ids == sorted(set(ids))
    assert {made.as_uuid().version for made in ids} == {7}


def test_an_id_and_its_uuid() -> None:
    value = uuid.UUID(str(ID))
    assert CheckpointId.from_uuid(value) == ID
    assert ID.as_uuid() == value
    assert ID.to_string_id() == str(ID) == str(value)
    assert repr(ID) == f"CheckpointId({value})"


def test_ids_are_ordered_and_can_be_keys() -> None:
    assert sorted([OTHER, ID]) == [ID, OTHER]
    assert ID < OTHER
    assert OTHER > ID
    assert ID <= ID  # noqa: PLR0124
    assert {ID: 1}[CheckpointId.parse(str(ID))] == 1
    assert str(ID) != ID
    with pytest.raises(TypeError):
        assert str(ID) > ID


def test_an_id_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ID._uuid = uuid.UUID(int=0)
    with pytest.raises(AttributeError):
        ID.other = 1


def test_ids_and_manifests_travel_between_processes() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(ID, protocol)) == ID
        assert (
            pickle.loads(pickle.dumps(CheckpointManifestV2.new(ID, 1), protocol)).checkpoint_id
            == ID
        )
    assert copy.copy(ID) == copy.deepcopy(ID) == ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        str(ID).upper(),
        str(ID).replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        f" {ID}",
        f"{ID}\n",
        f"{ID}/",
        str(ID)[:-1],
        f"{ID}0",
        str(ID).replace("a", "g"),
        str(ID).replace("1", "１"),  # a digit, but not of ASCII
        "../" + str(ID),
    ],
)
def test_only_the_one_way_to_write_an_id_is_read(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a checkpoint id"):
        CheckpointId.parse(text)


@pytest.mark.parametrize("value", [None, 7, b"x" * 36, uuid.UUID(int=7), ["a"]])
def test_what_is_not_text_is_no_id(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a checkpoint id"):
        CheckpointId.parse(value)


@given(st.uuids())
def test_every_id_is_read_back_from_its_text(value: uuid.UUID) -> None:
    made = CheckpointId.from_uuid(value)
    assert CheckpointId.parse(str(made)) == made


# Paths.


@pytest.mark.parametrize("name", ESCAPING)
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    paths = CheckpointPaths()
    with pytest.raises(InvalidInputError, match="operator name"):
        paths.snapshot(ID, name, 0)
    with pytest.raises(InvalidInputError, match="operator name"):
        paths.delta(ID, name, 0)
    with pytest.raises(InvalidInputError, match="source name"):
        paths.source_offset(ID, name)


@pytest.mark.parametrize("name", ["a", "a.b", "...", "a b", "é", "a:b", "-", "~", "%2e%2e"])
def test_other_names_stand_in_the_path_as_they_are(name: str) -> None:
    paths = CheckpointPaths()
    assert paths.snapshot(ID, name, 0) == f"checkpoints/{ID}/operators/{name}/partition-0.snap"
    assert paths.source_offset(ID, name) == f"checkpoints/{ID}/offsets/{name}.json"


@pytest.mark.parametrize("partition", [-1, 2**32, True, 1.0, "1", None])
def test_what_is_not_a_partition_is_refused(partition: Any) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        CheckpointPaths().snapshot(ID, "a", partition)
    with pytest.raises(InvalidInputError, match="partition"):
        CheckpointPaths().delta(ID, "a", partition)


def test_the_largest_partition_has_a_path() -> None:
    assert CheckpointPaths("").delta(ID, "a", 2**32 - 1) == (
        f"{ID}/operators/a/partition-4294967295.delta"
    )
