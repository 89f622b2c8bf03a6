"""Run a notebook from top to bottom and store it with what it printed.

    python -m tools.run_notebook docs/tutorials/silent-damage.ipynb

With ``--output`` it is stored elsewhere. What says when and how long a cell ran is left out, so
that a second run changes only what has really changed. ``seamark`` is the one of this environment.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run(path: Path, output: Path) -> None:
    """Run the notebook at ``path`` and write it to ``output``; raises what a cell raises."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.update({"NO_COLOR": "1", "COLUMNS": "80"})
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=600, record_timing=False)
    client.execute()
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = number
        # what a JVM says about itself on stderr is not what the page is about
        kept = [each for each in cell.outputs if each.get("name") != "stderr"]
        cell.outputs = [_joined(each) for each in kept]
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]


def _joined(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if "text" in output:
        # a terminal in between ends lines in its own way
        output.text = output.text.replace("\r\n", "\n")
    return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a notebook and store what it printed.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    run(given.notebook, given.output or given.notebook)
