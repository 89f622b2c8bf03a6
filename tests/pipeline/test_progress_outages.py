"""A progress store that is locked, in the way, down or away costs a pipeline warnings, no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.errors import StoreUnavailableError
from seamark.pipeline.telemetry import progress_record
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.progress import open_progress
from tests.pipeline.test_progress_record import manifest, note, told_by, wanted
from tests.progress.support.children import hold, running
from tests.support.databases import RedisServer, redis_server
from tests.support.skipped import or_skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"rocksdb://{tmp_path}/store/progress"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again with the next epoch."""
    monkeypatch.setattr(progress_record, "_AGAIN_AFTER", 0.0)


def test_a_folder_that_cannot_be_made_costs_a_warning(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "progress").write_text("in the way")
    record = ProgressRecord(url, "trades")
    assert record.bring_to(manifest(3)) is None
    note(record, 4)
    assert [r.levelno for r in caplog.records] == [logging.WARNING, logging.WARNING]
    assert "progress of the sources was not recorded" in caplog.records[0].message
    (tmp_path / "store" / "progress").unlink()
    note(record, 5)
    assert told_by(url) == wanted(5)
    record.close()


def test_a_record_that_another_process_holds_is_written_when_it_lets_go(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    record = ProgressRecord(url, "trades")
    with running(hold, url) as other:
        assert other.hear() == "open"
        assert record.bring_to(manifest(3)) is None
        note(record, 4)
        assert all("another process has" in r.message for r in caplog.records)
        assert len(caplog.records) == 2
        other.tell(None)
        assert other.hear() == "closed"
    note(record, 5)
    assert told_by(url) == wanted(5)
    record.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with or_skip("Redis", redis_server()) as server:
        yield server


def test_a_redis_that_is_down_costs_warnings_until_it_is_there(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.stop()
    record = ProgressRecord(own_redis.url, "trades")
    assert record.bring_to(manifest(3)) is None
    note(record, 4)
    assert len(caplog.records) == 2
    own_redis.start()
    note(record, 5)
    assert told_by(f"{own_redis.url}?namespace=trades") == wanted(5)
    record.close()


def test_a_redis_that_goes_down_and_comes_back_empty_gets_everything_again(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{own_redis.url}?namespace=trades"
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(3))
    own_redis.kill()
    note(record, 4)
    assert len(caplog.records) == 1
    own_redis.start()
    with open_progress(url, read_only=True) as store:
        vars(store)["_ledger"].client.flushall()
    note(record, 5)
    note(record, 6)
    assert told_by(url) == wanted(6)
    record.close()


def test_a_redis_that_is_only_restarted_loses_no_epoch(own_redis: RedisServer) -> None:
    url = f"{own_redis.url}?namespace=trades"
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(3))
    own_redis.restart()
    note(record, 4)
    note(record, 5)
    assert told_by(url) == wanted(5)
    record.close()


def test_what_is_told_of_a_failure_holds_no_password(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.stop()
    url = f"redis://:s3cret@127.0.0.1:{own_redis.port}/0"
    ProgressRecord(url, "trades").bring_to(manifest(3))
    assert caplog.records
    assert "s3cret" not in caplog.text
    with pytest.raises(StoreUnavailableError) as failed:
        open_progress(url, namespace="trades")
    assert "s3cret" not in str(failed.value)
