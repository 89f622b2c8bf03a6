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
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

_WIPED: Final = "\x1b[2K"
"""What a terminal is told to remove a line."""


def run(path: Path, output: Path) -> None:
    """Run the notebook at ``path`` and write it to ``output``; raises what a cell raises."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.update({"NO_COLOR": "1", "COLUMNS": "80"})
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=600, record_timing=False)
    client.execute()
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = number
        cell.outputs = kept(cell.outputs)
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]


def kept(outputs: list[Any]) -> list[Any]:
    """Outputs of a cell as a reader has them before him, one for each kind.

    Without what a JVM says about itself on stderr, and without progress bars, which a terminal has
    wiped out when the command ends.
    """
    texts = [each.text for each in outputs if each.get("name") == "stdout"]
    others = [each for each in outputs if each.output_type != "stream"]
    if not texts:
        return others
    text = "".join(texts).replace("\r\n", "\n").rpartition(_WIPED)[2]
    return [nbformat.v4.new_output("stream", name="stdout", text=text), *others]  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a notebook and store what it printed.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    run(given.notebook, given.output or given.notebook)
