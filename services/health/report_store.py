"""Store of reports: of each source on each node the last valid one and a newer refused one, and their times. Pure.

A node's clock may be wrong, so its UpdateTime alone does not give the age of a report. Reports that are watched live
give the offset of the node's clock: the smallest observed difference between receipt and UpdateTime. The time of a
report is its UpdateTime plus that offset. For a report that existed before the watch it is the UpdateTime alone.
"""

from collections.abc import Container, Mapping
from typing import Final, TypeVar

import msgspec

from berth.formats.ascend.device_info import ChipLists, DeviceReport, SwitchInfo
from berth.formats.ascend.free_list import FreeList, FreeView, looked_again, with_report
from berth.formats.ascend.node_info import NodeInfo
from berth.formats.ascend.report_error import RefusedReport
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import HealthReport, NodeCondition
from berth.schemas.units import UnixMs

T = TypeVar("T")

DEVICE: Final = "device plug-in"
NODED: Final = "NodeD"
SWITCH: Final = "switch"
AGENT: Final = "agent"
_FIELDS: Final = {DEVICE: "device", NODED: "node", SWITCH: "switch", AGENT: "agent"}
_LEVELS: Final = {NODED: "noded_level", SWITCH: "switch_level"}
"""Field of a condition with the level of a node by a source."""
"""Fields of :class:`SourceReports` by source."""
_MS: Final = 1000


class StoredDeviceReport(msgspec.Struct, frozen=True):
    """Report of a device plug-in.

    Attributes:
        report: The report.
        reported_ms: Time at which it was written, by Berth's clock.
        behind_ms: How far the node's clock is behind Berth's; None when unknown.
        views: Accepted free list of each resource.
    """

    report: DeviceReport
    reported_ms: UnixMs
    behind_ms: int | None = None
    views: dict[str, FreeView] = {}


class StoredAgentReport(msgspec.Struct, frozen=True):
    """Report that arrived over the bus, and its time."""

    report: HealthReport
    reported_ms: UnixMs


class SourceReports(msgspec.Struct):
    """A report of each source on a node."""

    device: StoredDeviceReport | None = None
    node: NodeInfo | None = None
    switch: SwitchInfo | None = None
    agent: StoredAgentReport | None = None

    def of(self, source: str) -> object | None:
        """The report of a source; None without one."""
        found: object | None = getattr(self, _FIELDS[source])
        return found


class NodeReports(SourceReports):
    """All reports on a node: the last valid ones, and what else counts.

    Attributes:
        restored: Condition published by an earlier run; it counts only until a report arrives.
        suspect: Error of a source's newest report, by source; the report before stays in force.
        refused: What these newest reports say, as far as it can be read.
        gaps: Why the health in them cannot be read, by source; without those whose health can.
    """

    restored: NodeCondition | None = None
    suspect: dict[str, str] = {}
    refused: SourceReports = msgspec.field(default_factory=SourceReports)
    gaps: dict[str, str] = {}

    def set_refused(self, source: str, report: object | None, gap: str = "") -> None:
        """Replace what the refused report of a source says; None for nothing."""
        if source in _FIELDS:
            setattr(self.refused, _FIELDS[source], report)
        self.gaps = {key: why for key, why in (self.gaps | {source: gap}).items() if why}


class ReportStore:
    """Reports on all nodes, by name."""

    def __init__(self) -> None:
        self._reports: dict[str, NodeReports] = {}
        self.unsettled: set[str] = set()
        """Nodes whose newest free list is not accepted yet."""

    def of(self, node: str) -> NodeReports:
        """Reports on a node; empty for a node without reports."""
        return self._reports.get(node) or NodeReports()

    def suspect_count(self, nodes: Container[str]) -> int:
        """Number of nodes of these for which the newest report of some source is invalid."""
        return sum(1 for name, reports in self._reports.items() if reports.suspect and name in nodes)

    def restore(self, condition: NodeCondition) -> None:
        """Restore the condition that an earlier run published."""
        self._reports_of(condition.name).restored = condition

    def put_device(self, node: str, report: DeviceReport, *, now_ms: UnixMs, is_live: bool, idle: int) -> None:
        """Take a report of a device plug-in.

        Args:
            node: The node.
            report: The report.
            now_ms: The time.
            is_live: The change was watched, not found in a list.
            idle: Chips of the node that Kubernetes counts as idle.
        """
        reports = self._reports_of(node)
        before = reports.device
        restored = reports.restored
        stored = _stored(reports, report, now_ms=now_ms, is_live=is_live)
        if before is None and restored is not None and restored.updated_ms <= now_ms:
            stored = msgspec.structs.replace(stored, reported_ms=max(stored.reported_ms, restored.updated_ms))
        views = before.views if before is not None else {}
        reports.device = msgspec.structs.replace(stored, views=_views(views, report, idle=idle))
        self._note(node, reports.device.views)

    def reexamine(self, node: str, *, now_ms: UnixMs, idle: int) -> None:
        """Update the accepted free lists after time has passed or pods have changed."""
        device = self._reports_of(node).device
        if device is None:
            return
        age_s = (now_ms - device.reported_ms) / _MS
        views = {key: looked_again(view, idle=idle, age_s=age_s) for key, view in device.views.items()}
        self._reports_of(node).device = msgspec.structs.replace(device, views=views)
        self._note(node, views)

    def put_node(self, node: str, info: NodeInfo | None) -> None:
        """Take NodeD's report on a node; None: there is none, so the node is healthy."""
        self._reports_of(node).node = info

    def put_switch(self, node: str, info: SwitchInfo | None) -> None:
        """Take the report on a node's switch; None: there is none."""
        self._reports_of(node).switch = info

    def put_agent(self, report: HealthReport, *, now_ms: UnixMs, stale_ms: int) -> bool:
        """Take a report that arrived over the bus; returns whether it changes more than the time of the last report.

        Args:
            report: The report.
            now_ms: The time.
            stale_ms: Age above which the report before does not count.
        """
        reports = self._reports_of(report.node)
        before, reports.agent = reports.agent, StoredAgentReport(report, now_ms)
        return (
            before is None
            or now_ms - before.reported_ms > stale_ms
            or msgspec.structs.replace(before.report, updated_ms=report.updated_ms) != report
        )

    def refuse(self, node: str, source: str, found: RefusedReport[T], *, now_ms: UnixMs, is_live: bool = False) -> None:
        """Take what can be read of a source's newest report, which is refused: it replaces one that was before it.

        Args:
            node: The node.
            source: The source.
            found: What can be read of it.
            now_ms: The time.
            is_live: The change was watched, not found in a list.
        """
        reports = self._reports_of(node)
        report: object | None = found.report
        if isinstance(report, DeviceReport):
            stored = _stored(reports, report, now_ms=now_ms, is_live=is_live)
            reported_ms = stored.reported_ms if report.update_s else now_ms  # its time cannot be read
            views = _views({}, report, idle=0)
            report = msgspec.structs.replace(stored, reported_ms=reported_ms, views=views)
        elif isinstance(report, HealthReport):
            report = StoredAgentReport(report, now_ms)
        reports.set_refused(source, report, found.gap)

    def mark_suspect(self, node: str, source: str, reason: str) -> bool:
        """Mark a source's newest report as refused; returns whether the one before was not."""
        suspect = self._reports_of(node).suspect
        is_new = source not in suspect
        self._reports_of(node).suspect = {**suspect, source: reason}
        return is_new

    def mark_valid(self, node: str, source: str) -> bool:
        """Mark a source's newest report as valid, which ends a refused one; returns whether it was refused before.

        What an earlier run knew by this source counts no longer.
        """
        reports = self._reports_of(node)
        level = _LEVELS.get(source)
        if level is not None and reports.restored is not None and getattr(reports.restored, level):
            reports.restored = msgspec.structs.replace(reports.restored, **{level: NodeHealth.OK})
        if source not in reports.suspect:
            return False
        reports.suspect = {key: reason for key, reason in reports.suspect.items() if key != source}
        reports.set_refused(source, None)
        return True

    def drop_device(self, node: str) -> None:
        """Take the deletion of the reports of a node's device plug-in, the refused one too."""
        reports = self._reports_of(node)
        reports.device = reports.restored = None
        self.unsettled.discard(node)
        self.mark_valid(node, DEVICE)

    def suspects_of(self, source: str) -> list[str]:
        """Nodes of which a source's newest report is refused, sorted."""
        return sorted(name for name, reports in self._reports.items() if source in reports.suspect)

    def _reports_of(self, node: str) -> NodeReports:
        return self._reports.setdefault(node, NodeReports())

    def _note(self, node: str, views: dict[str, FreeView]) -> None:
        if all(view.shown == view.report for view in views.values()):
            self.unsettled.discard(node)
        else:
            self.unsettled.add(node)


def _stored(reports: NodeReports, report: DeviceReport, *, now_ms: UnixMs, is_live: bool) -> StoredDeviceReport:
    """A report with its time, which follows from the newest one before it."""
    known = [one for one in (reports.device, reports.refused.device) if one is not None]
    before = max(known, key=lambda one: one.reported_ms, default=None)
    return StoredDeviceReport(report, *_reported(before, report, now_ms=now_ms, is_live=is_live))


def _views(before: Mapping[str, FreeView], report: DeviceReport, *, idle: int) -> dict[str, FreeView]:
    return {
        resource: with_report(before.get(resource), _free_list(chips, report.update_s), idle=idle)
        for resource, chips in report.chips.items()
    }


def _reported(
    before: StoredDeviceReport | None, report: DeviceReport, *, now_ms: UnixMs, is_live: bool
) -> tuple[UnixMs, int | None]:
    """Time of a report by Berth's clock, and how far the node's clock is behind."""
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
