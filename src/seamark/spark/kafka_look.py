"""A look at Kafka before a query starts: whether it answers, and which topics it has.

Spark itself tries for minutes before it gives up, and then names neither the server nor the topic.
The look is made by Kafka's own client in Spark's JVM, with the options of the source.

Tests: ``tests/integration/test_kafka.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark.errors import SourceUnavailableError
from seamark.spark.failures import explained

log = logger_named("seamark.pipeline")

SERVERS: Final = "kafka.bootstrap.servers"
_TOKENS: Final = "spark.kafka.clusters."
_GRACE: Final = 5
"""Seconds more than Kafka's own limit, for its client to say so itself."""


def address_of(options: Mapping[str, str]) -> str:
    """Where a source is read from, to be named in errors; empty when nothing is known."""
    servers = options.get(SERVERS)
    if not servers:
        return ""
    read = next((k for k in ("subscribe", "subscribepattern", "assign") if k in options), None)
    topics = f", {read}={options[read]}" if read is not None else ""
    return redacted(f"{SERVERS}={servers}{topics}")


def topic_ids(spark: Any, name: str, options: Mapping[str, str], patience: float) -> dict[str, str]:
    """The id of each topic that a source reads, which another topic of the same name has not.

    :class:`SourceUnavailableError` when Kafka does not answer in time, refuses the login, or does
    not know a topic. What else goes wrong here is left for Spark to find.
    """
    if any(key.startswith(_TOKENS) for key, _ in spark.sparkContext.getConf().getAll()):
        return {}  # logins by delegation tokens are Spark's own business
    try:
        client = _client(spark.sparkContext._jvm, options, patience)
        try:
            return _described(spark.sparkContext._jvm, client, options, patience)
        finally:
            client.close(spark.sparkContext._jvm.java.time.Duration.ofSeconds(1))
    except Py4JJavaError as error:
        explanation = explained(error, {name: address_of(options)})
        if isinstance(explanation, SourceUnavailableError):
            raise explanation from error
        log.info("source %s was not looked at: %s", name, explanation)
    except (Py4JError, TypeError) as error:  # no client of Kafka's in this JVM
        log.info("source %s was not looked at: %s", name, redacted(str(error)))
    return {}


def _client(jvm: Any, options: Mapping[str, str], patience: float) -> Any:
    given = jvm.java.util.Properties()
    for key, value in options.items():
        if key.startswith("kafka."):
            given.setProperty(key.removeprefix("kafka."), value)
    limit = str(max(int(patience * 1000), 1000))
    given.setProperty("request.timeout.ms", limit)
    given.setProperty("default.api.timeout.ms", limit)
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(given)


def _described(
    jvm: Any, client: Any, options: Mapping[str, str], patience: float
) -> dict[str, str]:
    seconds, unit = int(patience) + _GRACE, jvm.java.util.concurrent.TimeUnit.SECONDS
    topics = jvm.java.util.ArrayList()
    if "subscribepattern" in options:
        known = client.listTopics().names().get(seconds, unit)
        pattern = jvm.java.util.regex.Pattern.compile(options["subscribepattern"])
        names = [name for name in known if pattern.matcher(name).matches()]
    else:
        names = named_topics(options)
    for name in names:
        topics.add(name)
    described = client.describeTopics(topics).allTopicNames().get(seconds, unit)
    return {str(name): str(described.get(name).topicId().toString()) for name in described}


def named_topics(options: Mapping[str, str]) -> list[str]:
    """The topics of ``subscribe`` or ``assign``."""
    if "subscribe" in options:
        return [topic for topic in re.split(r"\s*,\s*", options["subscribe"].strip()) if topic]
    try:
        return list(json.loads(options.get("assign", "{}")))
    except (ValueError, TypeError):
        return []  # Spark will say what is wrong with it
