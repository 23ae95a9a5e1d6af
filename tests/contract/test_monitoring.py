"""Alert rules and dashboard name metrics, labels and runbooks that exist, and leave none out.

Excluded: whether the Prometheus operator and Grafana take the files, which needs both.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.contract.metrics_page import ROOT, anchor, by_service, families, labels_of, metrics_page
from tests.contract.metrics_page import SERVICES as ORDER
from tests.support.alert_rules import FOLDER, Alert, alert_groups
from tests.support.kustomize import Tree, render
from tests.support.promql import selectors
from tests.support.services import FOLDERS

RUNBOOKS = (ROOT / "docs" / "operate" / "alerts.md").read_text("utf-8")
ALERTS = [alert for group in alert_groups().values() for alert in group]
OF_TARGETS = {"job", "instance", "namespace", "pod", "container", "endpoint"}
OF_OTHERS = {
    "up": set(),
    "ALERTS": {"alertname", "severity", "alertstate"},
    "process_start_time_seconds": set(),
    "process_resident_memory_bytes": set(),
    "process_cpu_seconds_total": set(),
    "jetstream_server_total_message_bytes": {"server_id"},
    "jetstream_server_max_storage": {"server_id"},
    "jetstream_stream_last_seq": {"server_id", "stream_name", "stream_leader", "is_stream_leader"},
    "jetstream_stream_total_bytes": {"server_id", "stream_name", "stream_leader", "is_stream_leader"},
    "gnatsd_varz_slow_consumers": {"server_id"},
}
"""Metrics that Berth does not define, with the labels of theirs that are used: of Prometheus, of its client library,
and of prometheus-nats-exporter 0.17 (``collector/jsz.go``, ``collector/collector.go``)."""
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))

RATE = "$__rate_interval"
"""Range over which the dashboard takes rates, which Grafana knows."""
SCHEMA_VERSION = 39

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def known() -> dict[str, set[str]]:
    """Own labels of each sample, by its name."""
    found = {name: set(labels) for name, labels in OF_OTHERS.items()}
    for service in ORDER:
        labels = labels_of(service)
        for family in families(service):
            own = set(labels[family.name])
            match family.type:
                case "counter":
                    found[f"{family.name}_total"] = own
                case "histogram":
                    found |= {
                        f"{family.name}_bucket": own | {"le"},
                        f"{family.name}_sum": own,
                        f"{family.name}_count": own,
                    }
                case _:
                    found[family.name] = own
    return found


KNOWN = known()


def groupings(expr: promql.Expr) -> Iterator[tuple[list[str], promql.Expr]]:
    """Labels that an expression groups or matches by, with the part that they concern."""
    match expr:
        case promql.ParenExpr():
            yield from groupings(expr.expr)
        case promql.AggregateExpr():
            if expr.modifier is not None:
                yield expr.modifier.labels, expr.expr
            yield from groupings(expr.expr)
        case promql.BinaryExpr():
            if expr.modifier is not None and expr.modifier.matching is not None:
                yield expr.modifier.matching.labels, expr.lhs
                yield expr.modifier.matching.labels, expr.rhs
            yield from groupings(expr.lhs)
            yield from groupings(expr.rhs)
        case promql.Call():
            for argument in expr.args:
                yield from groupings(argument)
        case _:
            return


def check(text: str) -> None:
    """See that an expression is PromQL and names metrics and labels that exist."""
    expr = promql.parse(text)
    for selector in selectors(expr):
        assert selector.name in KNOWN, f"{selector.name} of {text}"
        used = {matcher.name for matcher in selector.matchers.matchers}
        assert used <= KNOWN[selector.name] | OF_TARGETS, f"{selector.name} of {text}"
    for labels, part in groupings(expr):
        for selector in selectors(part):
            assert set(labels) <= KNOWN[selector.name or ""] | OF_TARGETS, f"{selector.name} of {text}"


def panels() -> list[dict[str, Any]]:
    """All panels, rows included, in their order."""
    found = []
    for panel in DASHBOARD["panels"]:
        found += [panel, *panel.get("panels", [])]
    return found


@each_alert
def test_an_alert_names_metrics_and_labels_that_exist(alert: Alert) -> None:
    check(alert.expr)


def test_the_check_of_names_finds_what_does_not_exist() -> None:
    for wrong in (
        "berth_dispatcher_leads == 0",
        'berth_binder_gangs_total{result="failed"} > 0',
        "sum by (reason) (berth_dispatcher_waiting_gangs) > 0",
        "berth_process_ready == 0 unless on (shard) berth_process_connected",
        "rate(berth_dispatcher_append_seconds[5m]) > 1",
    ):
        with pytest.raises(AssertionError):
            check(wrong)


@each_alert
def test_an_alert_says_what_it_means_and_what_to_do(alert: Alert) -> None:
    assert re.fullmatch(r"Berth([A-Z][a-z]+)+", alert.name)
    assert alert.means.endswith(".")
    assert alert.do.endswith(".")
    assert len(alert.means) <= 160
    assert len(alert.do) <= 200
    assert alert.severity in {"critical", "warning", "info"}
    assert not re.search(r"\{\{ \$value \}\}", alert.means + alert.do), "a number with 16 digits"


def test_every_service_has_its_part_of_page_and_dashboard_and_its_alerts() -> None:
    services = {name for name, folder in FOLDERS.items() if (folder / "metrics.py").is_file()}
    assert set(ORDER) == {*services, "cell"}
    alerting = {group.removeprefix("berth-") for group in alert_groups()} - {"processes", "nats"}
    assert services - alerting == {"nodesim"}, "a simulated cluster is watched by whoever tries it"
    assert alerting <= services


def test_names_of_alerts_are_unique() -> None:
    assert [name for name, count in Counter(alert.name for alert in ALERTS).items() if count > 1] == []


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    headings = re.findall(r"^## (Berth\w+)$", RUNBOOKS, re.MULTILINE)
    assert sorted(headings) == sorted(alert.name for alert in ALERTS)
    base = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Documentation"]
    for alert in ALERTS:
        assert alert.runbook == f"{base}/operate/alerts.md#{anchor(alert.name)}"


def test_the_rule_of_the_operator_has_the_same_groups_as_the_file() -> None:
    rule = yaml.safe_load((FOLDER / "prometheus-rule.yaml").read_text("utf-8"))
    assert rule["spec"] == yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    assert DASHBOARD["schemaVersion"] == SCHEMA_VERSION
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        assert place["h"] > 0
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used - {RATE.removeprefix("$")} == variables


def test_panels_of_the_overview_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_no_panel_is_empty_and_each_names_metrics_that_exist() -> None:
    for panel in panels():
        assert panel["title"]
        if panel["type"] == "row":
            assert panel["panels"] or not panel["collapsed"]
            continue
        assert panel["targets"]
        for target in panel["targets"]:
            check(target["expr"].replace(RATE, "5m"))
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= OF_TARGETS | {"alertname", "severity"} | set().union(
                *(
                    KNOWN[selector.name or ""]
                    for selector in selectors(promql.parse(target["expr"].replace(RATE, "5m")))
                )
            )


def test_the_dashboard_has_a_panel_for_each_metric() -> None:
    text = json.dumps(DASHBOARD)
    names = [family.name for found in by_service().values() for family in found]
    assert [name for name in names if not re.search(rf"\b{name}(_total|_bucket)?\b", text)] == []
    page = metrics_page()
    assert all(f"`{name}`" in page or f"`{name}_total`" in page for name in names)


def objects() -> list[Tree]:
    return render(FOLDER)


def test_the_kustomization_has_what_prometheus_and_grafana_look_for() -> None:
    found = {
        (one["kind"], one["metadata"]["name"].rpartition("-")[0] or one["metadata"]["name"]): one for one in objects()
    }
    (config_map,) = [one for one in objects() if one["kind"] == "ConfigMap"]
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["berth.json"]) == DASHBOARD
    assert {kind for kind, _ in found} == {"ConfigMap", "Deployment", "NetworkPolicy", "PodMonitor", "PrometheusRule"}
    assert {one["metadata"]["namespace"] for one in objects()} == {"berth-system"}


def test_the_pod_monitor_selects_the_services_by_labels_and_ports_that_they_have() -> None:
    monitors = {one["metadata"]["name"]: one["spec"] for one in objects() if one["kind"] == "PodMonitor"}
    services = [one for one in render(ROOT / "k8s" / "base") if one["kind"] in {"Deployment", "StatefulSet"}]
    watched = {
        "berth": [one for one in services if one["metadata"]["name"] != "nats"],
        "berth-nats": [one for one in objects() if one["kind"] == "Deployment"],
    }
    assert watched.keys() == monitors.keys()
    for name, spec in monitors.items():
        (endpoint,) = spec["podMetricsEndpoints"]
        for one in watched[name]:
            template = one["spec"]["template"]
            assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
            ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
            assert endpoint["port"] in ports
    (relabeling,) = monitors["berth"]["podMetricsEndpoints"][0]["relabelings"]
    label = "app.kubernetes.io/component"
    assert relabeling["sourceLabels"] == ["__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", label)]
    assert all(label in one["spec"]["template"]["metadata"]["labels"] for one in watched["berth"])


def test_the_exporter_asks_each_server_of_the_base_and_is_let_in() -> None:
    (exporter,) = [one for one in objects() if one["kind"] == "Deployment"]
    (policy,) = [one for one in objects() if one["kind"] == "NetworkPolicy"]
    (nats,) = [
        one
        for one in render(ROOT / "k8s" / "base")
        if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "nats"
    ]
    (container,) = exporter["spec"]["template"]["spec"]["containers"]
    urls = [argument for argument in container["args"] if argument.startswith("http")]
    assert urls == [f"http://nats-{number}.nats:8222" for number in range(nats["spec"]["replicas"])]
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": exporter["spec"]["template"]["metadata"]["labels"]}}]
    assert [port["port"] for port in rule["ports"]] == [8222]
    assert (
        policy["spec"]["podSelector"]["matchLabels"].items() <= nats["spec"]["template"]["metadata"]["labels"].items()
    )
    image = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]["nats-exporter"]["image"]
    assert container["image"] == image
