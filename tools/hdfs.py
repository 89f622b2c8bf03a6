"""HDFS for the integration tests: the servers of the Hadoop that PySpark comes with, by Maven.

``hadoop-client-minicluster`` holds Hadoop's own NameNode and DataNode. All that they need besides
is among PySpark's jars, so one jar of 56 MB is fetched.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tools.environment import ROOT
from tools.maven import copy_jars
from tools.programs import Unavailable

FOLDER = ROOT / ".venv" / "hadoop"

_CLIENT = "hadoop-client-api"
_OF_PYSPARK = (_CLIENT, "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j", "log4j")


def server_jars() -> list[Path]:
    """The jars that NameNode and DataNode run with; none where theirs was not fetched."""
    try:
        servers = _server_jar()
    except Unavailable:
        return []
    if not servers.exists():
        return []
    return [servers, *(jar for name in _OF_PYSPARK for jar in _pyspark_jars(name))]


def is_there() -> bool:
    """Whether the servers were fetched, for the Hadoop of the installed PySpark."""
    return bool(server_jars())


def fetch() -> None:
    """Fetch the servers if they are missing. Raises Unavailable if that is not possible."""
    if not is_there():
        copy_jars([f"org.apache.hadoop:hadoop-client-minicluster:{_hadoop_version()}"], FOLDER)


def _server_jar() -> Path:
    return FOLDER / f"hadoop-client-minicluster-{_hadoop_version()}.jar"


def _hadoop_version() -> str:
    found = _pyspark_jars(_CLIENT)
    if not found:
        raise Unavailable(f"the installed PySpark has no {_CLIENT} among its jars")
    return found[0].stem.removeprefix(f"{_CLIENT}-")


def _pyspark_jars(name: str) -> list[Path]:
    """PySpark's jars of this name, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    return sorted((Path(spec.origin).parent / "jars").glob(f"{name}-*.jar"))
