"""An S3 server for the integration tests: versitygw, built by Go from its module.

Building takes one to six minutes, once. Go's module proxy is used as Go is set up to use it. An
older Go fetches the toolchain that the module asks for, unless GOTOOLCHAIN says otherwise.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tools.environment import ROOT
from tools.programs import run

VERSION = "v1.8.0"
FOLDER = ROOT / ".venv" / "versitygw"
PROGRAM = FOLDER / f"versitygw-{VERSION}"

_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_SECONDS = 1200


def is_there() -> bool:
    """Whether the server was built."""
    return PROGRAM.exists()


def fetch() -> None:
    """Build the server if it is missing. Raises Unavailable if that is not possible."""
    if is_there():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        environment = {
            "GOBIN": scratch,
            "CGO_ENABLED": "0",  # needs no C compiler
            "GOTOOLCHAIN": os.environ.get("GOTOOLCHAIN", "auto"),
        }
        build = ["install", "-trimpath", "-ldflags=-s -w", f"{_MODULE}@{VERSION}"]
        run("go", build, title="Go", seconds=_SECONDS, environment=environment)
        Path(scratch, "versitygw").rename(PROGRAM)  # whole or not at all
