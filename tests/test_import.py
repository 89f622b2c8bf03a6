"""``import seamark`` is light, and its names are there all the same."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import seamark

HEAVY = {"msgspec", "obstore", "lz4", "google_crc32c", "uuid_utils", "click", "rich", "pyspark"}


def loaded_by(code: str) -> set[str]:
    """Return the top-level packages that a fresh interpreter has loaded after ``code``."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_seamark_loads_nothing_heavy() -> None:
    assert loaded_by("import seamark").isdisjoint(HEAVY)
    assert loaded_by("import seamark; seamark.FencedError").isdisjoint(HEAVY)


@pytest.mark.parametrize("name", seamark.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(seamark, name) is not None
    assert name in dir(seamark)


def test_every_public_name_has_a_home_and_the_other_way_round() -> None:
    assert set(" ".join(seamark._HOMES.values()).split()) | {"__version__"} == set(seamark.__all__)


PACKAGES = ["seamark", *(f"seamark.{name}" for name in ("progress", "sinks", "sources", "testing"))]


@pytest.mark.parametrize("name", PACKAGES)
def test_no_public_name_is_hidden_by_a_module_of_the_same_name(name: str) -> None:
    package = importlib.import_module(name)
    modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    assert modules.isdisjoint(package.__all__), "whoever imports the module replaces the name"


@pytest.mark.parametrize(
    "wanted", ["seamark.sources import TableSource", "seamark.sources import SequencedSource"]
)
def test_a_name_that_needs_spark_tells_so_where_there_is_none(wanted: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['pyspark'] = None\nfrom {wanted}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    name = wanted.replace(" import ", ".")
    words = f"InvalidInputError: {name} needs the package pyspark\n  pip install 'seamark[spark]'"
    assert words in done.stderr


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_stroe'"):
        _ = seamark.open_stroe  # type: ignore[attr-defined]
