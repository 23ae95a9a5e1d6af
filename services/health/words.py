"""Words: the last good one of each source on each node, and when it was said. Pure.

A node's own clock may be wrong, so its UpdateTime alone does not tell how old a report is. What is watched live teaches
how far the node's clock is behind ours: the smallest difference seen between receipt and UpdateTime. A report is as old as
its UpdateTime, put right by that; what was there before we looked counts by its UpdateTime alone.
"""

import msgspec

from berth.formats.ascend.device_info import ChipLists, DeviceReport, SwitchInfo
from berth.formats.ascend.free_list import FreeList, FreeView, looked_again, with_report
from berth.formats.ascend.node_info import NodeInfo
from berth.schemas.nodes import NodeCondition
from berth.schemas.reports import HealthReport
from berth.schemas.units import UnixMs

_MS = 1000


class DeviceState(msgspec.Struct, frozen=True):
    """Report of a device plug-in.

    Attributes:
        report: The report.
        reported_ms: When it was written, by our clock.
        behind_ms: How far the node's clock is behind ours; None when unknown.
        views: What is believed of each resource's free list.
    """

    report: DeviceReport
    reported_ms: UnixMs
    behind_ms: int | None = None
    views: dict[str, FreeView] = {}


class AgentReport(msgspec.Struct, frozen=True):
    """Report that came straight over the bus, and when."""

    report: HealthReport
    reported_ms: UnixMs


class NodeReports(msgspec.Struct):
    """All that was said of a node.

    Attributes:
        restored: What an earlier run concluded; counts only while nobody has spoken.
        suspect: What is wrong with a source's newest word, by source; its word before that holds.
    """

    device: DeviceState | None = None
    node: NodeInfo | None = None
    switch: SwitchInfo | None = None
    agent: AgentReport | None = None
    restored: NodeCondition | None = None
    suspect: dict[str, str] = {}


class SourceReports:
    """Words on all nodes, by name."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeReports] = {}
        self.unsettled: set[str] = set()
        """Nodes whose newest free list is not believed yet."""

    def of(self, node: str) -> NodeReports:
        """Words on a node; empty ones for a node of which nobody has spoken."""
        return self._by_node.get(node) or NodeReports()

    def suspect_count(self) -> int:
        """Nodes of which some source's newest word could not be taken."""
        return sum(1 for latest in self._by_node.values() if latest.suspect)

    def restore(self, condition: NodeCondition) -> None:
        """Take what an earlier run concluded."""
        self._latest(condition.name).restored = condition

    def take_device(self, node: str, report: DeviceReport, *, now_ms: UnixMs, is_live: bool, idle: int) -> None:
        """Take a report of a device plug-in.

        Args:
            node: The node.
            report: The report.
            now_ms: The time.
            is_live: It was watched as it changed, not found in a list.
            idle: Chips of the node that Kubernetes counts as idle.
        """
        latest = self._latest(node)
        before = latest.device
        reported_ms, behind_ms = _reported(before, report, now_ms=now_ms, is_live=is_live)
        if before is None and latest.restored is not None and latest.restored.updated_ms <= now_ms:
            reported_ms = max(reported_ms, latest.restored.updated_ms)
        views = before.views if before is not None else {}
        views = {
            resource: with_report(views.get(resource), _free_list(chips, report.update_s), idle=idle)
            for resource, chips in report.chips.items()
        }
        latest.device = DeviceState(report, reported_ms, behind_ms, views)
        self._note(node, views)

    def look_again(self, node: str, *, now_ms: UnixMs, idle: int) -> None:
        """Judge free lists anew, when time has passed or pods have come or gone."""
        device = self._latest(node).device
        if device is None:
            return
        age_s = (now_ms - device.reported_ms) / _MS
        views = {key: looked_again(view, idle=idle, age_s=age_s) for key, view in device.views.items()}
        self._latest(node).device = msgspec.structs.replace(device, views=views)
        self._note(node, views)

    def take_node(self, node: str, info: NodeInfo | None) -> None:
        """Take what NodeD says of a node; None: it says nothing, so it is well."""
        self._latest(node).node = info

    def take_switch(self, node: str, info: SwitchInfo | None) -> None:
        """Take what is said of a node's switch; None: nothing."""
        self._latest(node).switch = info

    def take_agent(self, report: HealthReport, *, now_ms: UnixMs) -> None:
        """Take a report that came over the bus."""
        self._latest(report.node).agent = AgentReport(report, now_ms)

    def mark_suspect(self, node: str, source: str, reason: str) -> bool:
        """Note that a source's newest word cannot be taken; whether it was not in doubt before."""
        suspect = self._latest(node).suspect
        is_new = source not in suspect
        self._latest(node).suspect = {**suspect, source: reason}
        return is_new

    def mark_good(self, node: str, source: str) -> bool:
        """Note that a source's newest word is good; whether it was in doubt before."""
        latest = self._latest(node)
        if source not in latest.suspect:
            return False
        latest.suspect = {key: reason for key, reason in latest.suspect.items() if key != source}
        return True

    def _latest(self, node: str) -> NodeReports:
        return self._by_node.setdefault(node, NodeReports())

    def _note(self, node: str, views: dict[str, FreeView]) -> None:
        if all(view.shown == view.report for view in views.values()):
            self.unsettled.discard(node)
        else:
            self.unsettled.add(node)


def _reported(
    before: DeviceState | None, report: DeviceReport, *, now_ms: UnixMs, is_live: bool
) -> tuple[UnixMs, int | None]:
    """When a report was written by our clock, and how far the node's clock is behind."""
    written_ms = report.update_s * _MS
    if before is None:
        return min(written_ms, now_ms), None
    if report.update_s == before.report.update_s:
        return before.reported_ms, before.behind_ms
    behind_ms = before.behind_ms
    if is_live:
        is_first = behind_ms is None or report.update_s < before.report.update_s  # or the node's clock was set back
        behind_ms = now_ms - written_ms if is_first or behind_ms is None else min(behind_ms, now_ms - written_ms)
    return max(0, min(written_ms + (behind_ms or 0), now_ms)), behind_ms


def _free_list(chips: ChipLists, update_s: int) -> FreeList:
    return FreeList(chips.free, frozenset(chips.unhealthy_names), update_s)
