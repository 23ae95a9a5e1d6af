"""Verdicts: condition of a node from all reports about it. Pure.

The worst level wins. A chip is unhealthy if any source reports so. The reason names every source with a finding.
Staleness prevents new work on a node and never ends running work, and so does what a refused report says.

Source: docs/reference/kubernetes.md, "Device information"; docs/reference/faults.md, "Chip fault levels",
"Node and switch fault levels" and "Normalised levels"; docs/reference/nodes-and-chips.md, "Free list".
"""

from typing import Final

import msgspec

from berth.core.chips.picking import union_of
from berth.formats.ascend.device_info import (
    NETWORK_FAULT,
    ChipLists,
    DeviceReport,
    FaultRow,
    SwitchInfo,
    physical_id,
)
from berth.formats.ascend.fault_levels import KNOWN_LEVELS, REPORT_LEVELS, level_of, word_of
from berth.formats.ascend.free_list import FreeView
from berth.formats.ascend.node_info import judge_node
from berth.formats.ascend.report_error import NO_REPORT, STALE, SUSPECT
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.units import UnixMs
from berth.services.health.partial_verdicts import FAULTS, HealthRules, PartialVerdict, part_of, softened
from berth.services.health.report_store import DEVICE, NODED, SWITCH, NodeReports, SourceReports, StoredDeviceReport

NODE_FAULT: Final = "NodeUnhealthy"
LINK_DOWN_MS: Final = 20_000
"""How long the chips of a link that went down count as network-unhealthy without being in the list."""
_ROWS_SHOWN_MAX: Final = 4
_REASON_MAX: Final = 1000
_UNREADABLE: Final = f"{NO_REPORT} that can be read"
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_MS: Final = 1000


def judge(
    node: NodeDescription, reports: NodeReports, rules: HealthRules, *, held: int, now_ms: UnixMs
) -> NodeCondition:
    """Condition of a node.

    Args:
        node: The node.
        reports: Reports on it.
        rules: Settings.
        held: Bitmap of the chips that its pods hold.
        now_ms: The time.
    """
    newest = _newest_device(reports)
    stale = stale_reason(now_ms - newest.reported_ms, rules.stale_ms) if newest is not None else ""
    parts = [PartialVerdict(NodeHealth.NO_NEW_WORK, f"{DEVICE}{rules.via}: {stale}")] if stale else []
    parts += [*_devices(node, reports, rules, held=held, now_ms=now_ms), *_others(reports, rules)]
    agent = _agent(reports, rules, now_ms=now_ms)
    if agent is not None:
        parts.append(agent)
    elif reports.device is None and node.chips:
        restored = _restored(reports, rules, now_ms=now_ms)
        if restored is not None and not parts and not reports.suspect:
            return restored
        if restored is not None:
            parts.append(part_of(restored))
        elif newest is None:
            parts.append(_no_report(node, reports, rules, now_ms=now_ms))
    parts += _before_restart(reports, rules)
    parts += _of_refused(node, reports, rules, held=held, now_ms=now_ms)
    unusable = union_of(part.unhealthy | part.recovering for part in parts)
    known, updated_ms = _last_report(node, reports)
    return NodeCondition(
        name=node.name,
        unhealthy=union_of(part.unhealthy for part in parts),
        recovering=union_of(part.recovering for part in parts),
        network_unhealthy=union_of(part.network_unhealthy for part in parts),
        level=max((part.level for part in parts), default=NodeHealth.OK),
        network_known=known,
        withheld=union_of(part.withheld for part in parts) & ~unusable,
        reason="; ".join(part.reason for part in parts if part.reason)[:_REASON_MAX],
        updated_ms=updated_ms,
        sub_healthy=union_of(_sub_healthy(node, part) for part in parts),
        sources=union_of(part.source for part in parts if part.is_fault),
        noded_level=_in_force(reports, NODED),
        switch_level=_in_force(reports, SWITCH),
    )


def _newest_device(reports: NodeReports) -> StoredDeviceReport | None:
    """The newest report of the device plug-in of which the health can be read, the refused one included."""
    refused = reports.refused.device if DEVICE not in reports.gaps else None
    found = [one for one in (reports.device, refused) if one is not None]
    return max(found, key=lambda one: one.reported_ms, default=None)


def _of_refused(
    node: NodeDescription, reports: NodeReports, rules: HealthRules, *, held: int, now_ms: UnixMs
) -> list[PartialVerdict]:
    """Parts of the refused reports: that they are refused, and what they say, which keeps new work away alone."""
    parts = [PartialVerdict(reason=f"{source} {SUSPECT}, {why}") for source, why in sorted(reports.suspect.items())]
    for source, gap in sorted(reports.gaps.items()):
        is_known = reports.of(source) is not None or _in_force(reports, source) is not NodeHealth.OK
        if source in {NODED, SWITCH} and not is_known:
            more = "" if gap == reports.suspect.get(source) else f", {gap}"
            parts.append(PartialVerdict(NodeHealth.NO_NEW_WORK, f"{source}{rules.via}: {_UNREADABLE}{more}"))
    found = [*_devices(node, reports.refused, rules, held=held, now_ms=now_ms), *_others(reports.refused, rules)]
    agent = _agent(reports.refused, rules, now_ms=now_ms)
    if agent is not None and STALE not in agent.reason:
        found.append(agent)
    return [*parts, *(softened(part) for part in found)]


def _restored(reports: NodeReports, rules: HealthRules, *, now_ms: UnixMs) -> NodeCondition | None:
    """Condition of an earlier run that counts instead of a valid report of the device plug-in; None without.

    It counts until it is too old; beside a refused report that can be read, its faults do.
    """
    restored = reports.restored
    if restored is None or 0 <= now_ms - restored.updated_ms <= rules.stale_ms:
        return restored
    if _newest_device(reports) is None:
        return None
    level = restored.level if restored.level in FAULTS else NodeHealth.OK
    return msgspec.structs.replace(restored, level=level, withheld=0, reason="")


def _in_force(reports: NodeReports, source: str) -> NodeHealth:
    """Level of a node by the last valid report of NodeD or on its switch; an earlier run may have read it."""
    if reports.node is not None and source == NODED:
        return judge_node(reports.node).level
    if reports.switch is not None and source == SWITCH:
        return judge_switch(reports.switch)[0]
    restored = reports.restored
    if restored is None or source not in reports.suspect:
        return NodeHealth.OK
    return restored.noded_level if source == NODED else restored.switch_level


def _before_restart(reports: NodeReports, rules: HealthRules) -> list[PartialVerdict]:
    """Parts of the last valid reports of NodeD and on the switch that an earlier run read; the newest are refused."""
    found = []
    reporters = {NODED: HealthSource.NODED, SWITCH: HealthSource.DEVICE_PLUGIN}
    for source, reporter in reporters.items():
        level = _in_force(reports, source)
        if reports.of(source) is None and level is not NodeHealth.OK:
            why = f"{source}{rules.via}: level {word_of(level)} by its last valid report"
            found.append(PartialVerdict(level, why, source=rules.reporter(reporter)))
    return found


def _sub_healthy(node: NodeDescription, part: PartialVerdict) -> int:
    """Sub-healthy chips: all of the node by a source that names none, such as its switch."""
    is_whole = part.level is NodeHealth.SUB_HEALTHY and not part.sub_healthy
    return node.chips if is_whole else part.sub_healthy


def is_own_list(node: NodeDescription, reports: SourceReports, rules: HealthRules) -> bool:
    """Whether the device plug-in's own free list counts, so that pods on the node change the verdict.

    Source: docs/reference/nodes-and-chips.md, "Free list".
    """
    if not rules.self_maintained or node.labels.get(LABEL_SOFT_SHARE) == "true":
        return True
    return reports.device is not None and any(lists.has_virtual for lists in reports.device.report.chips.values())


def next_change_ms(reports: NodeReports, rules: HealthRules, *, now_ms: UnixMs) -> UnixMs | None:
    """Time at which the verdict on a node changes if no report arrives; None for never."""
    newest = _newest_device(reports)
    agents = (reports.agent, reports.refused.agent)
    reported = [stored.reported_ms for stored in (newest, *agents) if stored is not None]
    if reports.device is None and reports.agent is None and reports.restored is not None:
        reported.append(reports.restored.updated_ms)
    due = []
    for reported_ms in reported:
        limit_ms = rules.stale_ms
        while reported_ms + limit_ms < now_ms:
            limit_ms *= 2
        due.append(reported_ms + limit_ms + 1)
    for device in (reports.device, reports.refused.device):
        rows = device.report.faults if device is not None else ()
        downs = [row.link_down_ms for row in rows if row.link_down_ms]
        due += [down_ms for down_ms in downs if down_ms > now_ms]  # the clock of the node is ahead
        due += [down_ms + LINK_DOWN_MS + 1 for down_ms in downs if down_ms <= now_ms <= down_ms + LINK_DOWN_MS]
    return min(due, default=None)


def _devices(
    node: NodeDescription, reports: SourceReports, rules: HealthRules, *, held: int, now_ms: UnixMs
) -> list[PartialVerdict]:
    """Part of the device plug-in's report."""
    if reports.device is None:
        return []
    source, reporter = f"{DEVICE}{rules.via}", rules.reporter(HealthSource.DEVICE_PLUGIN)
    report = reports.device.report
    parts = []
    lists = _lists(report, node.resource)
    if lists is None:
        if node.chips:
            why = f"DeviceList has no key {node.resource or 'huawei.com/<type>'}: it offers no chips"
            parts.append(PartialVerdict(NodeHealth.NO_NEW_WORK, f"{source}: {why}"))
        return parts
    if report.warnings:
        parts.append(PartialVerdict(reason=f"{source}: {report.warnings[0]}"))
    unusable = lists.unhealthy | lists.recovering
    view = reports.device.views.get(node.resource) or next(iter(reports.device.views.values()))
    parts.append(
        PartialVerdict(
            unhealthy=lists.unhealthy,
            recovering=lists.recovering,
            network_unhealthy=lists.network_unhealthy | _lost_links(report, now_ms=now_ms),
            withheld=_withheld(node, view, held=held) & ~unusable if is_own_list(node, reports, rules) else 0,
            source=reporter,
        )
    )
    rows = _rows(report.faults, source, unusable=unusable)
    parts += [msgspec.structs.replace(part, source=reporter) for part in rows]
    return parts


def _lost_links(report: DeviceReport, *, now_ms: UnixMs) -> int:
    """Chips whose link went down a moment ago: the list of network-unhealthy chips has them only later.

    Source: docs/reference/faults.md, "Places of replaced pods".
    """
    mask = 0
    for row in report.faults:
        if 0 <= now_ms - row.link_down_ms <= LINK_DOWN_MS:
            mask |= row.chips or 0
    return mask


def _withheld(node: NodeDescription, view: FreeView, *, held: int) -> int:
    """Chips of a node that its device plug-in does not list as free."""
    free = 0
    for name in view.shown.free:
        chip = physical_id(name)
        if chip is not None and name.count("-") == 1:
            free |= 1 << chip
    # A chip shared by pods leaves the list, and may still take another pod.
    is_shared = node.labels.get(LABEL_SOFT_SHARE) == "true"
    return node.chips & ~free & ~(held if is_shared else 0)


def _rows(rows: tuple[FaultRow, ...], source: str, *, unusable: int) -> list[PartialVerdict]:
    """Part of the fault rows in addition to the lists: reasons, sub-health, and chips that accept no new work."""
    texts: list[str] = []
    level = NodeHealth.OK
    withheld = sub_healthy = 0
    for row in rows:
        found = level_of(row.level_name)
        if found.health is NodeHealth.OK:
            continue
        why = f"{row.level_name} {row.fault_code}".strip()
        if not found.is_known:
            why += f" is no known level ({', '.join(KNOWN_LEVELS)})"
        texts.append(f"{row.npu_name or 'node'} {why}{' of its network' if row.fault_type == NETWORK_FAULT else ''}")
        chips = row.chips
        if row.fault_type == NODE_FAULT:
            level = max(level, found.health)
        elif row.fault_type == NETWORK_FAULT:
            continue  # the list of network-unhealthy chips decides
        elif chips is None:
            level = max(level, min(found.health, NodeHealth.NO_NEW_WORK))  # which chip is not known
        elif found.health is NodeHealth.SUB_HEALTHY:
            sub_healthy |= chips
            level = max(level, NodeHealth.SUB_HEALTHY if chips & ~unusable else NodeHealth.OK)
        else:
            withheld |= chips & ~unusable
    if not texts:
        return []
    more = f" and {len(texts) - _ROWS_SHOWN_MAX} more" if len(texts) > _ROWS_SHOWN_MAX else ""
    return [
        PartialVerdict(
            level, f"{source}: {', '.join(texts[:_ROWS_SHOWN_MAX])}{more}", withheld=withheld, sub_healthy=sub_healthy
        )
    ]


def _others(reports: SourceReports, rules: HealthRules) -> list[PartialVerdict]:
    """Parts of NodeD and the switch."""
    parts = []
    if reports.node is not None:
        verdict = judge_node(reports.node)
        if verdict.level is not NodeHealth.OK:
            source = rules.reporter(HealthSource.NODED)
            parts.append(PartialVerdict(verdict.level, f"{NODED}{rules.via}: {verdict.reason}", source=source))
    if reports.switch is not None:
        level, reason = judge_switch(reports.switch)
        if level is not NodeHealth.OK:
            source = rules.reporter(HealthSource.DEVICE_PLUGIN)
            parts.append(PartialVerdict(level, f"{SWITCH}{rules.via}: {reason}", source=source))
    return parts


def judge_switch(info: SwitchInfo) -> tuple[NodeHealth, str]:
    """Level of a node by its switch, and the reason: by the status, or by the fault level where the status is empty."""
    name = info.node_status or info.fault_level
    found = level_of(name)
    if found.health is NodeHealth.OK:
        return found.health, ""
    if not found.is_known:
        return found.health, f"NodeStatus {name!r} is unknown (known: {', '.join(KNOWN_LEVELS)})"
    return found.health, f"node status is {name}, fault level {info.fault_level or 'not given'}"


def _agent(reports: SourceReports, rules: HealthRules, *, now_ms: UnixMs) -> PartialVerdict | None:
    """Part of the agent's report; an old one does not count where a device plug-in reports."""
    if reports.agent is None:
        return None
    report = reports.agent.report
    source = f"agent {report.source}" if report.source else "agent"
    stale = stale_reason(now_ms - reports.agent.reported_ms, rules.stale_ms)
    if stale and reports.device is not None:
        return None
    level = REPORT_LEVELS.get(report.level, NodeHealth.NO_NEW_WORK)
    why = [f"level {word_of(level)}"] if level is not NodeHealth.OK else []
    why += [report.reason] if report.reason else []
    why += [stale] if stale else []
    return PartialVerdict(
        level=max(level, NodeHealth.NO_NEW_WORK) if stale else level,
        reason=f"{source}: {', '.join(why)}" if why else "",
        unhealthy=_mask(report.unhealthy),
        recovering=_mask(report.recovering),
        network_unhealthy=_mask(report.network_unhealthy),
        source=HealthSource.AGENT,
    )


def _no_report(node: NodeDescription, reports: NodeReports, rules: HealthRules, *, now_ms: UnixMs) -> PartialVerdict:
    """Part of a node with chips and without a readable report."""
    if reports.suspect:
        gap, why = reports.gaps.get(DEVICE, ""), reports.suspect.get(DEVICE)
        more = f": {gap}" if gap not in {"", why} else ""
        return PartialVerdict(NodeHealth.NO_NEW_WORK, f"{_UNREADABLE}{more}")
    if reports.restored is not None and reports.restored.updated_ms:
        age = stale_reason(now_ms - reports.restored.updated_ms, rules.stale_ms)
        if age:
            return PartialVerdict(NodeHealth.NO_NEW_WORK, f"the last {age}; no newer report")
    expected = {
        "direct": f"{DEVICE}: {NO_REPORT}, ConfigMap kube-system/mindx-dl-deviceinfo-{node.name} is missing",
        "clusterd": f"{DEVICE} via ClusterD: {NO_REPORT}, no ConfigMap mindx-dl/cluster-info-device-* names the node",
    }.get(rules.source, f"agent: {NO_REPORT} yet")
    return PartialVerdict(NodeHealth.NO_NEW_WORK, expected)


def _last_report(node: NodeDescription, reports: NodeReports) -> tuple[bool, UnixMs]:
    """Whether the list of network-unhealthy chips is known, and the time of the last report."""
    newest = _newest_device(reports)
    if newest is not None:
        devices = [one for one in (reports.device, reports.refused.device) if one is not None]
        lists = [_lists(one.report, node.resource) for one in devices]
        return all(one is None or one.network_known for one in lists), newest.reported_ms
    if reports.agent is not None:
        return True, reports.agent.reported_ms
    if reports.restored is not None:
        return reports.restored.network_known, reports.restored.updated_ms
    return True, 0


def _lists(report: DeviceReport, resource: str) -> ChipLists | None:
    """Lists of a node's resource; where the node does not state it, the only lists there are."""
    if not resource and len(report.chips) == 1:
        return next(iter(report.chips.values()))
    return report.chips.get(resource)


def stale_reason(age_ms: int, limit_ms: int) -> str:
    """Why a report is too old; empty when it is not. The shown age doubles, so that the text seldom changes."""
    if age_ms <= limit_ms:
        return ""
    shown_ms = limit_ms
    while 2 * shown_ms < age_ms:
        shown_ms *= 2
    return f"{STALE} {span(shown_ms)} old (limit {span(limit_ms)})"


def span(length_ms: int) -> str:
    """A length of time as text, such as ``10 min``."""
    seconds = length_ms // _MS
    if seconds < 2 * _MINUTE_S:
        return f"{seconds} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S} min"
    return f"{seconds // _HOUR_S} h"


def _mask(chips: list[int]) -> int:
    return union_of(1 << chip for chip in chips)
