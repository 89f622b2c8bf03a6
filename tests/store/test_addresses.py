"""One place has one address, however its service is spelled and wherever that is told."""

from __future__ import annotations

import pytest

from seamark.blobs.addresses import address_of

Place = tuple[dict[str, str], dict[str, str]]

SAME: list[Place] = [
    ({"endpoint": "http://localhost:9000"}, {}),
    ({"endpoint": "http://127.0.0.1:9000/"}, {}),
    ({"endpoint": "http://[::1]:9000"}, {}),
    ({"endpoint": "http://[::ffff:127.0.0.1]:9000"}, {}),
    ({"endpoint": "HTTP://LocalHost.:9000//"}, {}),
    ({"endpoint": "http://b.localhost:9000"}, {}),
    ({"endpoint": "http://localhost:9000/b"}, {}),
    ({}, {"AWS_ENDPOINT_URL": "http://localhost:9000"}),
    ({}, {"AWS_ENDPOINT": "http://127.0.0.1:9000/"}),
    ({"endpoint": "http://localhost:9000"}, {"AWS_ENDPOINT_URL": "http://elsewhere:1"}),
]
AMAZON: list[Place] = [
    ({}, {}),
    ({"endpoint": "https://s3.amazonaws.com"}, {}),
    ({"endpoint": "https://s3.eu-central-1.amazonaws.com/"}, {}),
    ({"endpoint": "https://b.s3.eu-central-1.amazonaws.com:443"}, {}),
]
OTHERS: list[Place] = [
    ({"endpoint": "http://localhost:9001"}, {}),
    ({"endpoint": "https://localhost"}, {}),
    ({"endpoint": "http://localhost"}, {}),
    ({"endpoint": "http://10.0.0.1:9000"}, {}),
    ({"endpoint": "http://localhost:9000/other"}, {}),
    ({"endpoint": "http://localhost:x"}, {}),
]


def address(config: dict[str, str], environment: dict[str, str]) -> tuple[str, ...]:
    return address_of("S3Store", {"bucket": "b", **config}, "/x//y/", environment)


def test_two_names_of_one_service_are_one_place() -> None:
    assert len({address(*place) for place in SAME}) == 1
    assert len({address(*place) for place in AMAZON}) == 1
    assert address(*SAME[0])[2:] == ("b", "x", "y")


def test_two_services_are_two_places() -> None:
    found = {address(*place) for place in (SAME[0], AMAZON[0], *OTHERS)}
    assert len(found) == 2 + len(OTHERS)


@pytest.mark.parametrize(
    "config",
    [
        {"account_name": "Acc"},
        {"endpoint": "https://acc.blob.core.windows.net"},
        {"endpoint": "https://acc.dfs.core.windows.net/"},
    ],
)
def test_an_account_of_azure_is_one_service(config: dict[str, str]) -> None:
    found = address_of("AzureStore", {"container_name": "c", **config}, "", {})
    assert found == ("AzureStore", "acc", "c")


def test_a_store_without_a_bucket_has_no_address() -> None:
    assert address_of("HTTPStore", {}, "x", {}) == ()
