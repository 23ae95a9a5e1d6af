"""ConfigMaps that the agents of a simulated node write: device plug-in and NodeD. Pure.

Source: docs/reference/kubernetes.md, "CheckCode", "Device information" and "Node information".
"""

import zlib
from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from berth.formats.ascend import device_info, node_info
from berth.formats.ascend.check_code import GoValue, code_of, go_json
from berth.formats.ascend.node_info import FaultDevice
from berth.formats.ascend.pod_annotations import RESOURCE_PREFIX, chip_names
from berth.lab.nodesim.breakage import (
    CHIP_LEVELS,
    NODE_LEVELS,
    SWITCH_LEVELS,
    Breakage,
    Broken,
    has_switch_reports,
)
from berth.lab.nodesim.stamps import stamp
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs

FOR_CLUSTERD: Final = {"mx-consumer-cim": "true"}
"""Label of ConfigMaps that ClusterD reads."""
NOTICE: Final = "The free list and this ConfigMap are going to be replaced; read the chips from baseDeviceInfos."
UNKNOWN_ID: Final = -2
"""SuperPodID and ServerIndex of a node that is in no SuperPoD."""
Release = Literal["this", "early", "later"]
"""Release of the agents of a node. ``early``: NodeD reports a heartbeat, also of a healthy node; ``later``: reports
have more fields, also inside of others, and another order. The sum of each covers all that it has."""
_RELEASES: Final[tuple[Release, ...]] = get_args(Release)
_HEARTBEAT_S: Final = 5
_MS: Final = 1000


class FaultRow(msgspec.Struct, frozen=True):
    """An entry of the list ``<resource>-Fault``."""

    fault_type: str
    npu_name: str
    large_model_fault_level: str
    fault_level: str
    fault_handling: str
    fault_code: str
    fault_time_and_level_map: dict[str, dict[str, int | str]]


class SwitchFault(msgspec.Struct, frozen=True):
    """A fault of a link between a node and the switches above it."""

    EventType: int
    AssembledFaultCode: str
    PeerPortDevice: int
    PeerPortId: int
    SwitchChipId: int
    SwitchPortId: int
    Severity: int
    Assertion: int
    AlarmRaisedTime: int


class SwitchInfo(msgspec.Struct, frozen=True):
    """Value of ``SwitchInfoCfg``."""

    FaultCode: list[str]
    FaultLevel: str
    UpdateTime: int
    NodeStatus: str
    FaultTimeAndLevelMap: dict[str, dict[str, int | str]]


class Place(msgspec.Struct, frozen=True):
    """Place of a node in its SuperPoD: numbers as the driver reports them, -2 for none."""

    superpod: int = UNKNOWN_ID
    server: int = UNKNOWN_ID
    rack: int | None = None


def device_list(node: NodeDescription, broken: Broken, *, taken: int, used: int) -> dict[str, str]:
    """Lists of a node's chips.

    Args:
        node: The node.
        broken: Its current faults.
        taken: Bitmap of chips that the annotations of active pods name.
        used: Bitmap of chips that are mounted.
    """
    unhealthy = broken.unhealthy(used)
    recovering = broken.recovering
    free = node.chips & ~taken & ~unhealthy & ~recovering

    def names(mask: int) -> str:
        return chip_names(node.resource, _ids(mask & node.chips))

    return {
        node.resource: names(free),
        f"{node.resource}-Unhealthy": names(unhealthy),
        f"{node.resource}-NetworkUnhealthy": names(broken.network),
        f"{node.resource}-Recovering": names(recovering),
        f"{node.resource}-Fault": go_json(fault_rows(node, broken)),
    }


def fault_rows(node: NodeDescription, broken: Broken) -> list[GoValue]:
    """Rows of the fault list: one for the chip and one for its network, each with all codes and the worst level."""
    rows: list[GoValue] = []
    for chip in _ids(node.chips):
        for kind, word in (("chip", "CardUnhealthy"), ("network", "CardNetworkUnhealthy")):
            found = sorted((item for item in broken.of(kind) if item.chips >> chip & 1), key=lambda item: item.code)
            if not found:
                continue
            level = max((item.level for item in found), key=CHIP_LEVELS.index)
            rows.append(
                FaultRow(
                    fault_type=word,
                    npu_name=f"{node.resource.removeprefix(RESOURCE_PREFIX)}-{chip}",
                    large_model_fault_level=level,
                    fault_level=level,
                    fault_handling=level,
                    fault_code=",".join(dict.fromkeys(item.code for item in found)),
                    fault_time_and_level_map={
                        item.code: {"fault_time": item.from_ms, "fault_level": item.level} for item in found
                    },
                )
            )
    return rows


def other_release(name: str) -> Release:
    """Release of the agents of a node in a cluster with several, by its name."""
    return _RELEASES[zlib.crc32(name.encode()) % len(_RELEASES)]


def device_data(
    node: NodeDescription,
    place: Place,
    broken: Broken,
    lists: Mapping[str, str],
    now_ms: UnixMs,
    release: Release,
) -> dict[str, str]:
    """Data of the ConfigMap of the device plug-in."""
    info: dict[str, GoValue] = {"DeviceList": dict(lists), "UpdateTime": now_ms // _MS}
    if release == "later":
        info = {"UpdateTime": now_ms // _MS, "DpuList": [{"Name": "dpu-0", "Ports": [0, 1]}], "DeviceList": dict(lists)}
    sent = _object(info)
    whole: dict[str, GoValue] = {"SuperPodID": place.superpod, "ServerIndex": place.server}
    if place.rack is not None:
        whole["RackID"] = place.rack
    whole["CheckCode"] = code_of(sent.encode())
    data = {
        device_info.KEY: f'{{"DeviceInfo":{sent},{_object(whole)[1:]}',
        device_info.SEPARATED_KEY: _separated(node, broken),
        "UpgradeFaultReason": _upgraded(node, broken),
        "Description": NOTICE,
    }
    if has_switch_reports(node):
        data[device_info.SWITCH_KEY] = go_json(_switch(broken, now_ms))
    return data


def node_data(broken: Broken, now_ms: UnixMs, release: Release) -> dict[str, str]:
    """Data of NodeD's ConfigMap; empty for a healthy node, which has none, except with an early release."""
    faults = broken.of("node")
    if not faults and release != "early":
        return {}
    worst = max((item.level for item in faults), key=list(NODE_LEVELS).index, default="")
    rows: list[GoValue] = [FaultDevice("Memory", index, [item.code], item.level) for index, item in enumerate(faults)]
    status = NODE_LEVELS[worst] if worst else "Healthy"
    info: dict[str, GoValue] = {"FaultDevList": rows, "NodeStatus": status}
    if release == "early":
        beats: dict[str, GoValue] = {"HeartbeatTime": now_ms // _MS, "HeartbeatInterval": _HEARTBEAT_S}
        info = {"FaultDevList": rows, **beats, "NodeStatus": status}
    elif release == "later":
        rows = [
            {
                "DeviceType": "Memory",
                "DeviceId": index,
                "FaultCode": [item.code],
                "FaultLevel": item.level,
                "At": {"Slot": 0},
            }
            for index, item in enumerate(faults)
        ]
        info = {"NodeStatus": status, "Board": {"Serial": "<x>"}, "FaultDevList": rows}
    sent = _object(info)
    text = f'{{"NodeInfo":{sent},"CheckCode":{go_json(code_of(sent.encode()))}}}'
    return {node_info.KEY: text, "updateTime": stamp(now_ms)}


def _object(members: Mapping[str, GoValue]) -> str:
    """JSON of an object whose members keep their order, as those of a struct in Go."""
    return f"{{{','.join(f'{go_json(key)}:{go_json(value)}' for key, value in members.items())}}}"


def _separated(node: NodeDescription, broken: Broken) -> str:
    mask = 0
    for item in broken.of("chip"):
        mask |= item.chips if item.level == "ManuallySeparateNPU" else 0
    return chip_names(node.resource, _ids(mask))


def _upgraded(node: NodeDescription, broken: Broken) -> str:
    """Why chips were isolated by the frequency rule; empty when none was."""
    found: dict[str, tuple[GoValue, ...]] = {}
    for item in broken.of("chip"):
        if item.level != "ManuallySeparateNPU":
            continue
        for chip in _ids(item.chips):
            name = chip_names(node.resource, [chip])
            found[name] = (*(found.get(name) or ()), _upgrade(item))
    return go_json(found) if found else ""


def _upgrade(item: Breakage) -> dict[str, int | str]:
    return {
        "fault_code": item.code,
        "fault_level": item.level,
        "upgrade_type": "FaultFrequency",
        "upgrade_time": item.from_ms,
    }


def _switch(broken: Broken, now_ms: UnixMs) -> SwitchInfo:
    faults = broken.of("switch")
    level = max((item.level for item in faults), key=list(SWITCH_LEVELS).index) if faults else ""
    rows = [
        go_json(SwitchFault(5, f"[0x{item.code.lower()},155649,na,NA]", 1, 0, 0, index, 1, 1, item.from_ms))
        for index, item in enumerate(faults)
    ]
    times: dict[str, dict[str, int | str]] = {
        f"{item.code}_0_{index}": {"fault_time": item.from_ms, "fault_level": item.level}
        for index, item in enumerate(faults)
    }
    return SwitchInfo(rows, level, now_ms // _MS, SWITCH_LEVELS.get(level, "Healthy"), times)


def _ids(mask: int) -> list[int]:
    return [chip for chip in range(mask.bit_length()) if mask >> chip & 1]
