"""Reports of a cluster as texts: what device plug-ins, agents of nodes and ClusterD write."""

import json
from collections.abc import Iterable, Mapping

from berth.formats.ascend.check_code import check_code
from berth.formats.ascend.device_info import DeviceInfo
from berth.formats.ascend.node_info import FaultDevice, NodeInfo

RES = "huawei.com/Ascend910"

SAMPLE = r"""{"DeviceInfo":{"DeviceList":{"huawei.com/Ascend910":"Ascend910-0,Ascend910-1,Ascend910-4,Ascend910-5,Ascend910-6","huawei.com/Ascend910-Fault":"[{\"fault_type\":\"CardNetworkUnhealthy\",\"npu_name\":\"Ascend910-6\",\"large_model_fault_level\":\"PreSeparateNPU\",\"fault_level\":\"PreSeparateNPU\",\"fault_handling\":\"PreSeparateNPU\",\"fault_code\":\"81078603\",\"fault_time_and_level_map\":{\"81078603\":{\"fault_time\":1763640600123,\"fault_level\":\"PreSeparateNPU\"}}},{\"fault_type\":\"CardUnhealthy\",\"npu_name\":\"Ascend910-7\",\"large_model_fault_level\":\"RestartNPU\",\"fault_level\":\"RestartNPU\",\"fault_handling\":\"RestartNPU\",\"fault_code\":\"80E24E00\",\"fault_time_and_level_map\":{\"80E24E00\":{\"fault_time\":1763640655871,\"fault_level\":\"RestartNPU\"}}}]","huawei.com/Ascend910-NetworkUnhealthy":"Ascend910-6","huawei.com/Ascend910-Recovering":"","huawei.com/Ascend910-Unhealthy":"Ascend910-7"},"UpdateTime":1763640660},"SuperPodID":-2,"ServerIndex":-2,"CheckCode":"17f47c534b048cc60c37881d03491f48baed75825c6e2cc08161f77f4cb87ac8"}"""
"""A report as a device plug-in writes it: chips 2 and 3 in use, 6 sick in its network, 7 dead."""
NODE_SAMPLE = r"""{"NodeInfo":{"FaultDevList":[{"DeviceType":"Memory","DeviceId":3,"FaultCode":["0100001D"],"FaultLevel":"PreSeparateFault"}],"NodeStatus":"PreSeparate"},"CheckCode":"a2b18f9fd381f8843e18f9c4dc0e6d0d4f9cf54ab59cfa2dbc9f1b0b4216e321"}"""


def names(chips: Iterable[int], kind: str = "Ascend910") -> str:
    return ",".join(f"{kind}-{chip}" for chip in chips)


def fault_row(chip: int | str, level: str, *, kind: str = "CardUnhealthy", code: str = "80E24E00") -> dict[str, object]:
    return {
        "fault_type": kind,
        "npu_name": f"Ascend910-{chip}" if isinstance(chip, int) else chip,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": code,
        "fault_time_and_level_map": {code: {"fault_time": 1_763_640_600_123, "fault_level": level}},
    }


def device_list(
    *,
    free: Iterable[int] = range(8),
    unhealthy: Iterable[int] = (),
    network: Iterable[int] = (),
    recovering: Iterable[int] = (),
    faults: Iterable[Mapping[str, object]] = (),
    without: Iterable[str] = (),
) -> dict[str, str]:
    texts = {
        RES: names(free),
        f"{RES}-Fault": json.dumps(list(faults)),
        f"{RES}-NetworkUnhealthy": names(network),
        f"{RES}-Recovering": names(recovering),
        f"{RES}-Unhealthy": names(unhealthy),
    }
    return {key: text for key, text in texts.items() if key not in set(without)}


def go_text(tree: object) -> str:
    """JSON of a tree as Go's encoder writes it, with the members of objects in their order."""
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def device_cfg(devices: Mapping[str, str], update_s: int, *, code: str | None = None) -> str:
    """Value of ``DeviceInfoCfg`` with the right CheckCode, or another one."""
    info = DeviceInfo(dict(devices), update_s)
    body = {"DeviceList": devices, "UpdateTime": update_s}
    right = check_code(info) if code is None else code
    return json.dumps({"DeviceInfo": body, "SuperPodID": -2, "ServerIndex": -2, "CheckCode": right})


def node_cfg(status: str, faults: Iterable[tuple[str, int, str, str]] = ()) -> str:
    """Value of ``NodeInfo``; a fault is a type, an id, a code and a level."""
    rows = [FaultDevice(kind, number, [code], level) for kind, number, code, level in faults]
    body = {
        "FaultDevList": [
            {"DeviceType": kind, "DeviceId": number, "FaultCode": [code], "FaultLevel": level}
            for kind, number, code, level in faults
        ],
        "NodeStatus": status,
    }
    return json.dumps({"NodeInfo": body, "CheckCode": check_code(NodeInfo(rows, status))})


def device_chunk(reports: Mapping[str, tuple[Mapping[str, str], int]]) -> str:
    """Value of a chunk ``cluster-info-device-<m>``: device list and UpdateTime by node."""
    return json.dumps(
        {
            f"mindx-dl-deviceinfo-{node}": {
                "DeviceList": dict(devices),
                "UpdateTime": update_s,
                "CmName": f"mindx-dl-deviceinfo-{node}",
                "SuperPodID": -2,
                "RackID": 0,
                "ServerIndex": -2,
            }
            for node, (devices, update_s) in reports.items()
        }
    )


def switch_entry(status: str, level: str, update_s: int) -> dict[str, object]:
    return {
        "FaultCode": ['{"EventType":5,"AssembledFaultCode":"[0x08520003,na,L1,na]"}'],
        "FaultLevel": level,
        "UpdateTime": update_s,
        "NodeStatus": status,
        "FaultTimeAndLevelMap": {},
    }
