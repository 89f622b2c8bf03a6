"""The dashboard and the alerts as the tests read them, and the names in their expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry

DASHBOARDS = Path(__file__).parents[3] / "dashboards"
ALERTS = DASHBOARDS / "alerts.yml"
KAFKA_ONLY = frozenset(
    f"seamark_{name}"
    for name in (
        "checkpoint_lag_rows",
        "checkpoint_position_age_seconds",
        "source_lag_rows",
        "source_measured_timestamp_seconds",
        "source_position_age_seconds",
        "source_retention_left_seconds",
    )
)
"""What only a source of Kafka has."""
OF_PROMETHEUS = frozenset({"job", "instance", "le"})
"""Labels that Prometheus adds."""


class Query(NamedTuple):
    """An expression, and where it stands."""

    place: str
    expression: str

    @property
    def names(self) -> set[str]:
        """The metrics that it asks for."""
        return set(re.findall(r"seamark_[a-z_]+", self.expression))

    @property
    def labels(self) -> set[str]:
        """The labels that it asks for."""
        groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", self.expression)
        grouped = {label for group in groups for label in re.split(r"[,\s]+", group) if label}
        return grouped | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", self.expression))

    def filled_in(self, interval: str = "1m") -> str:
        """The expression as Grafana sends it."""
        return self.expression.replace("$__rate_interval", interval).replace("$pipeline", ".*")


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DASHBOARDS / "seamark.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[Query]:
    return [
        Query(f"{panel['title']} {target['refId']}", target["expr"])
        for panel in panels()
        for target in panel["targets"]
    ]


def alerts() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(ALERTS.read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alert_queries() -> list[Query]:
    return [Query(rule["alert"], rule["expr"]) for rule in alerts()]


def all_queries() -> list[Query]:
    return [*dashboard_queries(), *alert_queries()]


def exported_names(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Every name that can be asked for, with its labels; also of metrics without a value yet."""
    found: dict[str, set[str]] = {}
    for family, labels in _families(registry):
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        for ending in endings.get(family.type, [""]):
            found[f"{family.name}{ending}"] = labels
    return found


def _families(registry: CollectorRegistry) -> Iterator[tuple[Any, set[str]]]:
    collectors: Iterable[Any] = registry._collector_to_names
    for collector in collectors:
        for family in collector.collect():
            yield family, set(collector._labelnames)


def names_with_values(registry: CollectorRegistry) -> set[str]:
    """Every name of which there is a series."""
    return {sample.name for family in registry.collect() for sample in family.samples}
