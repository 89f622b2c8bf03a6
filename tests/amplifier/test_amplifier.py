"""Whatever one field of one file holds, every command ends in bounded time and memory.

The amplifier takes a healthy example of each kind of place, and blows up each field of each of its
files in each way: through checksums, base64, LZ4, zips and packs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.amplifier.support.commands import OF_PLACE, not_tried
from tests.amplifier.support.places import PLACES
from tests.amplifier.support.spots import readable
from tests.amplifier.support.sweep import Amplifier, in_turn
from tests.amplifier.support.worker import Worker

CASES, LINES = 500, 3
"""For each place in ``make chaos``: cases of some ten thousand, and commands for each of them."""

FIXED = {
    "hdfs": ("offsets/3", " line 0.conf", "many members of it", ("spark inspect {}",)),
    "rocksdb": ("state/0/0/3.zip", " metadata line 0.sstFiles", "many of it", ("page {}",)),
    "sink": ("_spark_metadata/1", " line 0.path", "many of it", OF_PLACE["sink"][:1]),
    "delta": ("_delta_log/", " line 1.txn", "a name very often", OF_PLACE["delta"]),
    "iceberg": ("metadata/v3", ".snapshots", "empty objects", OF_PLACE["iceberg"]),
    "pipeline": (
        "checkpoint_000005/manifest.json",
        ".structure.sinks",
        "many members of it",
        ("show {} latest", "cut {}"),
    ),
    "snapshots": (
        "checkpoint_000002/manifest.json",
        ".operator_states.log.state_b64 base64 offsets/# line 0.conf",
        "long names",
        ("verify {} --read-data", "spark state --from {} --list"),
    ),
    "progress": ("MANIFEST", " as bytes", "zeros after it", OF_PLACE["progress"]),
}
"""One case of some places: (path, spot, how, commands). None of them takes long."""


@pytest.fixture(scope="module")
def amplifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Amplifier]:
    with Worker(tmp_path_factory.mktemp("worker")) as worker:
        yield Amplifier(tmp_path_factory.mktemp("places"), worker)


def test_every_command_is_tried_or_it_is_said_why_not() -> None:
    assert not_tried() == set()
    assert OF_PLACE.keys() == PLACES.keys()


@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=[pytest.mark.slow] if p == "progress" else []) for p in FIXED],
)
def test_a_field_that_is_blown_up_makes_no_command_work_much(
    amplifier: Amplifier, place: str
) -> None:
    path, spot, how, lines = FIXED[place]
    (case,) = islice(
        (
            case
            for case in amplifier.cases([place], path, size=200_000)
            if (case.where, case.how) == (spot, how)
        ),
        1,
    )
    assert [str(found) for found in amplifier.tried(case, lines)] == []


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("place", PLACES)
def test_no_field_of_any_file_makes_any_command_work_much(amplifier: Amplifier, place: str) -> None:
    seed = int(os.environ["SEAMARK_SEED"])
    chance = random.Random(seed)
    found = [
        str(each)
        for case in islice(in_turn(amplifier.cases([place]), seed), CASES)
        for each in amplifier.tried(
            case, chance.sample(OF_PLACE[place], min(LINES, len(OF_PLACE[place])))
        )
    ]
    assert found == [], "\n".join(found)


def test_what_is_packed_inside_of_a_file_is_reached(tmp_path: Path) -> None:
    PLACES["snapshots"](tmp_path / "store")
    manifest = tmp_path / "store/checkpoints/checkpoint_000001/manifest.json"
    found = {spot.where for spot in readable(manifest.read_bytes())}
    state = ".operator_states.log.state_b64 base64"
    assert f"{state} entries" in found
    assert f"{state} offsets/# line 0.conf" in found
    assert any(where.startswith(f"{state} seamark/index") for where in found)
    PLACES["rocksdb"](tmp_path / "directory")
    snapshot = tmp_path / "directory/state/0/0/3.zip"
    assert " metadata line 0.sstFiles" in {spot.where for spot in readable(snapshot.read_bytes())}
