"""A Delta table of unknown origin may hold links: none of our folders in it is followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.errors import StoreUnavailableError
from seamark.sinks.delta.place import TablePlace

pytest.importorskip("deltalake")


@pytest.mark.parametrize("folder", ["_delta_log", "_seamark", "seamark"])
def test_a_folder_of_ours_that_is_a_link_is_refused_and_nothing_behind_it_is_touched(
    tmp_path: Path, folder: str
) -> None:
    victim, table = tmp_path / "victim", tmp_path / "table"
    victim.mkdir()
    (victim / "precious").write_text("mine")
    (table / "_delta_log").mkdir(parents=True)
    if folder == "_delta_log":
        (table / folder).rmdir()
    (table / folder).symlink_to(victim)
    with pytest.raises(StoreUnavailableError, match="links are not followed here"):
        TablePlace(str(table))
    assert [path.name for path in victim.iterdir()] == ["precious"]


@pytest.mark.parametrize("folder", ["_delta_log", "_seamark", "seamark"])
def test_a_link_that_comes_later_is_refused_too(tmp_path: Path, folder: str) -> None:
    victim, table = tmp_path / "victim", tmp_path / "table"
    victim.mkdir()
    table.mkdir()
    place = TablePlace(str(table))
    assert place.find() is None
    (table / folder).symlink_to(victim)
    with pytest.raises(StoreUnavailableError, match="links are not followed here"):
        place.look()


def test_the_table_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "table").symlink_to(tmp_path / "real")
    assert TablePlace(str(tmp_path / "table")).find() is None
