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


class DeviceWord(msgspec.Struct, frozen=True):
    """Report of a device plug-in.

    Attributes:
        report: The report.
        spoke_ms: When it was written, by our clock.
        behind_ms: How far the node's clock is behind ours; None when unknown.
        views: What is believed of each resource's free list.
    """

    report: DeviceReport
    spoke_ms: UnixMs
    behind_ms: int | None = None
    views: dict[str, FreeView] = {}


class AgentWord(msgspec.Struct, frozen=True):
    """Report that came straight over the bus, and when."""

    report: HealthReport
    spoke_ms: UnixMs


class Word(msgspec.Struct):
    """All that was said of a node.

    Attributes:
        restored: What an earlier run concluded; counts only while nobody has spoken.
        doubts: What is wrong with a source's newest word, by source; its word before that holds.
    """

    device: DeviceWord | None = None
    node: NodeInfo | None = None
    switch: SwitchInfo | None = None
    agent: AgentWord | None = None
    restored: NodeCondition | None = None
    doubts: dict[str, str] = {}


class Words:
    """Words on all nodes, by name."""

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}
        self.unsettled: set[str] = set()
        """Nodes whose newest free list is not believed yet."""

    def of(self, node: str) -> Word:
        """Words on a node; empty ones for a node of which nobody has spoken."""
        return self._words.get(node) or Word()

    def doubted(self) -> int:
        """Nodes of which some source's newest word could not be taken."""
        return sum(1 for word in self._words.values() if word.doubts)

    def restore(self, condition: NodeCondition) -> None:
        """Take what an earlier run concluded."""
        self._word(condition.name).restored = condition

    def hear_device(self, node: str, report: DeviceReport, *, now_ms: UnixMs, is_live: bool, idle: int) -> None:
        """Take a report of a device plug-in.

        Args:
            node: The node.
            report: The report.
            now_ms: The time.
            is_live: It was watched as it changed, not found in a list.
            idle: Chips of the node that Kubernetes counts as idle.
        """
        word = self._word(node)
        before = word.device
        spoke_ms, behind_ms = _spoke(before, report, now_ms=now_ms, is_live=is_live)
        if before is None and word.restored is not None and word.restored.updated_ms <= now_ms:
            spoke_ms = max(spoke_ms, word.restored.updated_ms)
        views = before.views if before is not None else {}
        views = {
            resource: with_report(views.get(resource), _free_list(chips, report.update_s), idle=idle)
            for resource, chips in report.chips.items()
        }
        word.device = DeviceWord(report, spoke_ms, behind_ms, views)
        self._note(node, views)

    def look_again(self, node: str, *, now_ms: UnixMs, idle: int) -> None:
        """Judge free lists anew, when time has passed or pods have come or gone."""
        device = self._word(node).device
        if device is None:
            return
        age_s = (now_ms - device.spoke_ms) / _MS
        views = {key: looked_again(view, idle=idle, age_s=age_s) for key, view in device.views.items()}
        self._word(node).device = msgspec.structs.replace(device, views=views)
        self._note(node, views)

    def hear_node(self, node: str, info: NodeInfo | None) -> None:
        """Take what NodeD says of a node; None: it says nothing, so it is well."""
        self._word(node).node = info

    def hear_switch(self, node: str, info: SwitchInfo | None) -> None:
        """Take what is said of a node's switch; None: nothing."""
        self._word(node).switch = info

    def hear_agent(self, report: HealthReport, *, now_ms: UnixMs) -> None:
        """Take a report that came over the bus."""
        self._word(report.node).agent = AgentWord(report, now_ms)

    def doubt(self, node: str, source: str, reason: str) -> bool:
        """Note that a source's newest word cannot be taken; whether it was not in doubt before."""
        doubts = self._word(node).doubts
        is_new = source not in doubts
        self._word(node).doubts = {**doubts, source: reason}
        return is_new

    def trust(self, node: str, source: str) -> bool:
        """Note that a source's newest word is good; whether it was in doubt before."""
        word = self._word(node)
        if source not in word.doubts:
            return False
        word.doubts = {key: reason for key, reason in word.doubts.items() if key != source}
        return True

    def _word(self, node: str) -> Word:
        return self._words.setdefault(node, Word())

    def _note(self, node: str, views: dict[str, FreeView]) -> None:
        if all(view.shown == view.report for view in views.values()):
            self.unsettled.discard(node)
        else:
            self.unsettled.add(node)


def _spoke(
    before: DeviceWord | None, report: DeviceReport, *, now_ms: UnixMs, is_live: bool
) -> tuple[UnixMs, int | None]:
    """When a report was written by our clock, and how far the node's clock is behind."""
    written_ms = report.update_s * _MS
    if before is None:
        return min(written_ms, now_ms), None
    if report.update_s == before.report.update_s:
        return before.spoke_ms, before.behind_ms
    behind_ms = before.behind_ms
    if is_live:
        is_first = behind_ms is None or report.update_s < before.report.update_s  # or the node's clock was set back
        behind_ms = now_ms - written_ms if is_first or behind_ms is None else min(behind_ms, now_ms - written_ms)
    return max(0, min(written_ms + (behind_ms or 0), now_ms)), behind_ms


def _free_list(chips: ChipLists, update_s: int) -> FreeList:
    return FreeList(chips.free, frozenset(chips.unhealthy_names), update_s)
