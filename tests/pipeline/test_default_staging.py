"""Rows of a sink that wait have a place without being given one, where a place can be safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from seamark.errors import InvalidInputError, SeamarkError
from seamark.pipeline.recovery.sink_opening import default_staging
from seamark.sinks import KafkaSink
from seamark.sinks.kafka.staging import RecordStaging
from seamark.store import open_store


def test_a_store_in_a_folder_has_room_for_rows_that_wait(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        assert default_staging(store, is_local=True) == f"{store.url}/staging"


def test_executors_on_other_machines_would_not_see_that_folder(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        assert default_staging(store, is_local=False) is None


def test_a_store_that_is_no_folder_offers_none() -> None:
    with open_store("memory://") as store:
        assert default_staging(store, is_local=True) is None


def test_a_link_in_the_place_of_that_folder_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for folder in ("store", "elsewhere"):
            (tmp_path / folder).mkdir()
        (tmp_path / "store" / "staging").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SeamarkError, match="link"):
            default_staging(store, is_local=True)


def test_a_sink_to_kafka_that_has_no_folder_says_which_one_it_needs() -> None:
    sink = KafkaSink("127.0.0.1:1", "t", key="n", value="word")
    with pytest.raises(InvalidInputError, match="needs staging='/folder'") as caught:
        sink.open("trades", "bars", StructType().add("n", "string").add("word", "string"))
    assert "all executors have mounted" in str(caught.value)


def test_a_folder_that_is_given_wins(tmp_path: Path) -> None:
    sink = KafkaSink("127.0.0.1:1", "t", staging=tmp_path / "mine")
    sink.default_staging = str(tmp_path / "default")
    sink._staging.choose("trades", "bars", sink.default_staging)
    sink._staging.make()
    assert (tmp_path / "mine" / "trades" / "bars").is_dir()
    assert not (tmp_path / "default").exists()


def test_a_link_below_that_folder_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "trades").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SeamarkError, match="link"):
        RecordStaging(None).choose("trades", "bars", str(tmp_path / "staging"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
