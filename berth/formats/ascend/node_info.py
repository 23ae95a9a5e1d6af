"""Report of the agent of a node (NodeD): ConfigMap ``mindx-dl-nodeinfo-<node>``, key ``NodeInfo``.

The ConfigMap exists only while the node has a fault. Without it the node is healthy, or the agent does not run; a
reader cannot distinguish these cases.

Source: docs/reference/kubernetes.md, "Node information"; docs/reference/faults.md, "Node and switch fault levels".
"""

from typing import Final

import msgspec

from berth.formats.ascend.check_code import verify
from berth.formats.ascend.fault_levels import KNOWN_LEVELS, level_of
from berth.formats.ascend.report_error import RefusedReport, ReportError, decoded, text_of
from berth.formats.whole_numbers import WHOLE_MAX, Int64
from berth.schemas.facts import NodeHealth

NAMESPACE: Final = "mindx-dl"
NAME_PREFIX: Final = "mindx-dl-nodeinfo-"
KEY: Final = "NodeInfo"
_FAULTS_SHOWN_MAX: Final = 3
_NO_LEVEL: Final = "none"


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
    node_info: msgspec.Raw
    check_code: str = ""


class _LooseInfo(msgspec.Struct, frozen=True, rename="pascal"):
    fault_dev_list: object = None
    node_status: object = ""


class _LooseCfg(msgspec.Struct, frozen=True, rename="pascal"):
    node_info: msgspec.Raw


class NodeVerdict(msgspec.Struct, frozen=True):
    """Health of a node according to a report.

    Attributes:
        level: Level of the node.
        reason: Why, in one sentence; empty when it is healthy.
    """

    level: NodeHealth
    reason: str = ""


_DECODER: Final = msgspec.json.Decoder(_NodeInfoCfg)
_INFO: Final = msgspec.json.Decoder(NodeInfo)
_LOOSE: Final = msgspec.json.Decoder(_LooseCfg)
_LOOSE_INFO: Final = msgspec.json.Decoder(_LooseInfo)


def parse_node_info(text: str) -> NodeInfo:
    """Report in the value of key ``NodeInfo``; its checksum is verified.

    Raises:
        ReportError: It is not JSON or has another form, its CheckCode is wrong, or it has no health.
    """
    config = decoded(text, _DECODER, field=KEY)
    info = decoded(config.node_info, _INFO, field=f"{KEY}.NodeInfo")
    verify(config.check_code, bytes(config.node_info), (info,), field=f"{KEY}.CheckCode")
    return with_health(info, f"{KEY}.NodeInfo")


def with_health(info: NodeInfo, field: str) -> NodeInfo:
    """The same report; ``field`` is its place, for errors.

    Raises:
        ReportError: It has neither a status nor a fault, such as that of a release with another field for its status.
    """
    if not info.node_status and not info.fault_dev_list:
        raise ReportError(
            field=f"{field}.NodeStatus", value=info.node_status, expected="a status, or faults in FaultDevList"
        )
    return info


def refused_node_info(text: str) -> RefusedReport[NodeInfo]:
    """What can be read of a value that :func:`parse_node_info` refuses."""
    try:
        sent = decoded(text, _LOOSE, field=KEY).node_info
    except ReportError as error:
        return RefusedReport(None, str(error))
    return refused_info_of(sent, f"{KEY}.NodeInfo")


def refused_info_of(sent: msgspec.Raw, field: str) -> RefusedReport[NodeInfo]:
    """What can be read of an object with the fields of :class:`NodeInfo` that is refused; ``field`` is its place."""
    try:
        loose = decoded(sent, _LOOSE_INFO, field=field)
    except ReportError as error:
        return RefusedReport(None, str(error))
    rows = loose.fault_dev_list if isinstance(loose.fault_dev_list, list) else []
    faults = [_readable_fault(row) for row in rows if isinstance(row, dict)]
    status = loose.node_status if isinstance(loose.node_status, str) else ""
    info = NodeInfo([fault for fault in faults if status or fault.fault_level], status)
    try:
        text_of(loose.node_status, f"{field}.NodeStatus")
        with_health(info, field)
    except ReportError as error:
        return RefusedReport(info, str(error))
    return RefusedReport(info)


def _readable_fault(row: dict[str, object]) -> FaultDevice:
    """A fault with the fields that can be read."""

    def text(key: str) -> str:
        value = row.get(key)
        return value if isinstance(value, str) else ""

    number, codes = row.get("DeviceId"), row.get("FaultCode")
    return FaultDevice(
        text("DeviceType"),
        number if isinstance(number, int) and abs(number) <= WHOLE_MAX else 0,
        [code for code in codes if isinstance(code, str)] if isinstance(codes, list) else None,
        text("FaultLevel"),
    )


def judge_node(info: NodeInfo) -> NodeVerdict:
    """Health of a node: its ``NodeStatus``, or the worst level of its faults if that is empty."""
    if info.node_status:
        level = level_of(info.node_status)
        unknown = (
            "" if level.is_known else f"NodeStatus {info.node_status!r} is unknown (known: {', '.join(KNOWN_LEVELS)})"
        )
        health = level.health
    else:
        # A fault without a level is not one of level "": its release has the level elsewhere.
        levels = [(level_of(fault.fault_level or _NO_LEVEL), fault.fault_level) for fault in info.fault_dev_list or ()]
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
