"""What can be read of reports of a device plug-in that are refused: the health of chips and of the switch.

Source: docs/reference/kubernetes.md, "Device information".
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from berth.formats.ascend.device_info import (
    HEALTH_LISTS,
    KEY,
    SWITCH_KEY,
    DeviceReport,
    SwitchInfo,
    is_known,
    report_of,
)
from berth.formats.ascend.report_error import RefusedReport, ReportError, decoded, text_of
from berth.formats.whole_numbers import WHOLE_MAX


class _LooseInfo(msgspec.Struct, frozen=True, rename="pascal"):
    device_list: dict[str, object]
    update_time: object = 0


class _LooseCfg(msgspec.Struct, frozen=True, rename="pascal"):
    device_info: _LooseInfo


class _LooseSwitch(msgspec.Struct, frozen=True, rename="pascal"):
    node_status: object = None


_LOOSE: Final = msgspec.json.Decoder(_LooseCfg)
_LOOSE_SWITCH: Final = msgspec.json.Decoder(_LooseSwitch)


def refused_device_info(text: str) -> RefusedReport[DeviceReport]:
    """What can be read of a value that :func:`parse_device_info` refuses."""
    try:
        info = decoded(text, _LOOSE, field=KEY).device_info
    except ReportError as error:
        return RefusedReport(None, str(error))
    return refused_report_of(info.device_list, info.update_time, field=f"{KEY}.DeviceInfo")


def refused_report_of(
    device_list: Mapping[str, object], update_s: object, *, field: str
) -> RefusedReport[DeviceReport]:
    """What can be read of a device list of a refused report: the chips that can be read of each list.

    Args:
        device_list: Its members.
        update_s: Its UpdateTime; 0 counts if it is no time.
        field: Place of the list, for errors.
    """
    gaps: list[ReportError] = []
    texts: dict[str, str] = {}
    for key in sorted(filter(is_known, device_list)):
        try:
            texts[key] = text_of(device_list[key], f"{field}.DeviceList[{key}]")
        except ReportError as error:
            texts[key] = ""
            if key.endswith(HEALTH_LISTS):
                gaps.append(error)
    time_s = update_s if isinstance(update_s, int) and 0 <= update_s <= WHOLE_MAX else 0
    report = report_of(texts, update_s=time_s, field=field, gaps=gaps)
    return RefusedReport(report, str(gaps[0]) if gaps else "")


def refused_switch_info(text: str | msgspec.Raw, field: str = SWITCH_KEY) -> RefusedReport[SwitchInfo]:
    """What can be read of a report on a switch that :func:`switch_info_of` refuses."""
    try:
        loose = decoded(text, _LOOSE_SWITCH, field=field)
        status = text_of(loose.node_status, f"{field}.NodeStatus")
    except ReportError as error:
        return RefusedReport(None, str(error))
    return RefusedReport(SwitchInfo(node_status=status))
