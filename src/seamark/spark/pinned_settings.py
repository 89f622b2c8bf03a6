"""Settings that Spark pins in its offset log, before they are used.

Two of them name classes, and Spark makes an object of whatever is named. An offset log may come
from anybody, so only Spark's own classes are taken, and what the session itself is set to.

Tests: ``tests/spark/test_pinned_settings.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from seamark._common.json_documents import UNREADABLE, decode_unambiguous
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import log_lines
from seamark.spark.session import STATE_PROVIDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_CODEC: Final = "spark.sql.streaming.stateStore.compression.codec"
_PROVIDERS: Final = frozenset(
    f"org.apache.spark.sql.execution.streaming.state.{name}StateStoreProvider"
    for name in ("HDFSBacked", "RocksDB")
)
_CODECS: Final = frozenset(
    f"org.apache.spark.io.{name}CompressionCodec" for name in ("LZ4", "LZF", "Snappy", "ZStd")
)
_CLASSES: Final = (STATE_PROVIDER, STATE_CODEC)
_SHORT: Final = ("lz4", "lzf", "snappy", "zstd")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{0,100}|-?[0-9]{1,18}\.[0-9]{1,18}")
"""A number, a word, true or false: it can name no class and no place."""
_OF_SQL: Final = "spark.sql."
_LONGEST_SHOWN: Final = 200

Own = Callable[[str], str | None]
"""What the session is set to, by the name of a setting."""


class CheckpointTexts(Protocol):
    """The files of a checkpoint directory."""

    @property
    def uri(self) -> str:
        """Where it is."""

    def read_text(self, relative: str) -> str | None:
        """The text of a file; None when there is none."""


def own_settings(spark: SparkSession) -> Own:
    """The settings of a session."""
    return lambda name: spark.conf.get(name, None)


def classes_of(spark: SparkSession | None) -> list[str]:
    """The state store provider and the codec that a session is set to."""
    found = [] if spark is None else [spark.conf.get(name, None) for name in _CLASSES]
    return [value for value in found if value is not None]


def foreign_setting(
    offsets: str, own: Own = lambda _: None, named: Collection[str] = ()
) -> str | None:
    """Which setting of an offset log's entry is not taken, in words; None when all are.

    ``named`` are values that the user vouches for, whichever setting has them.
    """
    try:
        settings = _pinned(offsets)
    except (*UNREADABLE, TypeError, AttributeError):
        return "its settings cannot be read"
    return _foreign({name: value for name, value in settings.items() if value not in named}, own)


def require_known_settings(
    files: CheckpointTexts, batches: Iterable[int], spark: SparkSession
) -> None:
    """:class:`DamageError` when offset log entries of a directory have settings that are not taken.

    Spark would use them, in a session of ``spark``, to run a batch after these or to read state.
    """
    for batch in dict.fromkeys(batches):
        path = f"offsets/{batch}"
        text = files.read_text(path)
        if text is not None and (why := foreign_setting(text, own_settings(spark))) is not None:
            raise _damage(why, f"{files.uri}/{path}")


def require_named_classes(
    files: CheckpointTexts, batches: Iterable[int], named: Collection[str]
) -> None:
    """:class:`RefusedError` when offset log entries of a directory have other classes than Spark's
    own and those that the user has named.
    """
    for batch in batches:
        path = f"offsets/{batch}"
        why = foreign_setting(files.read_text(path) or "", named=named)
        if why is not None:
            raise RefusedError(
                f"the offset log has a setting that Spark does not write there: {why}",
                where=path,
                hint="A Spark that starts on the directory makes an object of any class that is "
                "named there. If it is yours, say so: --own-class CLASS, or in a program the same "
                "setting of the session.",
            )


def for_session(pinned: Mapping[str, str], spark: SparkSession) -> dict[str, str]:
    """Pinned settings that are to be those of a session; :class:`DamageError` as above."""
    if (why := _foreign(pinned, own_settings(spark))) is not None:
        raise _damage(why, "")
    return {name: value for name, value in pinned.items() if name.startswith(_OF_SQL)}


def _damage(why: str, where: str) -> DamageError:
    return DamageError(
        f"the offset log has a setting that Spark does not write there: {why}",
        where=where,
        hint="Spark would make an object of any class that is named there. For a state store "
        "provider or codec of your own, set the same in the session.",
    )


def _foreign(settings: Mapping[str, str], own: Own) -> str | None:
    for name, value in settings.items():
        if not _is_known(name, value) and value != own(name):
            return f"it sets {name[:_LONGEST_SHOWN]} to {value[:_LONGEST_SHOWN]!r}"
    return None


def _pinned(offsets: str) -> dict[str, str]:
    _, metadata, *_ = [*log_lines(offsets), "", ""]
    conf = decode_unambiguous(metadata).get("conf", {}) if metadata.strip() else {}
    return {name: _text(value) for name, value in conf.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise TypeError("a setting is no text")
    return str(value)


def _is_known(name: str, value: str) -> bool:
    if name == STATE_PROVIDER:
        return value in _PROVIDERS
    if name == STATE_CODEC:
        return value.lower() in _SHORT or value in _CODECS
    return _PLAIN.fullmatch(value) is not None
