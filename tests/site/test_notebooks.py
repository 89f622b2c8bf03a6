"""The notebooks run, and the outputs that they are stored with are real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from seamark.spark.java import java_home
from tests.support.stories import alike

ROOT: Final = Path(__file__).resolve().parents[2]
NOTEBOOKS: Final = sorted(ROOT.glob("docs/**/*.ipynb"))


def outputs_of(notebook: Path) -> list[tuple[str, str]]:
    """What each cell of code prints, or shows as its value."""
    cells: list[Any] = json.loads(notebook.read_text())["cells"]
    return [
        ("".join(cell["source"]), "".join(map(text_of, cell["outputs"])))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def text_of(output: dict[str, Any]) -> str:
    assert output["output_type"] != "error", output
    return "".join(output["text"] if "text" in output else output["data"]["text/plain"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_its_outputs_and_without_traces_of_a_machine(
    notebook: Path,
) -> None:
    assert any(printed for _, printed in outputs_of(notebook))
    stored = json.loads(notebook.read_text())
    assert stored["metadata"].keys() == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in stored["cells"])


@pytest.mark.spark
@pytest.mark.sampled(len(NOTEBOOKS))
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_was_stored_with(notebook: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", "tools.run_notebook", notebook, "--output", output],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(java_home()), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (source, stored), (_, printed) in zip(
        outputs_of(notebook), outputs_of(output), strict=True
    ):
        assert alike(printed.replace(str(tmp_path), "/tmp")) == alike(stored), source
