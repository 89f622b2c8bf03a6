"""A table that many sinks name is opened and read once for all of them, at each look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seamark import CheckpointManifest, open_store
from seamark.audit import auditing, delta, iceberg
from seamark.audit.shared_tables import SharedTables, table_place
from seamark.errors import DamageError
from seamark.manifest import SinkCommitStatus
from seamark.spark.row_digests import FORMULA, RowDigest
from seamark.store import CheckpointStore
from tests.audit.test_expectations import own, total

MANY = 30
SPARK: Any = None


class Reads:
    """Opens tables that hold what two epochs have written, and counts what is done with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: Counter[str] = Counter()
        self.read: Counter[object] = Counter()
        self.found = {1: own(1), 2: own(2)}
        monkeypatch.setattr(delta._OpenedTable, "at", self._open_delta)
        monkeypatch.setattr(delta, "DeltaEntries", lambda *_: self)
        monkeypatch.setattr(delta._DeltaVersions, "_digest", lambda _, rows: next(rows))
        monkeypatch.setattr(iceberg, "_opened", self._open_iceberg)
        for name in ("added", "whole"):
            monkeypatch.setattr(iceberg._FileLists, name, getattr(self, f"_{name}_files"))
        monkeypatch.setattr(iceberg._FileLists, "has", lambda *_: True)
        monkeypatch.setattr(iceberg._Snapshots, "_digest", lambda _, found: found)

    # a Delta table

    def _open_delta(self, version: int | None) -> Any:
        self.opened["delta"] += version is None
        return self

    def version(self) -> int:
        return 2

    def added(self, version: int) -> list[int]:
        return [version]

    def rows(self, versions: list[int], _: object) -> Iterator[RowDigest]:
        self.read["added", versions[0]] += 1
        return iter([self.found[versions[0]]])

    def to_pyarrow_dataset(self) -> Any:
        return self

    def to_batches(self, **_: object) -> Iterator[RowDigest]:
        self.read["whole", 2] += 1
        return iter([total(1, 2)])

    # an Iceberg table

    def _open_iceberg(self, *_: object) -> tuple[Any, bool]:
        self.opened["iceberg"] += 1
        return None, False

    def _added_files(self, snapshot: int) -> RowDigest:
        self.read["added", snapshot] += 1
        return self.found[snapshot]

    def _whole_files(self, snapshot: int) -> RowDigest:
        self.read["whole", snapshot] += 1
        return total(1, snapshot)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    # what a process of its own tries first is another matter
    monkeypatch.setattr("seamark.audit.limited_targets.LimitedTargets.require", lambda *_: None)
    return Reads(monkeypatch)


def save(store: CheckpointStore, sinks: Mapping[str, Mapping[str, Any]], epoch: int) -> None:
    upto = total(1, epoch)
    digest = {
        "rows": own(epoch).rows,
        "digest": own(epoch).digest,
        "since": 1,
        "total_rows": upto.rows,
        "total_digest": upto.digest,
        "formula": FORMULA,
    }
    location = {"metadata_location": "/t/v2.json", "snapshot_id": epoch, "version": epoch}
    store.save(
        CheckpointManifest.new(
            epoch,
            epoch=epoch,
            sink_names=list(sinks),
            structure={"sinks": sinks},
            sink_commit_statuses=dict.fromkeys(sinks, SinkCommitStatus.committed()),
            output_digests=dict.fromkeys(sinks, digest),
            read_points={
                name: {"kind": each["kind"], "target": each["target"], "at": location}
                for name, each in sinks.items()
            },
        )
    )


def audited(kind: str, targets: list[str]) -> auditing.Audit:
    sinks = {
        f"s{number}": {"kind": kind, "target": target, "columns": [["n", "int"]]}
        for number, target in enumerate(targets)
    }
    with open_store("memory://") as store:
        for epoch in (1, 2):
            save(store, sinks, epoch)
        return auditing.audit(store, lambda: SPARK)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_opened_and_each_version_read_once_for_all_sinks(
    reads: Reads, kind: str
) -> None:
    found = audited(kind, ["/t"] * MANY)
    assert [sink.sink for sink in found.sinks] == [f"s{number}" for number in range(MANY)]
    assert not found.is_damaged
    assert reads.opened == {kind: 1}
    assert reads.read == {("added", 1): 1, ("added", 2): 1, ("whole", 2): 1}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_looks_damaged_is_looked_at_again_once_for_all_sinks(reads: Reads, kind: str) -> None:
    reads.found[2] = own(7)
    found = audited(kind, ["/t"] * MANY)
    assert [sink.is_damaged for sink in found.sinks] == [True] * MANY
    assert 2 <= reads.opened[kind] <= 4
    assert max(reads.read.values()) <= 4


def test_sinks_of_one_table_are_read_together_however_they_spell_its_path(
    reads: Reads, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    root = str(tmp_path)
    spelled = [f"{root}/a", f"{root}/b", f"{root}/./a", f"file://{root}/link", f"{root}/b/"]
    found = audited("delta", spelled * 5)
    assert [sink.target for sink in found.sinks] == spelled * 5
    assert reads.opened == {"delta": 2}


def test_that_a_table_is_damaged_is_found_out_once_at_each_look() -> None:
    tables, tries = SharedTables(), 0

    def gone() -> None:
        nonlocal tries
        tries += 1
        raise DamageError("it is gone")

    for look in (0, 0, 1, 1, 0):
        tables.look = look
        with pytest.raises(DamageError, match="it is gone"):
            tables.once("t", None, gone)
    assert tries == 2
    assert table_place("s3://bucket/t") != table_place("s3://bucket/u")
    assert table_place("a\0b") == "a\0b"
