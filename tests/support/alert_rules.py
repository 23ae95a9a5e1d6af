"""Alert rules in ``k8s/monitoring/rules.yaml``."""

from pathlib import Path
from typing import Final, NamedTuple

import yaml

FOLDER: Final = Path(__file__).parents[2] / "k8s" / "monitoring"


class Alert(NamedTuple):
    """An alert rule.

    Attributes:
        name: Name; the page for operators has a heading of this name.
        expr: Expression in PromQL.
        for_s: How long it must be active before the alert fires, in seconds.
        severity: How urgent it is.
        means: What it means; may use templates of Prometheus.
        do: What to do first.
        runbook: URL of the section of the page for operators.
    """

    name: str
    expr: str
    for_s: int
    severity: str
    means: str
    do: str
    runbook: str


def alert_groups() -> dict[str, tuple[Alert, ...]]:
    """All alerts, by group, as the file has them.

    Raises:
        KeyError: A rule lacks a field.
        ValueError: A rule has a field that no alert of Berth has, or its time is not in minutes.
    """
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8"))["groups"]
    return {group["name"]: tuple(map(_alert, group["rules"])) for group in groups}


def _alert(rule: dict[str, object]) -> Alert:
    match rule:
        case {
            "alert": str(name),
            "expr": str(expr),
            "for": str(lasting),
            "labels": {"severity": str(severity)},
            "annotations": {"summary": str(means), "description": str(do), "runbook_url": str(runbook)},
        } if len(rule) == 5 and lasting.endswith("m"):  # those above
            return Alert(name, expr, 60 * int(lasting[:-1]), severity, means, do, runbook)
    raise ValueError(f"a rule is {rule}: expected alert, expr, for in minutes, labels and annotations")
