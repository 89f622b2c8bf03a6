"""What a user may tell the client of Kafka, and that no secret of it comes back out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.errors import InvalidInputError, RefusedError, StoreUnavailableError
from seamark.sinks import KafkaSink
from seamark.sinks.kafka.cluster import KafkaCluster, checked_options

pytest.importorskip("confluent_kafka")

SECRETS = {
    "sasl.password": "hunter2hunter2",
    "ssl.key.password": "k3y-pa55phrase",
    "ssl.keystore.password": "st0re-pa55phrase",
    "ssl.key.pem": "-----BEGIN PRIVATE KEY-----abcdef",
    "sasl.oauthbearer.client.secret": "cl1ent-secr3t",
}


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "enable.idempotence",
        "transactional.id",
        "isolation.level",
        "bootstrap.servers",
        "message.timeout.ms",
        "plugin.library.paths",
    ],
)
def test_an_option_that_would_void_the_guarantee_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}' cannot be given"):
        checked_options({name: "1"})


def test_an_option_is_a_plain_value_and_the_error_does_not_repeat_it() -> None:
    with pytest.raises(InvalidInputError) as refused:
        checked_options({"sasl.password": ["hunter2hunter2"]})
    assert "sasl.password" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_unknown_option_is_named_without_its_value() -> None:
    cluster = KafkaCluster("127.0.0.1:1", {"security.protocoll": "x", **SECRETS})
    with pytest.raises(InvalidInputError, match=r"security\.protocoll") as refused:
        cluster.admin()
    assert not [secret for secret in SECRETS.values() if secret in str(refused.value)]


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_described_or_shown_in_an_error(name: str, tmp_path: Path) -> None:
    secret = SECRETS[name]
    sink = KafkaSink("127.0.0.1:1", "t", staging=tmp_path, options={name: secret})
    assert secret not in repr(sink.describe())
    assert secret not in KafkaCluster("127.0.0.1:1", {name: secret}).redacted(f"wrong: {secret}!")


class Said:
    """An error as the client has it."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_TRANSPORT", StoreUnavailableError),
        ("_TIMED_OUT", StoreUnavailableError),
        ("_FENCED", StoreUnavailableError),
        ("_AUTHENTICATION", RefusedError),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", RefusedError),
        ("INVALID_TRANSACTION_TIMEOUT", InvalidInputError),
        ("_INVALID_ARG", InvalidInputError),
    ],
)
def test_only_what_may_be_otherwise_next_time_counts_as_unavailable(
    name: str, kind: type[Exception]
) -> None:
    error: Any = Said(name, "said with hunter2hunter2")
    made = KafkaCluster("127.0.0.1:1", SECRETS).error_for(error, "writing to")
    assert type(made) is kind
    assert "hunter2" not in str(made)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": None},
        {"shards": 0},
        {"create_partitions": 0},
        {"transaction_timeout": 0.5},
        {"value": []},
        {"topic": ""},
        {"staging": "s3://bucket/staging"},
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"topic": "t", "staging": tmp_path, **wrong}
    with pytest.raises(InvalidInputError):
        KafkaSink("127.0.0.1:1", **given)
