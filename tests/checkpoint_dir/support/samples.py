"""Files that a real Spark wrote; see the README beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "fixtures" / "spark-state"


def sample(path: str) -> bytes:
    return (SAMPLES / path).read_bytes()


def sample_paths(pattern: str) -> list[str]:
    """The samples whose path fits, hidden files left out."""
    found = (path.relative_to(SAMPLES) for path in SAMPLES.glob(pattern))
    return sorted(str(path) for path in found if not path.name.startswith("."))


def log_sample(folder: str) -> dict[str, str]:
    """A log of Spark, with the hidden files that lie beside its entries."""
    return {path.name: path.read_text(errors="replace") for path in (SAMPLES / folder).iterdir()}


def reader_of(log: dict[str, str]) -> Callable[[str], str]:
    return log.__getitem__
