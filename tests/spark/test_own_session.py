"""A session that a command starts runs nothing that lies in the current folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import os
from seamark.spark.own_session import a_session
rows = a_session().createDataFrame([(41,)], "n int").collect()
print(rows[0].n + 1, "PYTHONSAFEPATH" in os.environ)
"""


def test_python_workers_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Spark starts one by ``python -m pyspark.daemon``."""
    planted = tmp_path / "pyspark"
    planted.mkdir()
    (planted / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit")
    command = [sys.executable, "-P", "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not (tmp_path / "ran").exists()
    assert done.stdout.split() == ["42", "False"], done.stderr
