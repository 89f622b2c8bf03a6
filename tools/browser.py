"""A browser for the tests of the page: Debian's Chromium, and axe-core, which finds what keeps
people from using a page.

Chromium is installed as root on Debian, and only in CI or with ``SERVERS=install``, as the
databases are. axe-core (MPL-2.0) is fetched by npm into ``.venv`` and is no part of the package.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools import debian
from tools.environment import ROOT
from tools.programs import run
from tools.servers import Program

AXE_VERSION = "4.14.0"
AXE = ROOT / ".venv" / f"axe-core-{AXE_VERSION}.js"
CHROMIUM = Program("Chromium", "chromium", ("chromium",))
_SECONDS = 300


def is_there() -> bool:
    """Whether the browser and axe-core are there."""
    return CHROMIUM.find() is not None and AXE.exists()


def fetch() -> None:
    """Install and fetch what is missing. Raises Unavailable if that is not possible or allowed."""
    debian.require(CHROMIUM, also=["fonts-dejavu-core"])
    if not AXE.exists():
        _fetch_axe()


def _fetch_axe() -> None:
    AXE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=AXE.parent) as scratch:
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        install = ["install", "--prefix", scratch, *flags, f"axe-core@{AXE_VERSION}"]
        run("npm", install, title="npm", seconds=_SECONDS)
        Path(scratch, "node_modules/axe-core/axe.min.js").rename(AXE)  # whole or not at all
