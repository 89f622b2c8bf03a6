"""The parts of a manifest: statuses of sinks and state of operators."""

from __future__ import annotations

import json
import pickle

import msgspec
import pytest

from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import (
    OperatorCheckpoint,
    SinkCommitStatus,
)
from tests.manifest.support.documents import SMALLEST, read, refused


class TestSinkCommitStatus:
    @pytest.mark.parametrize(
        ("status", "value"),
        [
            (SinkCommitStatus.pending(), "Pending"),
            (SinkCommitStatus.committed(), "Committed"),
            (SinkCommitStatus.failed('no "space" é'), {"Failed": 'no "space" é'}),
            (SinkCommitStatus.failed(""), {"Failed": ""}),
        ],
    )
    def test_json_shapes(self, status: SinkCommitStatus, value: object) -> None:
        manifest = read(sink_commit_statuses={"lake": value})
        assert manifest.sink_commit_statuses == {"lake": status}
        assert json.loads(manifest.to_json())["sink_commit_statuses"] == {"lake": value}
        assert SinkCommitStatus.from_builtins(status.to_builtins()) == status
        assert pickle.loads(pickle.dumps(status)) == status
        assert len({status, SinkCommitStatus.from_builtins(value)}) == 1

    @pytest.mark.parametrize(
        "value",
        [
            *("pending", "Failed", "", None, 1, True, [], {}, {"Failed": 1}, {"Failed": None}),
            *({"Committed": ""}, {"Failed": "a", "b": "c"}, ["Pending"], {"Pending": None}),
        ],
    )
    def test_other_shapes_are_damage(self, value: object) -> None:
        assert refused(json.dumps({**SMALLEST, "sink_commit_statuses": {"a": value}}).encode())
        with pytest.raises(InvalidInputError):
            SinkCommitStatus.from_builtins(value)

    def test_what_a_status_says(self) -> None:
        failed = SinkCommitStatus.failed("full")
        assert (failed.kind, failed.message, failed.is_committed) == ("Failed", "full", False)
        assert SinkCommitStatus.committed().is_committed
        assert SinkCommitStatus.pending().message is None
        assert repr(failed) == "SinkCommitStatus.failed('full')"
        assert repr(SinkCommitStatus.pending()) == "SinkCommitStatus.pending()"
        assert failed != SinkCommitStatus.failed("other") != "Failed"

    def test_a_status_cannot_be_changed_or_made_up(self) -> None:
        with pytest.raises(AttributeError):
            SinkCommitStatus.pending()._kind = "Committed"
        for arguments in (("Done",), ("Failed",), ("Pending", "message")):
            with pytest.raises(InvalidInputError):
                SinkCommitStatus(*arguments)


class TestOperatorCheckpoint:
    def test_inline_is_standard_base64_with_padding(self) -> None:
        operator = OperatorCheckpoint.inline(b"\xfb\xff\xfe\x00")
        assert operator == OperatorCheckpoint(state_b64="+//+AA==")
        assert operator.decode_inline() == b"\xfb\xff\xfe\x00"

    def test_empty_state_is_inline_and_not_absent(self) -> None:
        assert OperatorCheckpoint.inline(b"") == OperatorCheckpoint(state_b64="")
        assert OperatorCheckpoint.inline(b"").decode_inline() == b""
        assert OperatorCheckpoint().decode_inline() is None

    def test_external_is_a_range(self) -> None:
        operator = OperatorCheckpoint.in_sidecar(10, 20)
        assert operator.decode_inline() is None
        assert json.loads(msgspec.json.encode(operator)) == {
            "state_b64": None,
            "external": True,
            "external_offset": 10,
            "external_length": 20,
        }
        for offset, length in ((-1, 1), (1, -1), (2**64, 1), (0, 2**64)):
            with pytest.raises(InvalidInputError):
                OperatorCheckpoint.in_sidecar(offset, length)

    @pytest.mark.parametrize(("size", "inline"), [(0, True), (9, True), (10, True), (11, False)])
    def test_the_threshold_is_the_largest_inline_size(self, size: int, inline: bool) -> None:
        data = b"x" * size
        operator, chunk = OperatorCheckpoint.from_bytes(data, threshold=10, offset=5)
        if inline:
            assert (operator.decode_inline(), chunk) == (data, None)
        else:
            assert (operator, chunk) == (OperatorCheckpoint.in_sidecar(5, size), data)

    @pytest.mark.parametrize("text", ["x", "====", "a b=", "aGk", "aGk=\n", "aGk-", "é"])
    def test_text_that_is_not_base64_is_damage_and_never_empty_state(self, text: str) -> None:
        with pytest.raises(DamageError, match="base64"):
            OperatorCheckpoint(state_b64=text).decode_inline()
