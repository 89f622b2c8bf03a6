"""Whether state can be spread over other partitions: by the settings that Spark has pinned. Pure.

Tests: ``tests/native/test_repartition.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from seamark.checkpoint_dir.operators import JOIN, LIMIT, StatefulOperator
from seamark.native.state_choice import JOIN_FORMAT, PROVIDER
from seamark.native.state_rewrite import KEYED_BY_ALL, SESSIONS
from seamark.spark.batch_log import SHUFFLE_PARTITIONS

OLDEST: Final = (4, 2)
"""The first Spark that has an offline runner."""

_ROCKSDB: Final = "RocksDBStateStoreProvider"
_HDFS: Final = "HDFSBackedStateStoreProvider"
_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"
_ROW_CHECKSUMS: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_CODEC: Final = "spark.sql.streaming.stateStore.compression.codec"
_REWRITTEN: Final = KEYED_BY_ALL | {SESSIONS, JOIN, LIMIT}
_JOIN_FORMATS: Final = ("1", "2", "3")
_ANEW: Final = (
    f"It is fixed with the first batch. Set {SHUFFLE_PARTITIONS} to the number that you want and "
    "start with a new checkpoint; its state is then rebuilt from the source."
)


class Impossible(NamedTuple):
    """Why the partitions of a state cannot be changed, and what to do instead."""

    why: str
    hint: str


def is_rocksdb(conf: Mapping[str, str]) -> bool:
    """Whether Spark's own runner can rewrite the state."""
    return str(conf.get(PROVIDER, "")).endswith(f".{_ROCKSDB}")


def codec_of(conf: Mapping[str, str]) -> str:
    """How files of HDFS-backed state are compressed."""
    return str(conf.get(_CODEC, "lz4"))


def impossible(
    conf: Mapping[str, str], operators: Iterable[StatefulOperator] = ()
) -> Impossible | None:
    """What stands in the way of other partitions; ``conf`` are the settings of the last batch."""
    provider = str(conf.get(PROVIDER, "")).rpartition(".")[2]
    if provider not in (_ROCKSDB, _HDFS):
        return Impossible(
            "only the state of Spark's own providers can be spread over other partitions, and this "
            f"one is kept by {provider or 'an unknown provider'}",
            _ANEW,
        )
    if str(conf.get(_STRICT, "true")).lower() == "false":
        return Impossible(
            "its first batch ran on a Spark before 3.3, which did not choose partitions by the "
            f"whole key ({_STRICT} is false)",
            _ANEW,
        )
    operators = list(operators)
    if provider == _ROCKSDB:
        return _runner_cannot(conf, operators)
    if str(conf.get(_ROW_CHECKSUMS, "false")).lower() == "true":
        return Impossible(
            f"HDFS-backed state with checksums of rows ({_ROW_CHECKSUMS}) cannot be rewritten",
            _ANEW,
        )
    for operator in operators:
        if operator.name not in _REWRITTEN:
            return Impossible(
                f"it is not known which rows of operator {operator.number} ({operator.name}) "
                "belong to which partition",
                _ANEW,
            )
    return None


def _runner_cannot(
    conf: Mapping[str, str], operators: Iterable[StatefulOperator]
) -> Impossible | None:
    """What Spark's own runner does wrong."""
    for operator in operators:
        is_join = operator.name.startswith(JOIN)
        if is_join and conf.get(JOIN_FORMAT, "2") not in _JOIN_FORMATS:
            return Impossible(
                f"operator {operator.number} is a join in state format {conf[JOIN_FORMAT]}, and "
                "Spark's runner writes that so that no query can read it (seen in 4.3)",
                _ANEW,
            )
    return None
