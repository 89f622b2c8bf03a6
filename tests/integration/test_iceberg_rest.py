"""Epochs go into a table of a real REST catalog, that of Apache Iceberg's own tests, once each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog

from seamark.errors import LineageError, RefusedError
from seamark.testing.conformance.sink_examples import NEW, Writer, epoch, receipt
from seamark.testing.conformance.sink_visibility import together
from tests.integration.support.iceberg_rest import rest_catalog
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten
from tests.support.skipped import or_skip

pytestmark = pytest.mark.integration

Properties = dict[str, str]


@pytest.fixture(scope="module")
def properties() -> Iterator[Properties]:
    with or_skip("Iceberg's REST catalog", rest_catalog()) as given:
        yield given


@pytest.fixture
def catalog(properties: Properties) -> Catalog:
    opened = load_catalog(**properties)
    opened.create_namespace_if_not_exists("db")
    return opened


@pytest.fixture
def table(catalog: Catalog) -> str:
    name = f"db.t{uuid.uuid4().hex}"
    catalog.create_table(name, iceberg.COLUMNS)
    return name


@pytest.fixture
def writer(properties: Properties, table: str) -> Writer:
    return Writer(lambda: HandWritten(properties, table), iceberg.frame)


@pytest.fixture
def seen(catalog: Catalog, table: str) -> Callable[[], list[int]]:
    def read() -> list[int]:
        return sorted(catalog.load_table(table).scan().to_arrow().column("n").to_pylist())

    return read


def test_epochs_are_shown_once_remembered_and_taken_back(
    writer: Writer, seen: Callable[[], list[int]]
) -> None:
    first = writer.show([1, 2], epoch(1), "a1")
    writer.show([], epoch(2), "a2")
    writer.show([3], epoch(3), "a3")
    writer.new_handle().commit(first)
    assert seen() == [1, 2, 3]
    assert writer.new_handle().newest() == receipt(3, "a3")
    assert writer.new_handle().leftovers() == []
    other = writer.prepare([9], epoch(3, NEW), "b3")
    with pytest.raises(LineageError):
        writer.new_handle().commit(other)
    assert writer.new_handle().unpublish_after(1) == [2, 3]
    assert seen() == [1, 2]
    assert writer.new_handle().unpublish_after(0) == [1]
    assert seen() == []
    assert writer.new_handle().newest() is None


def test_several_committers_and_a_foreign_writer_show_each_epoch_once(
    writer: Writer, catalog: Catalog, table: str, seen: Callable[[], list[int]]
) -> None:
    for number in range(1, 6):
        committable = writer.prepare([number], epoch(number), f"a{number}")
        sinks = [writer.new_handle() for _ in range(3)]
        foreign = catalog.load_table(table)
        together(
            [
                *(partial(sink.commit, committable) for sink in sinks),
                partial(foreign.append, iceberg.lines([100])),
            ]
        )
    assert seen() == [1, 2, 3, 4, 5, *[100] * 5]
    with pytest.raises(RefusedError, match="somebody else has written"):
        writer.new_handle().unpublish_after(1)


def test_a_lost_answer_of_the_server_is_looked_up(
    writer: Writer, seen: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    commit = RestCatalog.commit_table

    def loses(self: RestCatalog, *args: Any) -> Any:
        commit(self, *args)
        raise requests.ConnectionError("reset by peer")

    with monkeypatch.context() as patch:
        patch.setattr(RestCatalog, "commit_table", loses)
        writer.new_handle().commit(committable)
    writer.new_handle().commit(committable)
    assert seen() == [1]


def test_rows_are_replaced_by_their_keys(
    properties: Properties, table: str, seen: Callable[[], list[int]]
) -> None:
    writer = Writer(lambda: HandWritten(properties, table, "upsert", keys="n"), iceberg.frame)
    writer.show([1, 2, 3], epoch(1), "a1")
    writer.show([2, 3, 4], epoch(2), "a2")
    assert seen() == [1, 2, 3, 4]
    assert writer.new_handle().unpublish_after(1) == [2]
    assert seen() == [1, 2, 3]
