"""A pipeline into Iceberg loses and doubles nothing, whenever it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from seamark.errors import FencedError
from seamark.sinks.iceberg.marks import Output
from tests.pipeline.support.drivers import overtaken, write_input
from tests.sinks.support import iceberg

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs/iceberg.md"
KILLS = """
import os, signal, sys
from pyiceberg.catalog.sql import SqlCatalog
from seamark.sinks.iceberg.staging import Staging
moment, left = sys.argv[2], [int(sys.argv[3])]
def dies_at(where):
    if where == moment:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
commit, begin = SqlCatalog.commit_table, Staging.begin
def killed_commit(self, *args):
    dies_at("before the commit")
    done = commit(self, *args)
    dies_at("after the commit")
    return done
def killed_begin(self, *args):
    done = begin(self, *args)
    dies_at("while staging")
    return done
SqlCatalog.commit_table, Staging.begin = killed_commit, killed_begin
"""


def program() -> str:
    """The complete program of the page."""
    block = re.search(r"```python\n# bars.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    return block[1]


def run(folder: Path, *kill: str) -> int:
    code = (KILLS if kill else "") + program()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), *kill],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def table_of(folder: Path) -> Table:
    catalog = load_catalog("market", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return catalog.load_table("market.trades")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("moment", "times"),
    # how often it gets there before: an epoch or two are in the table already
    [("while staging", 1), ("before the commit", 2), ("after the commit", 1)],
)
def test_the_program_of_the_page_survives_a_kill_at_any_step_of_an_epoch(
    tmp_path: Path, moment: str, times: int
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    expected = []
    for number in range(4):
        rows = [{"symbol": f"s{number}", "price": price} for price in (number, number, -number)]
        expected += [(row["symbol"], row["price"]) for row in rows]
        text = "\n".join(json.dumps(row) for row in rows)
        (source / f"{number}.json").write_text(text)
    assert run(tmp_path, moment, str(times)) == -signal.SIGKILL
    assert run(tmp_path) == 0
    table = table_of(tmp_path)
    rows_seen = [(row["symbol"], row["price"]) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(rows_seen) == sorted(expected)
    mark = Output("trades", "all").mark(table.metadata)
    assert mark is not None
    assert mark.epoch == 4
    assert [*tmp_path.rglob("staging/*/*")] == []
    kept = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
    assert {str(path) for path in tmp_path.rglob("warehouse/**/*.parquet")} == kept


@pytest.mark.timeout(1200)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_that_hangs_inside_its_commit_is_told_and_adds_nothing(
    tmp_path: Path, when: str
) -> None:
    """It stops before or after its request to the catalog, and another one does all the work."""
    rows = write_input(tmp_path / "in")
    iceberg.make_table(tmp_path, pa.schema([("k", pa.int64()), ("v", pa.int64())]))

    def start(*point: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.sinks.support.iceberg_driver", str(tmp_path)]
        return subprocess.Popen([*command, *point], stdout=subprocess.PIPE, text=True)

    code, said = overtaken(tmp_path, start, when, "3")
    assert code == FencedError.exit_code, said
    found = iceberg.table_at(tmp_path).scan().to_arrow().to_pylist()
    assert Counter((row["k"], row["v"]) for row in found) == rows
    assert iceberg.data_files(tmp_path) == iceberg.referenced_files(tmp_path), "no litter"
