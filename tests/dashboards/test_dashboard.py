"""The dashboard can be imported, and it and the alerts ask only for what pipelines export."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from seamark.pipeline.telemetry.metrics import PipelineMetrics
from tests.dashboards.support.expressions import (
    KAFKA_ONLY,
    OF_PROMETHEUS,
    Query,
    alerts,
    all_queries,
    dashboard,
    exported_names,
    panels,
)

UNITS = {"none", "s", "bytes", "Bps", "ops", "short"}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    registry = CollectorRegistry()
    PipelineMetrics("trades", registry)
    return exported_names(registry)


@pytest.mark.parametrize("query", all_queries(), ids=lambda query: query.place)
def test_an_expression_asks_for_metrics_and_labels_that_there_are(
    query: Query, exported: dict[str, set[str]]
) -> None:
    assert query.names
    assert query.names <= exported.keys()
    known = set().union(*(exported[name] for name in query.names)) | OF_PROMETHEUS
    assert query.labels <= known


def test_what_only_kafka_has_is_a_metric(exported: dict[str, set[str]]) -> None:
    assert exported.keys() >= KAFKA_ONLY


def test_the_dashboard_can_be_imported_into_any_grafana() -> None:
    document = dashboard()
    assert document["schemaVersion"] >= 36
    assert document["uid"]
    assert "id" not in document, "Grafana gives it one"
    variables = {each["name"]: each for each in document["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert "seamark_pipeline_info" in variables["pipeline"]["definition"]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))


def test_every_panel_says_what_it_shows_in_which_unit_and_asks_the_chosen_datasource() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            assert 'pipeline=~"$pipeline"' in target["expr"]
            assert target["legendFormat"]


def test_panels_do_not_cover_each_other() -> None:
    placed = [panel["gridPos"] for panel in dashboard()["panels"]]
    for one, other in combinations(placed, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(at["x"] + at["w"] <= 24 for at in placed)


def test_every_alert_has_a_severity_a_text_and_a_case_in_which_it_fires_and_one_without() -> None:
    cases = yaml.safe_load((Path(__file__).parent / "alerts_test.yml").read_text())["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}
        own = [check for check in checks if check["alertname"] == rule["alert"]]
        assert any(check.get("exp_alerts") for check in own), rule["alert"]
        assert any(not check.get("exp_alerts") for check in own), rule["alert"]
