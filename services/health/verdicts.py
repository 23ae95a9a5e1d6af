"""Verdicts: what all words on a node come to. Pure.

The worst level wins, chips that any source calls sick are sick, and the reason names every source that has something to
say. Staleness takes new work away from a node and never ends what runs there.

Source: docs/reference/kubernetes.md, "Device information"; docs/reference/faults.md, "Chip fault levels",
"Node and switch fault levels" and "Normalised levels"; docs/reference/nodes-and-chips.md, "Free list".
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.formats.ascend.device_info import ChipLists, DeviceReport, FaultRow, SwitchInfo, physical_id
from berth.formats.ascend.fault_levels import KNOWN_LEVELS, REPORT_LEVELS, level_of, word_of
from berth.formats.ascend.free_list import FreeView
from berth.formats.ascend.node_info import judge_node
from berth.formats.ascend.report_error import SUSPECT
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.units import UnixMs
from berth.services.health.words import NodeReports

NETWORK_FAULT: Final = "CardNetworkUnhealthy"
NODE_FAULT: Final = "NodeUnhealthy"
_ROWS_TOLD_MAX: Final = 4
_REASON_MAX: Final = 1000
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_MS: Final = 1000


class Rules(msgspec.Struct, frozen=True):
    """What does not change while the service runs.

    Attributes:
        source: Setting ``source``.
        stale_ms: A report that is older takes new work away.
        self_maintained: Setting ``self_maintain_available_card``.
    """

    source: str = "direct"
    stale_ms: int = 600_000
    self_maintained: bool = True

    @property
    def via(self) -> str:
        """What a source's name ends in."""
        return " via ClusterD" if self.source == "clusterd" else ""


class Finding(msgspec.Struct, frozen=True):
    """What one source's word comes to.

    Attributes:
        level: Level of the node.
        reason: Why, with the source; empty when all is well.
        unhealthy: Mask of chips.
        recovering: Mask of chips.
        network_unhealthy: Mask of chips.
        withheld: Mask of chips that take no new work.
    """

    level: NodeHealth = NodeHealth.OK
    reason: str = ""
    unhealthy: int = 0
    recovering: int = 0
    network_unhealthy: int = 0
    withheld: int = 0


def judge(node: NodeDescription, latest: NodeReports, rules: Rules, *, held: int, now_ms: UnixMs) -> NodeCondition:
    """Condition of a node.

    Args:
        node: The node.
        latest: What was said of it.
        rules: Settings.
        held: Mask of the chips that its pods hold.
        now_ms: The time.
    """
    parts = [*_devices(node, latest, rules, held=held, now_ms=now_ms), *_others(latest, rules)]
    known, updated_ms = _known_until(node, latest)
    agent = _agent(latest, rules, now_ms=now_ms)
    if agent is not None:
        parts.append(agent)
    elif latest.device is None and node.chips:
        restored = latest.restored
        if restored is not None and 0 <= now_ms - restored.updated_ms <= rules.stale_ms:
            return restored
        parts.append(_missing_report(node, latest, rules, now_ms=now_ms))
    parts += [Finding(reason=f"{source} {SUSPECT}, {why}") for source, why in sorted(latest.suspect.items())]
    sick = _union(part.unhealthy | part.recovering for part in parts)
    return NodeCondition(
        name=node.name,
        unhealthy=_union(part.unhealthy for part in parts),
        recovering=_union(part.recovering for part in parts),
        network_unhealthy=_union(part.network_unhealthy for part in parts),
        level=max((part.level for part in parts), default=NodeHealth.OK),
        network_known=known,
        withheld=_union(part.withheld for part in parts) & ~sick,
        reason="; ".join(part.reason for part in parts if part.reason)[:_REASON_MAX],
        updated_ms=updated_ms,
    )


def uses_own_list(node: NodeDescription, latest: NodeReports, rules: Rules) -> bool:
    """Whether the device plug-in's own list of free chips counts, so that pods on the node change the verdict.

    Source: docs/reference/nodes-and-chips.md, "Free list".
    """
    if not rules.self_maintained or node.labels.get(LABEL_SOFT_SHARE) == "true":
        return True
    return latest.device is not None and any(lists.has_virtual for lists in latest.device.report.chips.values())


def turns_ms(latest: NodeReports, rules: Rules, *, now_ms: UnixMs) -> UnixMs | None:
    """When the verdict on a node next changes by time alone, if nobody speaks; None for never."""
    spoke = [heard.reported_ms for heard in (latest.device, latest.agent) if heard is not None]
    if not spoke and latest.restored is not None:
        spoke = [latest.restored.updated_ms]
    due = []
    for reported_ms in spoke:
        limit_ms = rules.stale_ms
        while reported_ms + limit_ms < now_ms:
            limit_ms *= 2
        due.append(reported_ms + limit_ms + 1)
    return min(due, default=None)


def _devices(node: NodeDescription, latest: NodeReports, rules: Rules, *, held: int, now_ms: UnixMs) -> list[Finding]:
    """What the device plug-in's report comes to."""
    if latest.device is None:
        return []
    source = f"device plug-in{rules.via}"
    report = latest.device.report
    parts = []
    stale = stale_reason(now_ms - latest.device.reported_ms, rules.stale_ms)
    if stale:
        parts.append(Finding(NodeHealth.NO_NEW_WORK, f"{source}: {stale}"))
    lists = _lists(report, node.resource)
    if lists is None:
        if node.chips:
            why = f"DeviceList has no key {node.resource or 'huawei.com/<type>'}: it offers no chips"
            parts.append(Finding(NodeHealth.NO_NEW_WORK, f"{source}: {why}"))
        return parts
    if report.remarks:
        parts.append(Finding(reason=f"{source}: {report.remarks[0]}"))
    sick = lists.unhealthy | lists.recovering
    view = latest.device.views.get(node.resource) or next(iter(latest.device.views.values()))
    parts.append(
        Finding(
            unhealthy=lists.unhealthy,
            recovering=lists.recovering,
            network_unhealthy=lists.network_unhealthy,
            withheld=_withheld(node, view, held=held) & ~sick if uses_own_list(node, latest, rules) else 0,
        )
    )
    parts += _rows(report.faults, source, sick=sick)
    return parts


def _withheld(node: NodeDescription, view: FreeView, *, held: int) -> int:
    """Chips of a node that its device plug-in does not list as free."""
    free = 0
    for name in view.shown.free:
        chip = physical_id(name)
        if chip is not None and name.count("-") == 1:
            free |= 1 << chip
    # A chip that pods share is not in the list any more, and may still take another one.
    is_shared = node.labels.get(LABEL_SOFT_SHARE) == "true"
    return node.chips & ~free & ~(held if is_shared else 0)


def _rows(rows: tuple[FaultRow, ...], source: str, *, sick: int) -> list[Finding]:
    """What rows of faults add to the lists: reasons, sub-health, and chips that are to take no new work."""
    told: list[str] = []
    level = NodeHealth.OK
    withheld = 0
    for row in rows:
        found = level_of(row.level_name)
        if found.health is NodeHealth.OK:
            continue
        why = f"{row.level_name} {row.fault_code}".strip()
        if not found.is_known:
            why += f" is no known level ({', '.join(KNOWN_LEVELS)})"
        told.append(f"{row.npu_name or 'node'} {why}{' of its network' if row.fault_type == NETWORK_FAULT else ''}")
        chip = physical_id(row.npu_name)
        if row.fault_type == NODE_FAULT or chip is None:
            level = max(level, found.health)
        elif row.fault_type != NETWORK_FAULT and not sick >> chip & 1:
            if found.health is NodeHealth.SUB_HEALTHY:
                level = max(level, NodeHealth.SUB_HEALTHY)
            else:
                withheld |= 1 << chip
    if not told:
        return []
    more = f" and {len(told) - _ROWS_TOLD_MAX} more" if len(told) > _ROWS_TOLD_MAX else ""
    return [Finding(level, f"{source}: {', '.join(told[:_ROWS_TOLD_MAX])}{more}", withheld=withheld)]


def _others(latest: NodeReports, rules: Rules) -> list[Finding]:
    """What NodeD and the switch say."""
    parts = []
    if latest.node is not None:
        verdict = judge_node(latest.node)
        if verdict.level is not NodeHealth.OK:
            parts.append(Finding(verdict.level, f"NodeD{rules.via}: {verdict.reason}"))
    if latest.switch is not None:
        level, reason = judge_switch(latest.switch)
        if level is not NodeHealth.OK:
            parts.append(Finding(level, f"switch{rules.via}: {reason}"))
    return parts


def judge_switch(info: SwitchInfo) -> tuple[NodeHealth, str]:
    """Level of a node by its switch, and why: the status; where that is empty, the level of the fault."""
    name = info.node_status or info.fault_level
    found = level_of(name)
    if found.health is NodeHealth.OK:
        return found.health, ""
    if not found.is_known:
        return found.health, f"NodeStatus {name!r} is unknown (known: {', '.join(KNOWN_LEVELS)})"
    return found.health, f"node status is {name}, fault level {info.fault_level or 'not given'}"


def _agent(latest: NodeReports, rules: Rules, *, now_ms: UnixMs) -> Finding | None:
    """What the agent's report comes to; an old one counts no more where a device plug-in speaks."""
    if latest.agent is None:
        return None
    report = latest.agent.report
    source = f"agent {report.source}" if report.source else "agent"
    stale = stale_reason(now_ms - latest.agent.reported_ms, rules.stale_ms)
    if stale and latest.device is not None:
        return None
    level = REPORT_LEVELS.get(report.level, NodeHealth.NO_NEW_WORK)
    why = [f"level {word_of(level)}"] if level is not NodeHealth.OK else []
    why += [report.reason] if report.reason else []
    why += [stale] if stale else []
    return Finding(
        level=max(level, NodeHealth.NO_NEW_WORK) if stale else level,
        reason=f"{source}: {', '.join(why)}" if why else "",
        unhealthy=_mask(report.unhealthy),
        recovering=_mask(report.recovering),
        network_unhealthy=_mask(report.network_unhealthy),
    )


def _missing_report(node: NodeDescription, latest: NodeReports, rules: Rules, *, now_ms: UnixMs) -> Finding:
    """Nobody has spoken of a node with chips, or not in words that could be read."""
    if latest.suspect:
        return Finding(NodeHealth.NO_NEW_WORK, "no report that can be read")
    if latest.restored is not None and latest.restored.updated_ms:
        age = stale_reason(now_ms - latest.restored.updated_ms, rules.stale_ms)
        if age:
            return Finding(NodeHealth.NO_NEW_WORK, f"the last {age}; its source is silent since")
    expected = {
        "direct": f"device plug-in: no report, ConfigMap kube-system/mindx-dl-deviceinfo-{node.name} is missing",
        "clusterd": "device plug-in via ClusterD: no report, no ConfigMap mindx-dl/cluster-info-device-* names the node",
    }.get(rules.source, "agent: no report yet")
    return Finding(NodeHealth.NO_NEW_WORK, expected)


def _known_until(node: NodeDescription, latest: NodeReports) -> tuple[bool, UnixMs]:
    """Whether the list of network-unhealthy chips is known, and when the source last spoke."""
    if latest.device is not None:
        lists = _lists(latest.device.report, node.resource)
        return lists is None or lists.network_known, latest.device.reported_ms
    if latest.agent is not None:
        return True, latest.agent.reported_ms
    return True, latest.restored.updated_ms if latest.restored is not None else 0


def _lists(report: DeviceReport, resource: str) -> ChipLists | None:
    """Lists of a node's resource; where the node has not said it, those of the only one there is."""
    if not resource and len(report.chips) == 1:
        return next(iter(report.chips.values()))
    return report.chips.get(resource)


def stale_reason(age_ms: int, limit_ms: int) -> str:
    """Why a report of an age is too old; empty when it is not. The age told doubles, so that the words seldom change."""
    if age_ms <= limit_ms:
        return ""
    told_ms = limit_ms
    while 2 * told_ms < age_ms:
        told_ms *= 2
    return f"report is more than {span(told_ms)} old (limit {span(limit_ms)})"


def span(length_ms: int) -> str:
    """A length of time for people, such as ``10 min``."""
    seconds = length_ms // _MS
    if seconds < 2 * _MINUTE_S:
        return f"{seconds} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S} min"
    return f"{seconds // _HOUR_S} h"


def _mask(chips: list[int]) -> int:
    return _union(1 << chip for chip in chips)


def _union(masks: Iterable[int]) -> int:
    out = 0
    for mask in masks:
        out |= mask
    return out
