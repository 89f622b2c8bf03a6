"""Options that let rows be skipped are recognised, whatever their spelling, and explained."""

from __future__ import annotations

import pytest

from seamark.spark.plans.lossy_options import (
    CHECKS_OPERATORS,
    CHECKS_STATE,
    SKIPS_NULLS,
    loss_text,
    lossy_options,
    recorded_losses,
)


@pytest.mark.parametrize(
    ("option", "value", "name"),
    [
        ("failondataloss", "false", "failOnDataLoss"),
        ("failOnDataLoss", " False ", "failOnDataLoss"),
        ("IGNOREMISSINGFILES", "true", "ignoreMissingFiles"),
        ("ignoreCorruptFiles", "TRUE", "ignoreCorruptFiles"),
        ("mode", "dropMalformed", "mode"),
        ("cleanSource", "archive", "cleanSource"),
        ("cleansource", "delete", "cleanSource"),
        ("maxFileAge", "1h", "maxFileAge"),
        ("filenameonly", "true", "fileNameOnly"),
        ("ignoreinvalidpartitionpaths", "True", "ignoreInvalidPartitionPaths"),
        ("IgnoredPathSegmentRegex", "^tmp", "ignoredPathSegmentRegex"),
        ("ignoreExtension", "false", "ignoreExtension"),
        ("skipChangeCommits", "true", "skipChangeCommits"),
        ("excluderegex", "part-0000[0-3]", "excludeRegex"),
        ("ignoreFileDeletion", "true", "ignoreFileDeletion"),
        ("streaming-skip-delete-snapshots", "true", "streaming-skip-delete-snapshots"),
        (SKIPS_NULLS, "true", SKIPS_NULLS),
        (CHECKS_OPERATORS, "FALSE", CHECKS_OPERATORS),
        (CHECKS_STATE, "false", CHECKS_STATE),
    ],
)
def test_an_option_that_may_lose_rows_is_found_and_explained(
    option: str, value: str, name: str
) -> None:
    assert lossy_options({option: value, "path": "/x"}) == {name: value}
    assert loss_text("s", name, value).startswith(f"source 's' may lose rows by {name}={value}: ")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failOnDataLoss", "true"),
        ("ignoreMissingFiles", "false"),
        ("mode", "PERMISSIVE"),
        (SKIPS_NULLS, "false"),
        (CHECKS_OPERATORS, "true"),
        (CHECKS_STATE, "true"),
        ("cleanSource", "off"),
        ("ignoreInvalidPartitionPaths", "false"),
        ("ignoredPathSegmentRegex", "^[._]"),
        ("ignoredPathSegmentRegex", ""),
        ("kafka.sasl.jaas.config", "password"),
    ],
)
def test_options_that_lose_nothing_are_left_alone(option: str, value: str) -> None:
    assert lossy_options({option: value}) == {}


def test_what_a_manifest_says_of_losses_is_told_and_odd_values_are_passed_over() -> None:
    recorded = {"sources": {"trades": {"may_lose": {"failOnDataLoss": "false"}}, "odd": "kafka"}}
    assert recorded_losses(recorded) == [loss_text("trades", "failOnDataLoss", "false")]
    odd_ones: list[object] = [None, 1, {"sources": 3}, {"sources": {"a": {"may_lose": []}}}]
    assert all(recorded_losses(odd) == [] for odd in odd_ones)
