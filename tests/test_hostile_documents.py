"""Whatever a small document of somebody else holds, reading it ends in one of our own errors."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark import limits
from seamark._common.json_documents import (
    decode_foreign,
    decode_unambiguous,
    require_unambiguous,
    seal,
)
from seamark.capture.checkpoint_contents import file_list_in
from seamark.capture.file_index import FileIndex
from seamark.checkpoint_dir.file_logs.sink_log import rewound
from seamark.checkpoint_dir.file_logs.source_log import entries_up_to, is_file_log, moved
from seamark.checkpoint_dir.formats.checksums import spark_crc_matches
from seamark.checkpoint_dir.formats.hdfs_state import lineage_of
from seamark.checkpoint_dir.operators import LIMIT, StatefulOperator
from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.manifest.parts import InFlightRecord
from seamark.native.new_checkpoint import PLAN, planned
from seamark.pipeline.recovery.operator_numbers import renumbered
from seamark.pipeline.recovery.rescale import StoredState, rescaled
from seamark.sinks.epoch_folder import read_record
from seamark.sinks.target_checks import claim_folder
from seamark.spark.batch_log import log_lines, log_offset, readable_offset
from seamark.spark.kafka.positions import parsed
from seamark.spark.state_values import parse_schema
from seamark.state.task import TaskReceipt
from tests.test_limits import lz4_file

BAD = {
    "no UTF-8": b'{"path":"\xff\xfe","a":1}',
    "half a character": b'["\xc3"]',
    "too deep": b"[" * 60_000,
    "too deep inside": b'{"a":' * 60_000,
    "endless": b'{"size":1e999,"version":1e999,"path":1}',
    "very long": b'{"size":1' + b"0" * 5000 + b"}",
    "of another kind": b"[1,2]",
    "nothing": b"",
    "a lone surrogate": b'{"path":"\\ud800","timestamp":"x"}',
}


@pytest.fixture(params=BAD)
def bad(request: pytest.FixtureRequest) -> bytes:
    return BAD[request.param]


def test_a_lineage_that_cannot_be_read_is_damage(bad: bytes) -> None:
    told = bad[:60_000]
    file = lz4_file(b"\x00\x02v4" + struct.pack(">H", len(told)) + told)
    with pytest.raises(DamageError):
        lineage_of(file)


def nested(values: int) -> str:
    return '{"logOffset":[' + ",".join(["{}"] * values) + "]}"


def chunked(text: str) -> list[str]:
    return [text[at : at + 65_535] for at in range(0, len(text), 65_535)]


@pytest.mark.parametrize(
    "decode", [decode_foreign, decode_unambiguous, require_unambiguous, readable_offset]
)
def test_a_text_of_very_many_values_is_damage_and_is_not_decoded(
    decode: Callable[[str], object],
) -> None:
    decode(nested(limits.MOST_VALUES // 2 - 1))
    with pytest.raises(DamageError, match=f"{limits.MOST_VALUES} is the most"):
        decode(nested(limits.MOST_VALUES // 2))


def test_an_offset_of_very_many_values_is_of_no_source_that_is_known() -> None:
    assert log_offset(nested(limits.MOST_VALUES)) is None
    assert parsed(nested(limits.MOST_VALUES)) is None


def schema_of(*texts: list[bytes]) -> bytes:
    parts = [[struct.pack(">H", len(part)) + part for part in text] for text in texts]
    return b"\0\2v2" + b"".join(struct.pack(">i", len(p)) + b"".join(p) for p in parts)


def test_the_schema_of_a_store_has_no_more_parts_than_its_text_takes() -> None:
    row = b'{"fields":[{"name":"a","type":"long"}]}'
    long = row + b" " * 100_000
    assert parse_schema(schema_of([row], [long[:65_535], long[65_535:]])).columns == [
        ("a", '"long"')
    ]
    with pytest.raises(DamageError, match="parts"):
        parse_schema(schema_of([b""] * 1000, [row]))
    with pytest.raises(DamageError, match="values"):
        parse_schema(schema_of([row], [part.encode() for part in chunked(nested(300_000))]))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_an_entry_of_a_log_has_no_more_lines_than_one_of_its_length(end: str) -> None:
    line = '{"path":"file:/a","timestamp":1,"batchId":0}' + end
    assert len(log_lines(line * (limits.RECORDS_FLOOR + 100_000))) == limits.RECORDS_FLOOR + 100_000
    with pytest.raises(DamageError, match="lines"):
        log_lines(end * (limits.RECORDS_FLOOR + 100_000))


def test_a_list_of_files_that_cannot_be_read_is_damage(bad: bytes) -> None:
    with pytest.raises(DamageError):
        file_list_in(bad)


def test_a_sinks_record_that_cannot_be_read_is_damage(bad: bytes, tmp_path: Path) -> None:
    (tmp_path / "_seamark.json").write_bytes(seal(bad + b"}"))
    with pytest.raises(DamageError):
        read_record(str(tmp_path))


def test_the_owner_of_a_sinks_folder_that_cannot_be_read_is_damage(
    bad: bytes, tmp_path: Path
) -> None:
    (tmp_path / "_seamark").mkdir()
    (tmp_path / "_seamark/sink.json").write_bytes(seal(bad + b"}"))
    with pytest.raises(DamageError):
        claim_folder(str(tmp_path), "p", "s", "json", ())


def _text(bad: bytes) -> str:
    return "v1\n" + bad.decode(errors="surrogateescape")


def _sink(bad: bytes) -> object:
    return rewound(["0", "1"], lambda name: _text(bad), 0)


def _source(bad: bytes) -> object:
    return entries_up_to(["0", "1"], 1, lambda name: _text(bad))


@pytest.mark.parametrize("bad", [name for name in BAD if BAD[name]], indirect=True)
@pytest.mark.parametrize("read", [_sink, _source])
def test_a_log_whose_lines_cannot_be_read_is_damage(
    bad: bytes, read: Callable[[bytes], object]
) -> None:
    with pytest.raises(DamageError):
        read(bad)


def test_an_epoch_without_files_is_an_entry_without_lines_in_the_log_of_a_sink() -> None:
    assert rewound(["0", "1"], lambda name: "v1\n", 0).unlisted == ()


def test_what_cannot_be_read_is_no_file_log_and_is_moved_as_it_is(bad: bytes) -> None:
    assert not is_file_log(_text(bad))
    assert moved(_text(bad), {"/a": "/b"}) == _text(bad)


def test_a_receipt_that_cannot_be_read_is_none(bad: bytes) -> None:
    with pytest.raises(InvalidInputError, match="not a receipt"):
        TaskReceipt.from_json(bad)


def test_a_checksum_that_cannot_be_read_matches_nothing(bad: bytes) -> None:
    assert not spark_crc_matches(b"data", bad)


def test_a_plan_that_cannot_be_read_is_damage(bad: bytes) -> None:
    held = [InFlightRecord(1, base64.b64encode(bad).decode())]
    with pytest.raises(DamageError):
        planned(CheckpointManifest.new(1, epoch=1, inflight_data={PLAN: held}))


@pytest.mark.parametrize("data", [b"\xff", b"v1\n[]", b"v1\n{", b"v1\n" + b"[" * 10_000, b""])
def test_a_description_of_state_that_describes_nothing_is_damage_to_an_upgrade(data: bytes) -> None:
    path, moved = (f"state/{number}/_metadata/metadata" for number in (0, 1))
    with pytest.raises(DamageError, match=path):
        renumbered(moved, path, data)
    limit = StatefulOperator(0, LIMIT, ["default"], 1)
    state = StoredState(3, FileIndex(), {path: data})
    workshop: Any = None  # nothing is rewritten
    with pytest.raises(DamageError, match=path):
        rescaled(state, [limit], 4, workshop)


def test_an_entry_of_a_log_that_is_no_text_is_damage_to_an_upgrade() -> None:
    workshop: Any = None
    state = StoredState(3, FileIndex(), {"offsets/2": b"v1\n{}\n\xff"})
    with pytest.raises(DamageError, match="offsets/2 is not a text"):
        rescaled(state, [], 4, workshop)
