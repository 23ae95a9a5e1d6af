"""Report of the agent of a node (NodeD): ConfigMap ``mindx-dl-nodeinfo-<node>``, key ``NodeInfo``.

The ConfigMap exists only while the node has a fault. Without it the node is healthy, or the agent does not run; a
reader cannot distinguish these cases.

Source: docs/reference/kubernetes.md, "Node information"; docs/reference/faults.md, "Node and switch fault levels".
"""

from typing import Final

import msgspec

from berth.formats.ascend.check_code import check_code
from berth.formats.ascend.fault_levels import KNOWN_LEVELS, level_of
from berth.formats.ascend.report_error import ReportError, decoded
from berth.formats.whole_numbers import Int64
from berth.schemas.facts import NodeHealth

NAMESPACE: Final = "mindx-dl"
NAME_PREFIX: Final = "mindx-dl-nodeinfo-"
KEY: Final = "NodeInfo"
_FAULTS_SHOWN_MAX: Final = 3


class FaultDevice(msgspec.Struct, frozen=True, rename="pascal"):
    """A faulty part of the node. The order of the fields is that of the checksum."""

    device_type: str = ""
    device_id: Int64 = 0
    fault_code: list[str] | None = None
    fault_level: str = ""


class NodeInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """Object of the checksum."""

    fault_dev_list: list[FaultDevice] | None = None
    node_status: str = ""


class _NodeInfoCfg(msgspec.Struct, frozen=True, rename="pascal"):
    node_info: NodeInfo
    check_code: str = ""


class NodeVerdict(msgspec.Struct, frozen=True):
    """Health of a node according to a report.

    Attributes:
        level: Level of the node.
        reason: Why, in one sentence; empty when it is healthy.
    """

    level: NodeHealth
    reason: str = ""


_DECODER: Final = msgspec.json.Decoder(_NodeInfoCfg)


def parse_node_info(text: str) -> NodeInfo:
    """Report in the value of key ``NodeInfo``; its checksum is verified.

    Raises:
        ReportError: It is not JSON or has another form, or its CheckCode is wrong.
    """
    config = decoded(text, _DECODER, field=KEY)
    right = check_code(config.node_info)
    if config.check_code != right:
        raise ReportError(field=f"{KEY}.CheckCode", value=config.check_code, expected=f"{right!r} for this content")
    return config.node_info


def judge_node(info: NodeInfo) -> NodeVerdict:
    """Health of a node: its ``NodeStatus``, or the worst level of its faults if that is empty."""
    if info.node_status:
        level = level_of(info.node_status)
        unknown = (
            "" if level.is_known else f"NodeStatus {info.node_status!r} is unknown (known: {', '.join(KNOWN_LEVELS)})"
        )
        health = level.health
    else:
        levels = [(level_of(fault.fault_level), fault.fault_level) for fault in info.fault_dev_list or ()]
        health = max((level.health for level, _ in levels), default=NodeHealth.OK)
        names = sorted({name for level, name in levels if not level.is_known})
        unknown = f"FaultLevel {names[0]!r} is unknown (known: {', '.join(KNOWN_LEVELS)})" if names else ""
    if health is NodeHealth.OK:
        return NodeVerdict(health)
    return NodeVerdict(health, unknown or f"node status is {info.node_status or 'not given'}{_faults_text(info)}")


def _faults_text(info: NodeInfo) -> str:
    """Short text of the faults of a report."""
    faults = [
        f"{fault.device_type} {fault.device_id} {fault.fault_level} {'/'.join(fault.fault_code or ())}".rstrip()
        for fault in info.fault_dev_list or ()
    ]
    if not faults:
        return ""
    more = f" and {len(faults) - _FAULTS_SHOWN_MAX} more" if len(faults) > _FAULTS_SHOWN_MAX else ""
    return f": {', '.join(faults[:_FAULTS_SHOWN_MAX])}{more}"
