"""The dashboard for Grafana: an overview, how full the cluster is, and a panel for each metric, one row a service."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import Metric

SCHEMA_VERSION: Final = 39
"""Of Grafana 11.0; later ones convert it when they load it."""
RATE: Final = "$__rate_interval"
CELL: Final = 'namespace=~"$namespace"'
_WIDTH: Final = 24
_HEIGHT: Final = 7
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILES: Final = ("0.5", "0.99")

_OVERVIEW: Final = (
    ("Leaders", f"sum(berth_dispatcher_is_leader{{{CELL}}})", "short", "Exactly one."),
    ("Jobs that wait", f"max(berth_dispatcher_waiting_gangs{{{CELL}}})", "short", "See berth jobs."),
    ("Oldest waiting job", f"max(berth_dispatcher_oldest_waiting_seconds{{{CELL}}})", "s", "See berth explain."),
    (
        "Wait for a placement, median",
        f"histogram_quantile(0.5, sum by (le) (rate(berth_dispatcher_admission_wait_time_seconds_bucket{{{CELL}}}[1h])))",
        "s",
        "From the acceptance of a job to its first placement, of the last hour.",
    ),
    (
        "Dead letters",
        f"sum(max by (reason) (berth_dispatcher_dead_letters{{{CELL}}}))",
        "short",
        "See berth dead list.",
    ),
    ("Processes not ready", f"count(berth_process_ready{{{CELL}}} == 0)", "short", "See berth status."),
    ("Nodes", f"max(berth_inventory_nodes{{{CELL}}})", "short", "Nodes of the cluster."),
    (
        "Nodes without new work",
        f'sum(berth_health_nodes{{level=~"no-new-work|evict",{CELL}}})',
        "short",
        "Because of their health; see berth faults.",
    ),
)
_CHIPS: Final = f"max by (namespace, product, state) (berth_chips{{{CELL}}})"
_IN_USE: Final = f'max by (namespace, product, state) (berth_chips{{state=~"used|reserved",{CELL}}})'
_FULL: Final = (
    ("Chips by state", f"sum by (state) ({_CHIPS})", "short", "{{state}}", "The sum is all chips of the cluster."),
    (
        "Share of the chips in use",
        f"sum by (product) ({_IN_USE}) / sum by (product) ({_CHIPS})",
        "percentunit",
        "{{product}}",
        "Used or reserved, by product.",
    ),
    (
        "Chips that jobs wait for",
        f"max by (namespace, product) (berth_waiting_chips{{{CELL}}})",
        "short",
        "{{product}}",
        "By the product that they ask for.",
    ),
    (
        "Whole free nodes",
        f'max by (namespace, product) (berth_nodes{{state="free",{CELL}}})',
        "short",
        "{{product}}",
        "They take new work, and all their chips are free.",
    ),
    (
        "Leaf switches and SuperPoDs",
        f"max by (namespace, level, state) (berth_places{{{CELL}}})",
        "short",
        "{{level}} {{state}}",
        "free: all nodes are; partly-free: some; full: none.",
    ),
    (
        "Jobs by phase",
        f"max by (namespace, phase) (berth_jobs{{{CELL}}})",
        "short",
        "{{phase}}",
        "Not those that are over.",
    ),
    (
        "Why jobs wait",
        f"max by (namespace, reason) (berth_waiting_jobs{{{CELL}}})",
        "short",
        "{{reason}}",
        "Codes of refusals; see berth jobs.",
    ),
    (
        "Chips of queues",
        f'max by (namespace, queue, state) (berth_queue_chips{{queue!="root",{CELL}}})',
        "short",
        "{{queue}} {{state}}",
        "What each queue holds, is entitled to, and may hold; see berth queues.",
    ),
    (
        "Jobs that wait, by queue",
        f"max by (namespace, queue) (berth_queue_waiting_jobs{{{CELL}}})",
        "short",
        "{{queue}}",
        "See berth queues.",
    ),
    (
        "Leaf switches with the most unhealthy chips",
        f'topk(10, max by (namespace, leaf) (berth_leaf_chips{{state="unhealthy",{CELL}}}))',
        "short",
        "{{leaf}}",
        "See berth faults.",
    ),
    (
        "SuperPoDs with the most free chips",
        f'topk(10, max by (namespace, superpod) (berth_superpod_chips{{state="free",{CELL}}}))',
        "short",
        "{{superpod}}",
        "See berth superpods.",
    ),
    (
        "Places without series of their own",
        f"max by (namespace, level) (berth_places_without_series{{{CELL}}})",
        "short",
        "{{level}}",
        "There are more than place_series_max.",
    ),
    (
        "Age of these numbers",
        f"min by (namespace) (berth_counts_age_seconds{{{CELL}}})",
        "s",
        "{{namespace}}",
        "Of the instance of api that is least behind.",
    ),
)
"""What the cell has: each instance of ``api`` shows all of it, so one of them counts."""
_PROCESS: Final = (
    ("process_resident_memory_bytes", f'process_resident_memory_bytes{{job=~"berth-.+",{CELL}}}', "bytes", "Memory."),
    (
        "process_cpu_seconds_total",
        f'rate(process_cpu_seconds_total{{job=~"berth-.+",{CELL}}}[{RATE}])',
        "short",
        "Processors in use.",
    ),
)
_NATS: Final = (
    ("Bytes of streams", f"max by (stream_name) (jetstream_stream_total_bytes{{{CELL}}})", "bytes", "{{stream_name}}"),
    (
        "Messages stored a second",
        f"max by (stream_name) (rate(jetstream_stream_last_seq{{{CELL}}}[{RATE}]))",
        "short",
        "{{stream_name}}",
    ),
    (
        "Storage in use",
        f"max by (server_id) (jetstream_server_total_message_bytes{{{CELL}}} / jetstream_server_max_storage{{{CELL}}})",
        "percentunit",
        "{{server_id}}",
    ),
)


class _Panels:
    """Panels in rows, with ids from 1."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._id = 0
        self._y = 0

    def row(self, title: str, panels: Iterable[dict[str, Any]], *, across: int, is_open: bool = False) -> None:
        """Add a row with panels, so many beside each other."""
        head = {
            "type": "row",
            "id": self._next(),
            "title": title,
            "collapsed": not is_open,
            "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": self._y},
            "panels": [],
        }
        self._y += 1
        width = _WIDTH // across
        placed = []
        for number, panel in enumerate(panels):
            place = {"h": _HEIGHT, "w": width, "x": number % across * width, "y": self._y + number // across * _HEIGHT}
            placed.append({**panel, "id": self._next(), "gridPos": place})
        if is_open:
            self.rows += [head, *placed]
            self._y += (len(placed) + across - 1) // across * _HEIGHT
        else:
            self.rows.append({**head, "panels": placed})

    def _next(self) -> int:
        self._id += 1
        return self._id


def _panel(kind: str, title: str, what: str, unit: str, targets: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": kind,
        "title": title,
        "description": what,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _DATASOURCE, "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(targets)
        ],
    }


def _of_metric(family: Metric, labels: Sequence[str]) -> dict[str, Any]:
    """Panel of a metric: rate of a counter, quantiles of a histogram, value of a gauge."""
    unit = "s" if family.name.endswith("_seconds") else "bytes" if family.name.endswith("_bytes") else "short"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    match family.type:
        case "counter":
            by = ", ".join(labels or ("job",))
            targets = [(f"sum by ({by}) (rate({family.name}_total{{{CELL}}}[{RATE}]))", legend or "{{job}}")]
            title = f"{family.name}_total, each second"
        case "histogram":
            by = ", ".join(("le", *labels))
            bucket = f"{family.name}_bucket{{{CELL}}}"
            targets = [
                (
                    f"histogram_quantile({quantile}, sum by ({by}) (rate({bucket}[{RATE}])))",
                    f"{quantile} {legend}".strip(),
                )
                for quantile in _QUANTILES
            ]
            title = family.name
        case _:
            targets = [(f"{family.name}{{{CELL}}}", f"{{{{instance}}}} {legend}".strip())]
            title = family.name
    return _panel("timeseries", title, family.documentation, unit, targets)


def _full_panel(row: tuple[str, str, str, str, str]) -> dict[str, Any]:
    title, expr, unit, legend, what = row
    return _panel("timeseries", title, what, unit, [(expr, legend)])


def dashboard(services: Mapping[str, Sequence[Metric]], labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The dashboard.

    Args:
        services: Metrics by service, those of every process under ``process``; those under ``cluster`` have panels of
            their own.
        labels: Label names by the name of a family.
    """
    panels = _Panels()
    overview = [_panel("stat", title, what, unit, [(expr, "")]) for title, expr, unit, what in _OVERVIEW]
    panels.row("Overview", overview, across=8, is_open=True)
    panels.row("How full the cluster is", map(_full_panel, _FULL), across=4, is_open=True)
    firing = 'count by (alertname, severity) (ALERTS{alertname=~"Berth.+",alertstate="firing"})'
    panels.row(
        "Alerts",
        [_panel("timeseries", "Alerts that fire", "By name.", "short", [(firing, "{{alertname}} {{severity}}")])],
        across=1,
        is_open=True,
    )
    for service, families in services.items():
        if service == "cluster":
            continue
        found = [_of_metric(family, labels[family.name]) for family in families]
        if service == "process":
            found += [
                _panel("timeseries", title, what, unit, [(expr, "{{job}} {{instance}}")])
                for title, expr, unit, what in _PROCESS
            ]
        panels.row("Every process" if service == "process" else service, found, across=3)
    nats = [_panel("timeseries", title, title, unit, [(expr, legend)]) for title, expr, unit, legend in _NATS]
    panels.row("NATS (with its exporter)", nats, across=3)
    return {
        "uid": "berth",
        "title": "Berth",
        "tags": ["berth"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), _namespace()]},
        "annotations": {"list": []},
        "panels": panels.rows,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _namespace() -> dict[str, Any]:
    """Choice of the cell; a Prometheus that adds no label of this name has one."""
    return {
        "name": "namespace",
        "type": "query",
        "label": "Namespace",
        "datasource": _DATASOURCE,
        "query": {"query": "label_values(berth_process_ready, namespace)", "refId": "namespaces"},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }
