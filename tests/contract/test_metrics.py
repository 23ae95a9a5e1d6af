"""Metrics: each has a name of the agreed form, labels of a closed set, and a line in the page of the metrics."""

import importlib
import re
from pathlib import Path

import pytest

from berth.runtime.metrics import MetricsRegistry
from tests.contract.metrics_page import metrics_page
from tests.support.services import FOLDERS, PACKAGES, SERVICES

ROOT = Path(__file__).parents[2]
PROCESSES = [*SERVICES, "cell"]
TABLE = dict(
    re.findall(
        r"^\| `(berth_\w+)` \| (counter|gauge|histogram) \|",
        metrics_page(),
        re.MULTILINE,
    )
)
UNITS = (
    "_seconds",
    "_bytes",
    "_jobs",
    "_total",
    "_sequence",
    "_gangs",
    "_letters",
    "_shards",
    "_pods",
    "_chips",
    "_nodes",
    "_allocations",
    "_ready",
    "_connected",
    "_messages",
    "_offers_total",
    "_epoch",
    "_to_lead",
    "_streams",
    "_connections",
)
BANNED_LABELS = {"pod", "job", "gang", "node", "namespace", "uid", "subject"}


def registry_of(service: str) -> MetricsRegistry:
    """The metrics of a service on a registry of their own."""
    registry = MetricsRegistry()
    module = "berth.cell.metrics" if service == "cell" else f"{PACKAGES[service]}.metrics"
    getattr(importlib.import_module(module), f"{service.capitalize()}Metrics")(registry)
    return registry


def declared() -> dict[str, str]:
    found = {}
    for service in PROCESSES:
        for family in registry_of(service).collectors.collect():
            if family.name.startswith("berth_"):
                found[family.name + ("_total" if family.type == "counter" else "")] = family.type
    return found


def test_every_service_that_counts_has_a_module_for_it() -> None:
    made = re.compile(r"\.(?:counter|gauge|seconds)\(\s*\"")
    files = [
        path for folder in FOLDERS.values() for path in folder.rglob("*.py") if made.search(path.read_text("utf-8"))
    ]
    assert sorted({path.name for path in files}) == ["metrics.py"]
    assert sorted(path.parent for path in files) == sorted(FOLDERS.values())


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    assert declared() == TABLE


@pytest.mark.parametrize("service", PROCESSES)
def test_metrics_of_a_service_carry_its_name_and_a_unit(service: str) -> None:
    own = [name for name in declared() if name.startswith(f"berth_{service}_")]
    assert own
    assert [name for name in own if not name.endswith((*UNITS, "_is_leader"))] == []


def test_labels_have_few_values() -> None:
    labels = {
        label
        for service in PROCESSES
        for collector in registry_of(service).collectors._collector_to_names
        for label in getattr(collector, "_labelnames", ())
    }
    assert labels
    assert not labels & BANNED_LABELS
