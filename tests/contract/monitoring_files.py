"""Alert rules and dashboard, as files, and the page of the metrics, from the definitions in the code.

``python -m tests.contract.monitoring_files`` writes the files anew.
"""

import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import Metric

from berth.runtime.metrics import MetricsRegistry
from berth.runtime.monitoring import alerts, nats_alerts
from berth.runtime.monitoring.alerts import MINUTE_S, Alert
from tests.contract.dashboard import dashboard
from tests.contract.struct_tables import WRITTEN, filled

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "k8s" / "monitoring"
SERVICES: Final = (
    "dispatcher",
    "scorer",
    "binder",
    "inventory",
    "health",
    "summary",
    "api",
    "gateway",
    "nodesim",
    "cell",
)
"""In the order of the pages; ``cell`` is the process that runs all of them."""
_RUNBOOKS: Final = "operate/alerts.md"
_HEAD: Final = "# Written by python -m tests.contract.monitoring_files; see docs/operate/monitoring.md.\n"
_HEADINGS: Final = {"process": "Processes", "cluster": "How full the cluster is"}
_INTROS: Final = {
    "cluster": "The service `api` counts them when it is asked, at most every 5 s and at most 0.5 % of the time. Each of its"
    " instances counts the whole cell, so take `max` over instances: [how full the cluster is](../operate/monitoring.md#how-full-the-cluster-is)."
}


def families(service: str) -> list[Metric]:
    """Metrics of a service, those of every process included, in the order of their definitions."""
    registry = MetricsRegistry()
    getattr(importlib.import_module(_module(service)), f"{service.capitalize()}Metrics")(registry)
    return list(registry.collectors.collect())


def of_cell() -> set[str]:
    """Names of the families of the whole cell."""
    found: set[str] = set()
    for service in SERVICES:
        registry = MetricsRegistry()
        getattr(importlib.import_module(_module(service)), f"{service.capitalize()}Metrics")(registry)
        found |= registry.of_cell
    return found


def labels_of(service: str) -> dict[str, tuple[str, ...]]:
    """Label names of each metric of a service, by the name of its family."""
    registry = MetricsRegistry()
    getattr(importlib.import_module(_module(service)), f"{service.capitalize()}Metrics")(registry)
    found: dict[str, tuple[str, ...]] = {}
    for collector, names in registry.collectors._collector_to_names.items():
        for name in names:
            found[name] = tuple(getattr(collector, "_labelnames", ()))
    return found


def _module(service: str) -> str:
    return "berth.cell.metrics" if service == "cell" else f"berth.services.{service}.metrics"


def by_service() -> dict[str, list[Metric]]:
    """Metrics of Berth by service; under ``process`` those of several services, under ``cluster`` those of the cell."""
    found: dict[str, list[Metric]] = {"process": [], "cluster": []}
    known: set[str] = set()
    cell = of_cell()
    for service in SERVICES:
        found[service] = []
        for family in families(service):
            if family.name.startswith("berth_") and family.name not in known:
                known.add(family.name)
                is_own = family.name.startswith(f"berth_{service}_")
                found[service if is_own else "cluster" if family.name in cell else "process"].append(family)
    return found


def alert_groups() -> dict[str, tuple[Alert, ...]]:
    """All alerts, by group."""
    found: dict[str, tuple[Alert, ...]] = {"berth-processes": alerts.ALERTS, "berth-nats": nats_alerts.ALERTS}
    for service in SERVICES:
        if (ROOT / "services" / service / "alerts.py").is_file():
            found[f"berth-{service}"] = importlib.import_module(f"berth.services.{service}.alerts").ALERTS
    return found


def anchor(heading: str) -> str:
    """Anchor of a heading, as GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def rules() -> dict[str, Any]:
    """Content of a file of rules for Prometheus."""
    base = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Documentation"]
    return {
        "groups": [
            {"name": name, "rules": [_rule(alert, f"{base}/{_RUNBOOKS}#{anchor(alert.name)}") for alert in group]}
            for name, group in alert_groups().items()
        ]
    }


def _rule(alert: Alert, runbook: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": f"{alert.for_s // MINUTE_S}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.means, "description": alert.do, "runbook_url": runbook},
    }


def prometheus_rule() -> dict[str, Any]:
    """The rules as an object of the Prometheus operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "berth", "namespace": "berth-system", "labels": {"app.kubernetes.io/name": "berth"}},
        "spec": rules(),
    }


def metrics_page() -> str:
    """The page of the metrics."""
    labels = {name: own for service in SERVICES for name, own in labels_of(service).items()}
    lines = [
        "# Metrics",
        "",
        *filled(
            f"{WRITTEN} Each process answers `/metrics` on `probes.port`, in the text format of Prometheus. What to watch is"
            " in [monitoring](../operate/monitoring.md), what to do when an alert fires in [alerts](../operate/alerts.md). A"
            " metric keeps its name once it is released."
        ),
        "",
        "The usual `process_` metrics are also available: memory, processor time, open files.",
        "",
    ]
    for service, found in by_service().items():
        lines += [f"## {_HEADINGS.get(service, service)}", ""]
        if service in _INTROS:
            lines += [*filled(_INTROS[service]), ""]
        lines += ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for family in found:
            name = family.name + ("_total" if family.type == "counter" else "")
            own = ", ".join(f"`{label}`" for label in labels[family.name]) or "none"
            meaning = family.documentation.removesuffix(".") + ("" if service == "cluster" else _owners(family.name))
            lines.append(f"| `{name}` | {family.type} | {own} | {meaning} |")
        lines.append("")
    lines += ["## Alerts", "", "| alert | severity | after | while |", "|---|---|---|---|"]
    for group in alert_groups().values():
        for alert in group:
            link = f"[{alert.name}](../{_RUNBOOKS}#{anchor(alert.name)})"
            expr = alert.expr.replace("|", "\\|")
            lines.append(f"| {link} | {alert.severity} | {alert.for_s // MINUTE_S} min | `{expr}` |")
    return "\n".join(lines) + "\n"


def _owners(family: str) -> str:
    """Which services have a metric, if its name does not say so and it is not all of them."""
    having = [service for service in SERVICES if family in labels_of(service)]
    is_named = any(family.startswith(f"berth_{service}_") for service in SERVICES)
    return "" if is_named or len(having) == len(SERVICES) else f" ({', '.join(having)})"


def wanted() -> dict[Path, str]:
    """Text of each file by its path."""
    return {
        FOLDER / "prometheus-rule.yaml": _HEAD + _yaml(prometheus_rule()),
        FOLDER / "rules.yaml": _HEAD + _yaml(rules()),
        FOLDER / "dashboard.json": json.dumps(dashboard(by_service(), _labels()), indent=1) + "\n",
    }


def _labels() -> dict[str, tuple[str, ...]]:
    return {name: own for service in SERVICES for name, own in labels_of(service).items()}


def _yaml(tree: object) -> str:
    return str(yaml.safe_dump(tree, sort_keys=False, width=110, allow_unicode=True))


def write() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in wanted().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
