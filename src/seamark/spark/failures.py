"""What Spark says when a query fails, in words that a user can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from seamark._redaction import redacted
from seamark.errors import RefusedError, SeamarkError, SourceUnavailableError
from seamark.spark.connectors import missing_connector
from seamark.spark.error_transport import arrived

_LONGEST: Final = 600


_RAISED: Final = re.compile(
    r"^(?:\s*Caused by: |: |.*?: )?((?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error))\b",
    re.MULTILINE,
)


@dataclass(frozen=True)
class _Known:
    """A failure that is recognised, and what to do about it."""

    pattern: re.Pattern[str]
    what: str
    hint: str
    error: type[SeamarkError] = SeamarkError


_KAFKA: Final = r"org\.apache\.kafka\.common\.errors\."

_BY_CLASS: Final = (
    _Known(
        re.compile(_KAFKA + r"(?:OffsetOutOfRange|LogTruncation)"),
        "rows that the next epoch needs are gone from a source",
        "The source has deleted them. Restore its data, or start over from what is left with a new "
        "store or policy='auto_reset'.",
    ),
    _Known(
        re.compile(_KAFKA + r"(?:UnknownTopic|InvalidTopic)"),
        "Kafka does not know a topic",
        "Create it, or mend the option subscribe, subscribePattern or assign of the source.",
        SourceUnavailableError,
    ),
    _Known(
        re.compile(_KAFKA + r"(?:\w*AuthenticationException|IllegalSaslState)"),
        "Kafka refuses the login",
        "Check the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.* of the source.",
        SourceUnavailableError,
    ),
    _Known(
        re.compile(_KAFKA + r"\w*AuthorizationException"),
        "Kafka does not allow a topic or group to be read",
        "The user of kafka.sasl.jaas.config needs READ and DESCRIBE on the topics and groups.",
        SourceUnavailableError,
    ),
    _Known(
        re.compile(_KAFKA + r"(?:Timeout|Disconnect|Network|BrokerNotAvailable)"),
        "Kafka does not answer",
        "Check the option kafka.bootstrap.servers of the source, and that brokers, and the "
        "addresses that they advertise, can be reached from the driver and the executors.",
        SourceUnavailableError,
    ),
    _Known(
        re.compile(r"org\.apache\.kafka\.common\.config\.ConfigException"),
        "Kafka's client cannot use its options",
        "Check the options kafka.* of the source, first of all kafka.bootstrap.servers: host:port, "
        "of hosts whose names are known here.",
        SourceUnavailableError,
    ),
    _Known(
        re.compile(
            r"java\.net\.(?:Connect|UnknownHost|NoRouteToHost|SocketTimeout)Exception"
            r"|java\.nio\.channels\.UnresolvedAddressException"
        ),
        "a server that the query reads from or writes to does not answer",
        "Check its address in the options of the sources and sinks, and that it can be reached.",
        SourceUnavailableError,
    ),
)
"""Recognised by the class of an exception in the chain of causes."""

_BY_TEXT: Final = (
    _Known(
        re.compile(
            r"failOnDataLoss|OffsetOutOfRange|KafkaDataLoss|KAFKA_DATA_LOSS"
            r"|data may (?:have been|be) (?:lost|missed)"
        ),
        _BY_CLASS[0].what,
        _BY_CLASS[0].hint,
    ),
    _Known(
        re.compile(r"FAILED_READ_FILE|FileNotFoundException|PATH_NOT_FOUND|does not exist"),
        "a file that an epoch was planned to read is gone",
        "Bring the file back: the epoch runs again on exactly the rows that it was planned for.",
    ),
    _Known(
        re.compile(r"STATE_STORE_\w*SCHEMA_\w*|STATE_SCHEMA_\w*|StateSchemaNotCompatible"),
        "the state in the checkpoint does not fit what the pipeline computes now",
        "Spark cannot load state of another shape. Undo the change of keys, functions or columns, "
        "or give the changed pipeline a store of its own, or start over with policy='auto_reset'.",
        RefusedError,
    ),
    _Known(
        re.compile(r"CANNOT_LOAD_STATE_STORE|STATE_STORE_"),
        "Spark cannot load its state",
        "Start again: the working copy is compared with the checkpoint and rebuilt if it differs.",
    ),
    _Known(
        re.compile(r"No space left on device"),
        "a disk is full",
        "Make room and start again; nothing is lost.",
    ),
)
"""Recognised by a condition or a phrase of Spark's message."""


def explained(error: Exception, addresses: Mapping[str, str] | None = None) -> SeamarkError:
    """An error of Spark's as one of ours, with what happened and what to do next.

    One of ours that was raised in a Python process of Spark's comes back as it was. ``addresses``
    says where each source is read from, to be named where one does not answer.
    """
    raised = arrived(str(error), redacted)
    if raised is not None:
        raised.__cause__ = error
        return raised
    text = redacted(": ".join([*getattr(error, "__notes__", []), str(error)]))
    explanation = missing_connector(text) or _recognised(text, error, addresses or {})
    explanation.__cause__ = error
    return explanation


def _recognised(text: str, error: Exception, addresses: Mapping[str, str]) -> SeamarkError:
    classes = exception_classes(f"{text}\n{getattr(error, '_stackTrace', '')}")
    data_lost, *others = _BY_TEXT
    if data_lost.pattern.search(text):
        return data_lost.error(data_lost.what, where=_short(text), hint=data_lost.hint)
    for known in _BY_CLASS:
        if any(known.pattern.match(name) for name in classes):
            # any other server is named by Spark's own text
            at = addresses if "kafka" in known.pattern.pattern else {}
            places = "; ".join(f"source {name!r}: {place}" for name, place in at.items())
            where = f"{places}. {_short(text)}" if places else _short(text)
            return known.error(known.what, where=where, hint=known.hint)
    for known in others:
        if known.pattern.search(text):
            return known.error(known.what, where=_short(text), hint=known.hint)
    return SeamarkError(
        "Spark stopped the query",
        where=_short(text),
        hint="Nothing decided is lost. Fix the cause and start again.",
    )


def exception_classes(text: str) -> list[str]:
    """The Java classes of an exception and its causes, outermost first, from its stack trace."""
    return list(dict.fromkeys(_RAISED.findall(text)))


def is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error comes from Spark or its JVM."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def refused(error: Exception) -> SeamarkError:
    """What Spark refuses to plan, in words."""
    text = redacted(str(error))
    explanation = missing_connector(text) or RefusedError(
        "Spark cannot run these outputs as one query",
        where=_short(text),
        hint="A pipeline has one output mode for all its outputs. append takes joins, "
        "deduplication, and aggregations with a watermark; update takes inner joins and "
        "aggregations; complete takes aggregations. Outputs that need another mode belong into a "
        "pipeline of their own.",
    )
    explanation.__cause__ = error
    return explanation


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("at ", "...", "=== "))]
    joined = " ".join(plain)
    return joined if len(joined) <= _LONGEST else joined[: _LONGEST - 1] + "…"
