"""The page of the metrics, from the definitions in the code and the alert rules in ``k8s/monitoring``."""

import importlib
import re
from pathlib import Path
from typing import Final

from prometheus_client import Metric

from berth.runtime.metrics import MetricsRegistry
from tests.contract.struct_tables import WRITTEN, filled
from tests.support.alert_rules import alert_groups
from tests.support.services import PACKAGES

ROOT: Final = Path(__file__).parents[2]
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
    return "berth.cell.metrics" if service == "cell" else f"{PACKAGES[service]}.metrics"


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


def anchor(heading: str) -> str:
    """Anchor of a heading, as GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


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
            lines.append(f"| {link} | {alert.severity} | {alert.for_s // 60} min | `{expr}` |")
    return "\n".join(lines) + "\n"


def _owners(family: str) -> str:
    """Which services have a metric, if its name does not say so and it is not all of them."""
    having = [service for service in SERVICES if family in labels_of(service)]
    is_named = any(family.startswith(f"berth_{service}_") for service in SERVICES)
    return "" if is_named or len(having) == len(SERVICES) else f" ({', '.join(having)})"
