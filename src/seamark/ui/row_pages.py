"""Pages of rows of state: read when a viewer asks for them, one reading at a time.

Tests: ``tests/ui/test_state_rows.py``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec

from seamark.errors import InvalidInputError, RefusedError
from seamark.reports.document import Document
from seamark.reports.state_rows import flat_row, parts_of
from seamark.ui import views
from seamark.ui.bounds import FURTHEST_ROW, KEPT_ROW_PAGES, STATE_ROWS
from seamark.ui.places import Place
from seamark.ui.row_source import RowsAsked
from seamark.ui.runs import Run, Runs
from seamark.ui.store_watch import StoreWatch

_NUMBERS: Final = {
    "checkpoint": "checkpoint",
    "batch": "batch",
    "operator": "operator",
    "partition": "partition",
    "from": "first",
}
"""Names in an address, and what they are called here."""
_LONGEST_PART: Final = 200
_LARGEST: Final = 2**63 - 1


class RowPages:
    """What was read lately, and the reading that runs."""

    def __init__(self) -> None:
        self._runs = Runs("seamark-ui-rows", "reading of rows", most=1, kept=KEPT_ROW_PAGES)

    def last(self, place: Place, asked: RowsAsked) -> Run | None:
        """The reading of these rows that runs or ran last."""
        return self._runs.last(_key(place, asked))

    def start(self, place: Place, asked: RowsAsked) -> None:
        """Read, unless these rows are being read, or were and cannot have changed.

        :class:`RefusedError` when others are being read, or nothing here can read rows.
        """
        run = self.last(place, asked)
        if asked.checkpoint is not None and run is not None and run.document is not None:
            return
        reader = place.row_reader()
        if reader is None:
            raise RefusedError(
                "the rows of this place cannot be read here",
                where=place.url,
                hint="'seamark spark state' reads them in a Spark of its own.",
            )
        self._runs.start(_key(place, asked), "rows", partial(reader.read, asked))

    def stop(self, place: Place, asked: RowsAsked) -> None:
        """Have a reading end."""
        self._runs.stop(_key(place, asked))

    def close(self) -> None:
        """Have all readings end."""
        self._runs.close()


def _key(place: Place, asked: RowsAsked) -> Hashable:
    """What tells rows from all others; a store that is begun anew has the same ids again."""
    timeline = place.watch.state.owner.timeline if isinstance(place.watch, StoreWatch) else ""
    return place.slug, timeline, asked


def asked_in(place: Place, query: Mapping[str, str]) -> RowsAsked:
    """The rows that an address means; by default the first ones of the newest state."""
    given = {name: query.get(name) for name in _NUMBERS}
    numbers = {_NUMBERS[name]: _number(name, text) for name, text in given.items() if text}
    part = query.get("part") or None
    if part is not None and len(part) > _LONGEST_PART:
        raise InvalidInputError("no part of a state has so long a name")
    asked = RowsAsked(**numbers, part=part)
    if asked.first > FURTHEST_ROW:
        raise InvalidInputError(
            f"the page shows the first {FURTHEST_ROW} rows",
            hint="Choose one partition, or use 'seamark spark state'.",
        )
    if isinstance(place.watch, StoreWatch):
        number = asked.checkpoint or views.newest(place)
        return msgspec.structs.replace(asked, checkpoint=number, batch=None)
    views.directory(place)  # an error when it is none
    return msgspec.structs.replace(asked, checkpoint=None)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _LARGEST:
        raise InvalidInputError(f"{name} is a number, not {text[:40]!r}")
    return int(text)


def query_of(asked: RowsAsked, **changes: int | str | None) -> str:
    """The address of some rows, without the path."""
    given: dict[str, int | str | None] = {
        name: getattr(asked, ours) for name, ours in _NUMBERS.items()
    }
    given |= {"part": asked.part, "from": asked.first or None, **changes}
    return urlencode({name: value for name, value in given.items() if value is not None})


def page_document(asked: RowsAsked, run: Run | None) -> Document:
    """What the page shows: the reading, a table of its rows, and where one can go from there."""
    found = None if run is None else run.document
    has_more = found is not None and found["truncated"]
    before, after = max(0, asked.first - STATE_ROWS), asked.first + STATE_ROWS
    return {
        "asked": {
            "checkpoint": asked.checkpoint,
            "batch": asked.batch,
            "operator": asked.operator,
            "part": asked.part,
            "partition": asked.partition,
            "first": asked.first,
        },
        "query": query_of(asked),
        "table": None if found is None else _table(found),
        "choices": [] if found is None else _choices(asked, found),
        "next": query_of(asked, **{"from": after}) if has_more and after <= FURTHEST_ROW else None,
        "previous": query_of(asked, **{"from": before or None}) if asked.first else None,
    }


def _table(found: Document) -> Document:
    rows = [flat_row(row) for row in found["rows"]]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    if not rows:
        names = [column["name"] for column in found["columns"]]
    return {
        "operator": found["operator"],
        "name": found["name"],
        "part": found["part"],
        "batch": found["batch"],
        "first": found["first"] + 1,
        "last": found["first"] + len(rows),
        "is_last": not found["truncated"],
        "names": names,
        "numbers": [all(_is_number(row.get(name)) for row in rows) for name in names],
        "rows": [[_cell(row.get(name)) for name in names] for row in rows],
    }


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _choices(asked: RowsAsked, found: Document) -> list[Document]:
    """Every operator and part that can be looked into."""
    return [
        {
            "text": f"{each['operator']} {each['name']}" + (f": {part}" if len(parts) > 1 else ""),
            "query": query_of(
                asked,
                operator=each["operator"],
                part=part if len(parts) > 1 else None,
                partition=None,
                **{"from": None},
            ),
            "is_this": each["operator"] == found["operator"] and part == found["part"],
        }
        for each in found["operators"]
        for parts in [parts_of(each)]
        for part in parts
    ]
