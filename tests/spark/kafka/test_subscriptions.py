"""Which topics a Kafka source is declared to read, by its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from seamark.capture.declared_inputs import DeclaredInput
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.spark.kafka.sources import KafkaSources
from seamark.spark.kafka.subscriptions import Subscription, subscription_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def declared(spark: object = None, **options: str) -> Subscription:
    found = subscription_of(spark, options)
    assert found is not None
    return found


def test_topics_are_read_with_all_of_their_partitions() -> None:
    topics = declared(subscribe=" trades , symbols,")
    assert topics.reads("trades", 0)
    assert topics.reads("symbols", 70)
    assert not topics.reads("salaries", 0)
    assert not topics.reads("", 0)


def test_of_assigned_topics_only_the_partitions_are_read() -> None:
    topics = declared(assign='{"trades":[0,2]}')
    assert topics.reads("trades", 2)
    assert not topics.reads("trades", 1)
    assert not topics.reads("salaries", 0)


def test_options_that_spark_refuses_declare_nothing() -> None:
    assert subscription_of(None, {}) is None
    for wrong in ("[]", "{", '{"trades":0}'):
        assert subscription_of(None, {"assign": wrong}) is None


@pytest.mark.warm
def test_a_pattern_stands_for_whole_names_and_for_no_topic_of_kafka_itself(
    spark: SparkSession,
) -> None:
    topics = declared(spark, subscribepattern="trades-[a-z&&[^x]]+")
    assert topics.reads("trades-eu", 0)
    assert not topics.reads("trades-x", 0)  # classes are intersected in Java only
    assert not topics.reads("old-trades-eu", 0)
    assert not topics.reads("trades-eu-salaries", 0)
    everything = declared(spark, subscribepattern=".*")
    assert everything.reads("any", 0)
    assert not everything.reads("__consumer_offsets", 0)
    assert not declared(spark, subscribepattern="(").reads("(", 0)


def test_each_kafka_source_of_a_pipeline_has_its_own_topics() -> None:
    servers = {"kafka.bootstrap.servers": "k:9092"}
    given = {"a": {**servers, "subscribe": "trades"}, "b": {"path": "/in"}, "c": servers}
    subscriptions = KafkaSources(None, given).subscriptions
    assert subscriptions == {"a": Subscription("subscribe=trades", frozenset({"trades"}))}
    identity = PipelineIdentity(
        name="p", structure={}, leaves=("b", "a", "b", "a"), subscriptions=subscriptions
    )
    assert identity.inputs == [
        DeclaredInput("b", None, (0, 2)),
        DeclaredInput("a", None, (1, 3), subscriptions["a"]),
    ]
