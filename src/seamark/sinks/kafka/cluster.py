"""How to reach a Kafka cluster: addresses, checked client options, and errors without secrets.

Every client of the sink comes from here.
``confluent-kafka`` is imported by the first client, not before.

Tests: ``tests/sinks/test_kafka_cluster.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from seamark._common.checks import check_text
from seamark._common.logs import logger_named
from seamark._redaction import Redactor, is_secret_name
from seamark.errors import InvalidInputError, RefusedError, SeamarkError, StoreUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

log = logger_named("seamark.kafka")

REQUEST_SECONDS: Final = 30.0
"""How long one question to the cluster may take."""

_OURS: Final = {
    "bootstrap.servers": "it is given as bootstrap",
    "metadata.broker.list": "the addresses are given as bootstrap",
    "transactional.id": "it decides who may write an epoch",
    "transaction.timeout.ms": "it is given as transaction_timeout",
    "enable.idempotence": "rows would be lost or doubled without it",
    "enable.gapless.guarantee": "rows would be lost or doubled without it",
    "acks": "an epoch is shown only when all replicas have it",
    "request.required.acks": "an epoch is shown only when all replicas have it",
    "retries": "retries are what makes a lost connection harmless",
    "message.send.max.retries": "retries are what makes a lost connection harmless",
    "max.in.flight": "it is fixed by idempotence",
    "max.in.flight.requests.per.connection": "it is fixed by idempotence",
    "message.timeout.ms": "it follows from transaction_timeout",
    "delivery.timeout.ms": "it follows from transaction_timeout",
    "message.max.bytes": "it follows from the topics' own limits",
    "batch.size": "it follows from the topics' own limits",
    "delivery.report.only.error": "Seamark reads the reports itself",
    "isolation.level": "the ledger can only be read with read_committed",
    "group.id": "Seamark joins no consumer group",
    "enable.auto.commit": "Seamark joins no consumer group",
    "enable.auto.offset.store": "Seamark joins no consumer group",
    "auto.offset.reset": "Seamark says itself where it reads",
    "enable.partition.eof": "Seamark needs it to find the end of its ledger",
    "allow.auto.create.topics": "a missing topic is refused, or created on purpose",
    "plugin.library.paths": "it would load foreign code into the driver",
}
"""Options that a user may not give, and why."""

_CONNECTION: Final = (
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "client.",
    "broker.",
    "metadata.",
    "topic.metadata.",
    "reconnect.",
    "retry.",
    "connections.",
    "api.",
    "resolve.",
    "receive.",
    "log",
    "debug",
    "oauth_cb",
)
"""What the options begin with that every kind of client knows; the rest is for producers."""

_LOGIN: Final = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_FAULTY_SETTING: Final = frozenset({"_INVALID_ARG", "_CONFLICT", "_NOT_IMPLEMENTED"})


class KafkaCluster:
    """A cluster, by its addresses and the options of the client.

    ``options`` have the names of librdkafka, such as ``security.protocol``.
    :class:`InvalidInputError` for one that would void a guarantee.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], options: Mapping[str, Any] | None = None
    ) -> None:
        servers = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        self.bootstrap = check_text(servers, "bootstrap").replace(" ", "")
        self._options = checked_options(options or {})
        secrets = {name: value for name, value in self._options.items() if _is_secret(name)}
        self._redact = Redactor({f"secret.{name}": str(value) for name, value in secrets.items()})

    def redacted(self, text: str) -> str:
        """A text without any password or key of the options."""
        return self._redact(text)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer; settings of ours win over options of the user."""
        confluent_kafka = _library()
        with self.translating("opening a producer for"):
            made: Producer = confluent_kafka.Producer(
                {**self._options, **self._common(), **settings}, logger=_library_log()
            )
            return made

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """A consumer; settings of ours win over options of the user."""
        confluent_kafka = _library()
        with self.translating("opening a consumer for"):
            made: Consumer = confluent_kafka.Consumer(
                {**self._for_connecting(), **settings}, logger=_library_log()
            )
            return made

    def admin(self) -> AdminClient:
        """A client for questions about topics, offsets and settings."""
        _library()
        from confluent_kafka.admin import AdminClient

        with self.translating("opening a client for"):
            return AdminClient(self._for_connecting(), logger=_library_log())

    @contextmanager
    def translating(
        self, doing: str, unavailable: type[SeamarkError] = StoreUnavailableError
    ) -> Iterator[None]:
        """Turn the client's exceptions into errors that say what to do, without secrets.

        ``unavailable`` is the class for all that may be otherwise at the next try.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.error_for(error.args[0], doing, unavailable) from None

    def error_for(
        self, error: KafkaError, doing: str, unavailable: type[SeamarkError] = StoreUnavailableError
    ) -> SeamarkError:
        """The error to raise for one of the client."""
        code, said = error.name(), self.redacted(error.str())
        what, where = f"{doing} Kafka failed: {said} ({code})", self.bootstrap
        if code in _LOGIN:
            return RefusedError(
                what,
                where=where,
                hint="Check the user, the password and the ACLs: docs/kafka-sink.md lists them.",
            )
        if code in _FAULTY_SETTING:
            return InvalidInputError(what, where=where, hint="Check the options of the client.")
        if code == "INVALID_TRANSACTION_TIMEOUT":
            return InvalidInputError(
                f"{doing} Kafka failed: the brokers allow no transaction_timeout as long as this",
                where=where,
                hint="Give a shorter one, or raise transaction.max.timeout.ms of the brokers.",
            )
        return unavailable(what, where=where, hint="Is the cluster up, and reachable from here?")

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "client.id": self._client_id()}

    def _client_id(self) -> str:
        return str(self._options.get("client.id", "seamark"))

    def _for_connecting(self) -> dict[str, Any]:
        known = {n: v for n, v in self._options.items() if n.startswith(_CONNECTION)}
        return {**known, **self._common()}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options when they are names and plain values that change no guarantee.

    :class:`InvalidInputError` otherwise; it never repeats a value.
    """
    if not isinstance(options, Mapping):
        raise InvalidInputError("the options of a Kafka client are a mapping of names to values")
    for name, value in options.items():
        check_text(name, "the name of an option")
        if reason := _OURS.get(name):
            raise InvalidInputError(f"the option {name!r} cannot be given: {reason}")
        if name == "oauth_cb" and callable(value):
            continue
        if not isinstance(value, str | int | float | bool):
            raise InvalidInputError(
                f"the option {name!r} must be a text, a number or a bool",
                hint="The names are those of librdkafka: 'security.protocol', 'sasl.username', …",
            )
    return dict(options)


def _is_secret(name: str) -> bool:
    return is_secret_name(name) or name.endswith(".pem") or name == "sasl.oauthbearer.config"


def admin_module() -> Any:
    """``confluent_kafka.admin``, whose types say less than it has."""
    _library()
    import confluent_kafka.admin

    return confluent_kafka.admin


def _library() -> Any:
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        raise InvalidInputError(
            "Kafka needs confluent-kafka", hint="pip install 'seamark[kafka]'"
        ) from None
    return confluent_kafka


def _library_log() -> logging.Logger:
    """Where librdkafka's own lines go, which would otherwise be printed."""
    return log.getChild("librdkafka")
