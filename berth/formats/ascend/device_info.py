"""Report of a device plug-in on the chips of a node: ConfigMap ``mindx-dl-deviceinfo-<node>``.

The health lists decide which chips may be used, not the fault rows: a row can exist while its chip stays usable. Rows
add the reason, sub-health, and chips that must accept no new work before they reach a list.

Source: docs/reference/kubernetes.md, "CheckCode" and "Device information"; docs/reference/faults.md,
"Chip fault levels".
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from berth.formats.ascend.check_code import verify
from berth.formats.ascend.device_list import RESOURCE_PREFIX
from berth.formats.ascend.report_error import ReportError, decoded, text_of
from berth.formats.whole_numbers import Int64
from berth.products.resources import is_chips

NAMESPACE: Final = "kube-system"
NAME_PREFIX: Final = "mindx-dl-deviceinfo-"
KEY: Final = "DeviceInfoCfg"
SWITCH_KEY: Final = "SwitchInfoCfg"
SEPARATED_KEY: Final = "ManuallySeparateNPU"
CHIP_ID_MAX: Final = 63
NETWORK_FAULT: Final = "CardNetworkUnhealthy"
"""Kind of a fault of the network of chips."""
_LINK_DOWN: Final = "81078603"
_NOT_HANDLED: Final = "NotHandleFault"
_UNHEALTHY: Final = "-Unhealthy"
_NETWORK: Final = "-NetworkUnhealthy"
_RECOVERING: Final = "-Recovering"
_FAULT: Final = "-Fault"
HEALTH_LISTS: Final = (_UNHEALTHY, _NETWORK, _RECOVERING)
"""Ends of the keys of lists of chips with a fault."""
_WHOLE_CHIP: Final = re.compile(r"[A-Za-z0-9]+-([0-9]{1,4})")
_VIRTUAL_CHIP: Final = re.compile(r"[A-Za-z0-9]+-[0-9]+c(?:\.[0-9a-z]+)*-[0-9]+-([0-9]{1,4})(?:_[0-9]+)?")


class DeviceInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """Object of the checksum; the order of the fields is that of the sum."""

    device_list: dict[str, str] | None
    update_time: Int64


class _SentInfo(msgspec.Struct, frozen=True, rename="pascal"):
    """:class:`DeviceInfo` as any release sends it: members of its list that are not known may be anything."""

    device_list: dict[str, object] | None = None
    update_time: Int64 = 0


class DeviceInfoCfg(msgspec.Struct, frozen=True, rename="pascal"):
    """Value of key ``DeviceInfoCfg``."""

    device_info: msgspec.Raw
    super_pod_id: Int64 = msgspec.field(default=-2, name="SuperPodID")
    server_index: Int64 = -2
    rack_id: Int64 | None = msgspec.field(default=None, name="RackID")
    check_code: str = ""


class FaultRow(msgspec.Struct, frozen=True):
    """A fault of a chip, or of the node."""

    fault_type: str = ""
    """``CardUnhealthy``, ``CardNetworkUnhealthy``, ``NodeUnhealthy`` or ``PublicFault``."""
    npu_name: str = ""
    fault_handling: str = ""
    fault_level: str = ""
    large_model_fault_level: str = ""
    fault_code: str = ""
    fault_time_and_level_map: msgspec.Raw = msgspec.Raw(b"{}")
    """Time and level of each fault code, as JSON."""

    @property
    def level_name(self) -> str:
        """Name of its level."""
        return self.fault_handling or self.fault_level or self.large_model_fault_level

    @property
    def chips(self) -> int | None:
        """Mask of the chips that it names, up to :data:`CHIP_ID_MAX`; None if it names none, or something else."""
        ids = [physical_id(name) for name in names_of(self.npu_name)]
        known = [chip for chip in ids if chip is not None]
        if not ids or len(known) < len(ids):
            return None
        return sum(1 << chip for chip in dict.fromkeys(known) if chip <= CHIP_ID_MAX)

    @property
    def link_down_ms(self) -> int:
        """When the link of its chips went down, if nothing else is done about it yet; 0 for any other fault."""
        if self.fault_type != NETWORK_FAULT or _LINK_DOWN not in names_of(self.fault_code):
            return 0
        try:
            times = _TIMES.decode(self.fault_time_and_level_map)
        except msgspec.MsgspecError:
            return 0  # the rest of the row is of use all the same
        found = times.get(_LINK_DOWN, _FaultTime())
        is_new = (found.fault_level or self.level_name) == _NOT_HANDLED
        return max(found.fault_time, 0) if is_new else 0


class _FaultTime(msgspec.Struct, frozen=True):
    fault_time: Int64 = 0
    fault_level: str = ""


class SwitchInfo(msgspec.Struct, frozen=True):
    """Health in the value of key ``SwitchInfoCfg``: the switch of a SuperPoD node. It has no checksum."""

    fault_level: str = ""
    update_time: Int64 = 0
    node_status: str = ""


class _SentSwitch(msgspec.Struct, frozen=True, rename="pascal"):
    fault_level: str | None = None
    update_time: Int64 = 0
    node_status: str | None = None


class ChipLists(msgspec.Struct, frozen=True):
    """Chips of one resource, as masks: bit ``i`` is the chip with physical id ``i``.

    Attributes:
        free: Names of the chips that the plug-in offers, in its order; virtual ones keep their names.
        free_mask: Whole chips among them.
        unhealthy: Chips that accept no work.
        unhealthy_names: Their names as the plug-in writes them.
        network_unhealthy: Chips that a job of one pod may use.
        recovering: Chips being reset.
        network_known: False if the list of network-unhealthy chips is missing.
        has_virtual: A name is that of a part of a chip.
    """

    free: tuple[str, ...] = ()
    free_mask: int = 0
    unhealthy: int = 0
    unhealthy_names: tuple[str, ...] = ()
    network_unhealthy: int = 0
    recovering: int = 0
    network_known: bool = False
    has_virtual: bool = False


class DeviceReport(msgspec.Struct, frozen=True):
    """A decoded report.

    Attributes:
        update_s: Time of writing by the clock of the node, in seconds since 1970.
        chips: Lists by resource name; only resources whose plain key exists.
        faults: Fault rows, in the order of the report.
        warnings: Parts that could not be read and do not affect the rest, one sentence each.
        superpod_id: Number of the SuperPoD; negative if there is none.
        server_index: Number of the node in the SuperPoD; negative if there is none.
        rack_id: Number of the rack; None if it is missing.
    """

    update_s: int
    chips: dict[str, ChipLists]
    faults: tuple[FaultRow, ...] = ()
    warnings: tuple[str, ...] = ()
    superpod_id: int = -2
    server_index: int = -2
    rack_id: int | None = None


_CONFIG: Final = msgspec.json.Decoder(DeviceInfoCfg)
_INFO: Final = msgspec.json.Decoder(_SentInfo)
_TIMES: Final = msgspec.json.Decoder(dict[str, _FaultTime])
_ROWS: Final = msgspec.json.Decoder(list[FaultRow] | None)
_SWITCH: Final = msgspec.json.Decoder(_SentSwitch)


def read_config(text: str) -> tuple[DeviceInfoCfg, DeviceInfo]:
    """Value of key ``DeviceInfoCfg``, and the known fields of its object; its checksum is verified.

    Raises:
        ReportError: It is not JSON or has another form, or its CheckCode is wrong.
    """
    config = decoded(text, _CONFIG, field=KEY)
    sent = decoded(config.device_info, _INFO, field=f"{KEY}.DeviceInfo")
    lists = None if sent.device_list is None else texts_of(sent.device_list, f"{KEY}.DeviceInfo")
    info = DeviceInfo(lists, sent.update_time)
    # Its list is a map in Go. A later release may have more keys in it, which a reader that drops them does not sum up.
    known = DeviceInfo(lists and {key: lists[key] for key in lists if is_known(key)}, sent.update_time)
    verify(config.check_code, bytes(config.device_info), (info, known), field=f"{KEY}.CheckCode", maps=("DeviceList",))
    return config, info


def parse_device_info(text: str) -> DeviceReport:
    """Report in the value of key ``DeviceInfoCfg``; its checksum is verified.

    Raises:
        ReportError: It is not JSON or has another form, its CheckCode is wrong, or see
            :func:`report_of`.
    """
    config, info = read_config(text)
    if info.device_list is None:
        raise ReportError(field=f"{KEY}.DeviceInfo.DeviceList", value=None, expected="a map of texts")
    report = report_of(info.device_list, update_s=info.update_time, field=f"{KEY}.DeviceInfo")
    return msgspec.structs.replace(
        report, superpod_id=config.super_pod_id, server_index=config.server_index, rack_id=config.rack_id
    )


def texts_of(device_list: Mapping[str, object], field: str) -> dict[str, str]:
    """Texts of a device list; what is not known and no text is left out.

    Args:
        device_list: The list.
        field: Place of the list, for errors.

    Raises:
        ReportError: A known member is no text.
    """
    known = {key: device_list[key] for key in device_list if is_known(key) or isinstance(device_list[key], str)}
    return {key: text_of(value, f"{field}.DeviceList[{key}]") for key, value in known.items()}


def report_of(
    device_list: Mapping[str, str], *, update_s: int, field: str, gaps: list[ReportError] | None = None
) -> DeviceReport:
    """Report of a device list. Fault rows that cannot be read become a warning.

    Args:
        device_list: Texts by key.
        update_s: UpdateTime of the list.
        field: Place of the list, for errors.
        gaps: Receives the names of unhealthy chips that are no chips, instead of an error; other such names are left
            out.

    Raises:
        ReportError: A name in a list is not a chip, or the time is negative.
    """
    if update_s < 0:
        raise ReportError(field=f"{field}.UpdateTime", value=update_s, expected="seconds since 1970")
    chips = {}
    faults: list[FaultRow] = []
    warnings = []
    for key in sorted(device_list):
        if is_chips(key):
            chips[key] = _chip_lists(device_list, key, f"{field}.DeviceList", gaps)
        elif key.startswith(RESOURCE_PREFIX) and any(key + end in device_list for end in HEALTH_LISTS):
            with suppress(ReportError):  # chips of a product that is not known, or fields of another release
                chips[key] = _chip_lists(device_list, key, f"{field}.DeviceList", None)
        elif (resource := key.removesuffix(_FAULT)) in chips or is_chips(resource):
            try:
                faults += decoded(device_list[key] or "null", _ROWS, field=f"{field}.DeviceList[{key}]") or ()
            except ReportError as error:
                warnings.append(str(error))
    return DeviceReport(update_s=update_s, chips=chips, faults=tuple(faults), warnings=tuple(warnings))


def parse_switch_info(text: str) -> SwitchInfo:
    """Report in the value of key ``SwitchInfoCfg``.

    Raises:
        ReportError: It is not JSON, has another form, or has no field of its health.
    """
    return switch_info_of(text, SWITCH_KEY)


def switch_info_of(text: str | msgspec.Raw, field: str) -> SwitchInfo:
    """Report on a switch; ``field`` is its place, for errors.

    Raises:
        ReportError: As :func:`parse_switch_info`.
    """
    sent = decoded(text, _SWITCH, field=field)
    if sent.node_status is None and sent.fault_level is None:
        raise ReportError(field=f"{field}.NodeStatus", value=None, expected="a status, or a level in FaultLevel")
    return SwitchInfo(sent.fault_level or "", sent.update_time, sent.node_status or "")


def names_of(text: str) -> tuple[str, ...]:
    """Names in a comma-separated list, without surrounding blanks and empty entries."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def physical_id(name: str) -> int | None:
    """Id of the chip with a name, or of the chip of a part with this name; None for any other text.

    Shapes: ``Ascend910-3``, ``npu-3``; parts of a chip ``Ascend910-2c-100-3`` and ``Ascend310P-4c.3cpu-100-3_1``.
    """
    match = _WHOLE_CHIP.fullmatch(name) or _VIRTUAL_CHIP.fullmatch(name)
    return int(match[1]) if match else None


def is_known(key: str) -> bool:
    """Whether a key of a device list is one of those that are read."""
    resource, dash, end = key.partition("-")
    return is_chips(resource) and (not dash or dash + end in {*HEALTH_LISTS, _FAULT})


def _chip_lists(device_list: Mapping[str, str], resource: str, field: str, gaps: list[ReportError] | None) -> ChipLists:
    free = names_of(device_list[resource])
    listed = {key: names_of(device_list.get(resource + key, "")) for key in HEALTH_LISTS}
    if gaps is not None:
        free = _chips_of(free, f"{field}[{resource}]", [])
        listed = {key: _chips_of(names, f"{field}[{resource}{key}]", gaps) for key, names in listed.items()}
    whole = [name for name in free if name.count("-") == 1]
    _mask(free, f"{field}[{resource}]")
    every = [*free, *(name for names in listed.values() for name in names)]
    return ChipLists(
        free=free,
        free_mask=_mask(whole, f"{field}[{resource}]"),
        unhealthy=_mask(listed[_UNHEALTHY], f"{field}[{resource}{_UNHEALTHY}]"),
        unhealthy_names=listed[_UNHEALTHY],
        network_unhealthy=_mask(listed[_NETWORK], f"{field}[{resource}{_NETWORK}]"),
        recovering=_mask(listed[_RECOVERING], f"{field}[{resource}{_RECOVERING}]"),
        network_known=resource + _NETWORK in device_list,
        has_virtual=any(name.count("-") > 1 for name in every),
    )


def _chips_of(names: tuple[str, ...], field: str, gaps: list[ReportError]) -> tuple[str, ...]:
    """The names that are chips; ``gaps`` receives errors for the others."""
    found = []
    for name in names:
        try:
            _mask([name], field)
        except ReportError as error:
            gaps.append(error)
        else:
            found.append(name)
    return tuple(found)


def _mask(names: list[str] | tuple[str, ...], field: str) -> int:
    """Mask of the chips with these names.

    Raises:
        ReportError: A name is not a chip, or its id is above 63.
    """
    mask = 0
    for name in names:
        chip = physical_id(name)
        if chip is None or chip > CHIP_ID_MAX:
            raise ReportError(field=field, value=name, expected=f"chip names <type>-<id> with ids up to {CHIP_ID_MAX}")
        mask |= 1 << chip
    return mask
