"""Each alert fires when a cell has the problem, only after its time, and is quiet before and afterwards.

The metrics are those of the services, on real registries; their values are set as the services would. Excluded: whether
a service sets them so, which the tests of the services show.
"""

import math
import re
from collections.abc import Mapping

import promql_parser as promql
import pytest

from tests.contract.alert_cases import CASES
from tests.support.alert_rules import Alert, alert_groups
from tests.support.promql import Labels, selectors
from tests.support.watched_cell import STEP_S, Watch, WatchedCell

ALERTS = {alert.name: alert for group in alert_groups().values() for alert in group}
AT_ONCE = [name for name, alert in ALERTS.items() if "[" not in alert.expr]
"""Alerts that look at this moment alone; the others look back over a range."""
FAULT_MAX_S = 7_200
QUIET_MAX_S = 7_200

each_alert = pytest.mark.parametrize("name", list(ALERTS))


def names_in(expr: str) -> set[str]:
    return {selector.name or "" for selector in selectors(promql.parse(expr))}


def cell_of(*alerts: Alert) -> tuple[WatchedCell, dict[str, Watch]]:
    """A cell that has worked for an hour, with its alerts."""
    cell = WatchedCell({name for alert in alerts for name in names_in(alert.expr)})
    watches = {alert.name: Watch(alert.expr, alert.for_s) for alert in alerts}
    while cell.now_s < 3_600:
        cell.step()
        for watch in watches.values():
            watch.look(cell)
    return cell, watches


def test_each_alert_has_a_case() -> None:
    assert set(CASES) == set(ALERTS)


def test_a_cell_that_works_has_no_alert() -> None:
    cell, watches = cell_of(*ALERTS.values())
    for _ in range(90):
        cell.step()
        assert [name for name, watch in watches.items() if watch.look(cell) or watch.values] == []


@each_alert
def test_an_alert_fires_while_there_is_its_reason(name: str) -> None:
    alert, case = ALERTS[name], CASES[name]
    cell, watches = cell_of(alert)
    watch = watches[name]
    assert not watch.look(cell)
    began_s, active_s = cell.now_s, 0
    firing: Mapping[Labels, float] = {}
    while cell.now_s - began_s < FAULT_MAX_S and not firing:
        cell.step(case.during)
        firing = watch.look(cell)
        active_s = active_s or (cell.now_s if watch.values else 0)
    assert firing, f"not in {FAULT_MAX_S} s: {watch.values}"
    assert cell.now_s - active_s >= alert.for_s, "before its time"
    for labels in firing:
        used = set(re.findall(r"\$labels\.(\w+)", alert.means + alert.do))
        assert used <= dict(labels).keys()
        if name != "BerthNotScraped":  # nobody knows the cell
            assert dict(labels)["namespace"] == "berth-system"

    case.after(cell)
    began_s = cell.now_s
    while watch.values and cell.now_s - began_s < QUIET_MAX_S:
        cell.step()
        watch.look(cell)
    assert not watch.values, "still active afterwards"


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_shorter_disturbance_is_no_alert(name: str) -> None:
    alert, case = ALERTS[name], CASES[name]
    assert alert.for_s > 0, "a single scrape would make it fire"
    cell, watches = cell_of(alert)
    watch = watches[name]
    for _ in range(math.ceil(alert.for_s / STEP_S)):
        cell.step(case.during)
        assert not watch.look(cell)
    case.after(cell)
    for _ in range(10):
        cell.step()
        assert not watch.look(cell)
