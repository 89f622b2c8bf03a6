"""While ``mkdocs serve`` runs, put the pages together again when one of them has changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tools.site_pages import assemble  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def on_pre_build(*, config: MkDocsConfig) -> None:
    """MkDocs calls it before each build."""
    assemble(Path(config.docs_dir))
