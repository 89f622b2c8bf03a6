"""What Spark says when something fails or is refused, in words that a user can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeGuard

from seamark._common.text import shortened
from seamark._redaction import redacted
from seamark.errors import (
    RefusedError,
    SeamarkError,
    SourceSilentError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from seamark.spark.error_transport import arrived
from seamark.spark.missing_connectors import missing_connector

# Texts have any length: no pattern may go through a run of anything once for each place in it.
_RAISED: Final = re.compile(
    r"^(?:[^\S\n]*+Caused by: |: |.*?: )?((?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error))\b",
    re.MULTILINE,
)
_KAFKA: Final = r"org\.apache\.kafka\.common\.errors\."
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z][A-Z0-9_]+)*)\] ?([^\n]*)")
_STATE: Final = re.compile(r"(?<!\s)\s*+SQLSTATE: \w++\s*+$")
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+): ([^\n]+)", re.MULTILINE)
_CALL: Final = re.compile(r"^An error occurred while calling [^\n]*\n: (?:[\w$]+\.)*")
_NO_MEMORY: Final = re.compile(
    r"OUT_OF_MEMORY|OutOfMemoryError|SparkContext was shut ?down|stopped SparkContext"
    r"|SparkContext\.\w+\(\)\" is null"
    r"|Error while sending or receiving|Answer from Java side is empty|connect to the Java server"
)
"""Without memory Spark ends its own process; what is heard of that depends on who asks first."""
_ADVICE: Final = (" If the stream job is restarted with ", "clear the existing ")
"""Spark's own remedy for state that cannot be read is to throw it away."""


@dataclass(frozen=True)
class _Known:
    """A failure that is recognised, and what to do about it."""

    pattern: str
    what: str
    hint: str
    error: type[SeamarkError] = SeamarkError
    is_silence: bool = False
    """Whether a server only did not answer: it may come back by itself."""
    is_outage: bool = False
    """Whether it is that as well for a server that has answered before."""


_BY_CLASS: Final = (
    _Known(
        _KAFKA + r"(?:OffsetOutOfRange|LogTruncation)",
        "rows that the next epoch needs are gone from a source",
        "The source has deleted them. Restore its data, or start over from what is left with a new "
        "store or policy='auto_reset'.",
    ),
    _Known(
        _KAFKA + r"(?:UnknownTopic|InvalidTopic)",
        "Kafka does not know a topic",
        "Create it, or fix the option subscribe, subscribePattern or assign of the source.",
        SourceUnavailableError,
    ),
    _Known(
        _KAFKA + r"(?:\w*AuthenticationException|IllegalSaslState)",
        "Kafka refuses the login",
        "Check the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.* of the source.",
        SourceUnavailableError,
    ),
    _Known(
        _KAFKA + r"\w*AuthorizationException",
        "Kafka does not allow a topic or group to be read",
        "The user of kafka.sasl.jaas.config needs READ and DESCRIBE on the topics and groups.",
        SourceUnavailableError,
    ),
    _Known(
        _KAFKA + r"(?:Timeout|Disconnect|Network|BrokerNotAvailable|LeaderNotAvailable)",
        "Kafka does not answer",
        "Check the option kafka.bootstrap.servers of the source, and that brokers, and the "
        "addresses that they advertise, can be reached from the driver and the executors.",
        SourceUnavailableError,
        is_silence=True,
    ),
    _Known(
        r"kafka\.UnknownHosts",
        "Kafka's client cannot use its options: no server in them has a name that is known here",
        "Check the option kafka.bootstrap.servers of the source: host:port, of hosts whose names "
        "are known here.",
        SourceUnavailableError,
        is_outage=True,
    ),
    _Known(
        r"org\.apache\.kafka\.common\.config\.ConfigException",
        "Kafka's client cannot use its options",
        "Check the options kafka.* of the source, first of all kafka.bootstrap.servers: host:port, "
        "of hosts whose names are known here.",
        SourceUnavailableError,
    ),
    _Known(
        r"seamark\.errors\.SourceSilentError",
        "a table that is to be read does not answer",
        "Check its address in the options of the source, and that it can be reached.",
        SourceSilentError,
    ),
    _Known(
        r"java\.net\.(?:Connect|UnknownHost|NoRouteToHost|SocketTimeout)Exception"
        r"|java\.nio\.channels\.UnresolvedAddressException",
        "a server that the query reads from or writes to does not answer",
        "Check its address in the options of the sources and sinks, and that it can be reached.",
        SourceUnavailableError,
    ),
)
"""Recognised by the class of an exception in the chain of causes."""

_NO_ROWS: Final = re.compile(r"Cannot fetch record for offset \d+ in \d+ milliseconds")
"""What an executor says, by a class of Java's own, when a broker of Kafka's does not answer it."""

_NO_HOSTS: Final = re.compile(r"No resolvable bootstrap urls")
"""What Kafka's client says, as of wrong options, when the names of all servers are unknown. In a
cluster like Kubernetes the name of a broker that is away is unknown too."""

_DISK_FULL: Final = _Known(
    r"No space left on device|Disk quota exceeded",
    "a disk is full",
    "Make room and start again; nothing is lost.",
    StoreUnavailableError,
)
_ROWS_LOST: Final = _Known(
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND",
    "an executor that held rows was lost",
    "They were nowhere else. Nothing was changed: do it again.",
)

_FIRST: Final = (
    _Known(
        r"failOnDataLoss|OffsetOutOfRange|KafkaDataLoss|KAFKA_DATA_LOSS"
        r"|data may (?:have been|be) (?:lost|missed)",
        _BY_CLASS[0].what,
        _BY_CLASS[0].hint,
    ),
    _Known(
        "Python worker failed to connect back",
        "a Python process of Spark's did not start in time",
        "Nothing decided is lost: start again. The machine may have too much to do, or a firewall "
        "may stand between processes on it.",
    ),
)
"""Recognised by a phrase of Spark's message, whatever classes are named in it."""

_BY_TEXT: Final = (
    _DISK_FULL,  # whatever Spark could not load or write for it
    _Known(
        r"FAILED_READ_FILE|FileNotFoundException|PATH_NOT_FOUND|does not exist",
        "a file that an epoch was planned to read is gone",
        "Put the file back: the epoch runs again on exactly the rows that it was planned for.",
    ),
    _Known(
        r"Wrong basePath",
        "a source of files is to go on in another folder, and Spark looks into its old one first",
        "Give the new path a pattern, as in '/data/in2/*': then Spark does not ask whether the "
        "files of the last epoch are below it. Or name the folder of before. Nothing is lost.",
        RefusedError,
    ),
    _Known(
        r"STATE_STORE_(?:(?!STATE_STORE_)\w)*SCHEMA_|STATE_SCHEMA_\w*|StateSchemaNotCompatible",
        "the state in the checkpoint does not fit what the pipeline computes now",
        "Spark cannot load state of another shape. Undo the change of keys, functions or columns, "
        "or give the changed pipeline a store of its own, or start over with policy='auto_reset'.",
        RefusedError,
    ),
    _Known(
        r"CANNOT_LOAD_STATE_STORE|STATE_STORE_",
        "Spark cannot load its state",
        "Start again: the working copy is compared with the checkpoint and rebuilt if it differs.",
    ),
    _ROWS_LOST,
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
    trace = f"{text}\n{getattr(error, '_stackTrace', '')}"
    classes = exception_classes(trace)
    for known in _FIRST:
        if re.search(known.pattern, text):
            return known.error(known.what, where=_short(text), hint=known.hint)
    if _NO_ROWS.search(text):
        classes.append("org.apache.kafka.common.errors.TimeoutException")
    if _NO_HOSTS.search(trace):
        classes.append("kafka.UnknownHosts")
    for known in _BY_CLASS:
        if any(re.match(known.pattern, name) for name in classes):
            # any other server is named by Spark's own text
            at = addresses if "kafka" in known.pattern else {}
            places = "; ".join(f"source {name!r}: {place}" for name, place in at.items())
            where = f"{places}. {_short(text)}" if places else _short(text)
            return known.error(known.what, where=where, hint=known.hint)
    for known in _BY_TEXT:
        if re.search(known.pattern, text):
            return known.error(known.what, where=_short(text), hint=known.hint)
    return SeamarkError(
        "Spark stopped the query",
        where=_short(text),
        hint="Nothing decided is lost. Fix the cause and start again.",
    )


def unknown_topics(topics: Sequence[str], addresses: Mapping[str, str]) -> SeamarkError:
    """The error for topics that Kafka does not know, as :func:`explained` words it."""
    text = f": org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {topics[0]}"
    return explained(Exception(text), addresses)


def are_rows_lost(error: SeamarkError) -> bool:
    """Whether an error of :func:`explained` says that an executor has taken kept rows with it."""
    return error.what == _ROWS_LOST.what


def is_silence(error: BaseException) -> bool:
    """Whether an error of :func:`explained` says that a source did not answer, and nothing else."""
    return _is_one(error, [known for known in _BY_CLASS if known.is_silence])


def is_outage(error: BaseException) -> bool:
    """Whether an error of :func:`explained` says that a source which did answer is away."""
    if isinstance(error, SourceSilentError):
        return True
    return _is_one(error, [known for known in _BY_CLASS if known.is_silence or known.is_outage])


def _is_one(error: BaseException, failures: Sequence[_Known]) -> bool:
    return isinstance(error, SourceUnavailableError) and error.what in {
        known.what for known in failures
    }


def exception_classes(text: str) -> list[str]:
    """The Java classes of an exception and its causes, outermost first, from its stack trace."""
    return list(dict.fromkeys(_RAISED.findall(text)))


def is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error comes from Spark or its JVM."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def out_of_memory(said: str, where: str | None = None) -> SeamarkError | None:
    """The error for a Spark whose memory was not enough; None when it says anything else."""
    if not _NO_MEMORY.search(said):
        return None
    return SeamarkError(
        "Spark's process has ended, most likely because its memory was not enough",
        where=where,
        hint="It proves no damage. Give Spark more: PYSPARK_SUBMIT_ARGS='--driver-memory 4g "
        "pyspark-shell'. For files of unknown origin run 'seamark spark inspect --read-data' "
        "first: they may claim to be far larger than they are.",
    )


def refused(error: Exception) -> SeamarkError:
    """What Spark refuses to plan, in words."""
    return _not_planned(error, "Spark cannot run these outputs as one query")


def output_refused(error: Exception, name: str, output_mode: str) -> SeamarkError:
    """What Spark refuses to plan of one output, in words."""
    return _not_planned(error, f"Spark cannot run output {name!r} in {output_mode} mode")


def _not_planned(error: Exception, what: str) -> SeamarkError:
    text = redacted(str(error))
    explanation = missing_connector(text) or RefusedError(
        what,
        where=_short(text),
        hint="A pipeline has one output mode for all its outputs. append takes joins, "
        "deduplication, and aggregations with a watermark; update takes inner joins and "
        "aggregations; complete takes aggregations, and nothing without one. Outputs that need "
        "another mode belong into a pipeline of their own.",
    )
    explanation.__cause__ = error
    return explanation


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("at ", "...", "=== "))]
    return shortened(" ".join(plain), 600)


class SparkFailure(NamedTuple):
    """An error of Spark's."""

    condition: str
    """Its stable name, like ``CANNOT_LOAD_STATE_STORE.UNCATEGORIZED``; empty when it has none."""
    line: str

    def __str__(self) -> str:
        return f"[{self.condition}] {self.line}" if self.condition else self.line


def said_by(error: Exception) -> SparkFailure:
    """The name and the first line of an error of Spark's, with its last cause if it says little."""
    text = redacted(str(error))
    match = _CONDITION.search(text)
    if match is None:
        first = next((line for line in _CALL.sub("", text).splitlines() if line.strip()), "")
        return SparkFailure("", shortened(first or type(error).__name__, 400))
    condition, line = match[1], _without_advice(_STATE.sub("", match[2])).strip()
    causes = _CAUSE.findall(text)
    if condition.endswith(".UNCATEGORIZED") and causes:
        name, said = causes[-1]
        line = f"{line} {name}: {said}"
    return SparkFailure(condition, shortened(line, 400))


def _without_advice(line: str) -> str:
    begin, end = _ADVICE
    before, _, after = line.partition(begin)
    return before if end in after else line
