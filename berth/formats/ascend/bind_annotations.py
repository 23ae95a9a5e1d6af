"""Annotations that a Binding adds to its pod: chips, time of the decision, and the attempt of the job.

Chip names are in the order of picking (decision order-of-picking), because the first chip of the list becomes the
first device of the container. The devices of the configuration are ascending.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Binding"; docs/reference/nodes-and-chips.md, "Soft share"
and "Pod annotations of chips".
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.formats.ascend.pod_annotations import (
    ASCEND_REAL,
    ATTEMPT,
    CONFIGURATION_910,
    CONFIGURATION_NPU,
    DISTRIBUTED_JOB,
    IN_PLACE,
    JOB,
    JOB_UID,
    KLT_DEV,
    MAC,
    MARKS,
    PREDICATE_TIME,
    RANK,
    RANK_INDEX,
    SHARE_LABEL,
    chip_names,
    configuration_key,
)
from berth.formats.whole_numbers import WHOLE_MAX, Int64, whole_number
from berth.products.model import IS_HEALTHY, IS_SHARED, SHARED_IP, SUPER_POD_ID, SUPER_POD_RANK
from berth.products.resources import RESOURCES
from berth.schemas.placement import Share

LABEL_CHIP_NAME: Final = "node.kubernetes.io/npu.chip.name"
"""Label with the chip model of a node."""
_LABEL_CHIP_950: Final = "Ascend950"
_NO_ADDRESS: Final = ""

STALE: Final = (
    *RESOURCES,
    "huawei.com/npu-core",
    ASCEND_REAL,
    KLT_DEV,
    CONFIGURATION_910,
    CONFIGURATION_NPU,
    PREDICATE_TIME,
    DISTRIBUTED_JOB,
    *MARKS,
    MAC,
    IN_PLACE,
    IS_SHARED,
    IS_HEALTHY,
    SHARED_IP,
    SUPER_POD_ID,
    SUPER_POD_RANK,
)
"""Annotations that an attempt that was rolled back may have left on a pod: chips and marks of the decision."""


class BaseDevice(msgspec.Struct, frozen=True, gc=False):
    """A chip as the node's annotation ``baseDeviceInfos`` describes it; members that a generation lacks are None."""

    address: str | None = msgspec.field(default=None, name="IP")
    super_device_id: Int64 | None = msgspec.field(default=None, name="SuperDeviceID")
    device_id: Int64 | str | None = msgspec.field(default=None, name="DeviceID")
    levels: object = msgspec.field(default=None, name="levelList")


_BASE_DEVICES: Final = msgspec.json.Decoder(dict[str, BaseDevice | None] | None)


class NodeCard(msgspec.Struct, frozen=True, gc=False):
    """A node, as far as the annotations of its pods depend on it.

    Attributes:
        name: Its name.
        address: InternalIP.
        base_device_infos: Annotation of that name: its chips, as JSON by chip name.
        superpod_id: Annotation ``superPodID``, unchanged.
        server_index: Annotation ``serverIndex``, unchanged.
        rack_id: Annotation ``rackID``, unchanged.
        chip_name: Label :data:`LABEL_CHIP_NAME`.
    """

    name: str
    address: str = ""
    base_device_infos: str = ""
    superpod_id: str = ""
    server_index: str = ""
    rack_id: str = ""
    chip_name: str = ""

    @property
    def has_device_ids(self) -> bool:
        """Whether the annotation named after the resource has device ids instead of chip ids.

        Source: docs/reference/nodes-and-chips.md, "Soft share" and "Pod annotations of chips".
        """
        return self.chip_name.startswith(_LABEL_CHIP_950)

    def devices(self) -> dict[str, BaseDevice]:
        """Chips by name; none if the annotation is missing or damaged."""
        try:
            found = _BASE_DEVICES.decode(self.base_device_infos) if self.base_device_infos else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}
        return {name: device or BaseDevice() for name, device in (found or {}).items()}


class BoundPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod with chips that is about to be bound.

    Attributes:
        name: Its name.
        uid: Its uid.
        resource: Resource name of its chips.
        chips: Physical ids in the order of picking.
        predicate_ns: Time of the decision, in ns since 1970; greater than any before on its node.
        distributed: Its gang has more than one pod with chips.
        rank_index: Its rank in its gang, decimal; empty if it has one or needs none.
        writes_real: The Ascend operator created it: the binder writes the chips that are mounted.
        share: Quota of its one chip, for soft share.
        job: Name of the job request by which it is bound.
        job_uid: Uid of that request.
        attempt: Attempt of that request.
        rank: Rank in that request.
        more: Annotations of other kinds of affinity, written unchanged.
    """

    name: str
    uid: str
    resource: str
    chips: Sequence[int]
    predicate_ns: int
    distributed: bool
    rank_index: str = ""
    writes_real: bool = False
    share: Share | None = None
    job: str
    job_uid: str
    attempt: int
    rank: int
    more: Mapping[str, str] = {}


class _Device(msgspec.Struct, frozen=True, omit_defaults=True):
    device_id: str
    device_ip: str
    super_device_id: str = ""
    levels: object = msgspec.field(default=None, name="levelList")


class _Configuration(msgspec.Struct, frozen=True):
    """Fields in the order in which they are written."""

    pod_name: str
    server_id: str
    host_ip: str
    super_pod_id: int
    devices: list[_Device]
    rack_id: int
    server_index: str
    server_ip: str


def takes_whole_node(chips: Sequence[int], devices: Mapping[str, BaseDevice]) -> bool:
    """Whether a pod with these chips takes all chips of the node."""
    return bool(chips) and len(chips) == len(devices)


def annotations(pod: BoundPod, node: NodeCard, devices: Mapping[str, BaseDevice]) -> dict[str, str]:
    """Annotations of a Binding.

    ``AscendReal`` and the configuration are written for pods of the Ascend operator and for those that take every chip
    of their node, never for shared chips, and only if the node describes every chip of the pod: the device plug-in
    adds missing annotations, but does not correct wrong ones.

    Args:
        pod: The pod.
        node: Its node.
        devices: ``node.devices()``.
    """
    found = {
        JOB: pod.job,
        JOB_UID: pod.job_uid,
        ATTEMPT: str(pod.attempt),
        RANK: str(pod.rank),
        **pod.more,
    }
    if pod.rank_index:
        found[RANK_INDEX] = pod.rank_index
    if not pod.chips:
        return found
    text = chip_names(pod.resource, pod.chips)
    names = text.split(",")
    found[pod.resource] = _as_written(pod, devices, names) if node.has_device_ids else text
    found[PREDICATE_TIME] = str(pod.predicate_ns)
    found[DISTRIBUTED_JOB] = "true" if pod.distributed else "false"
    if pod.share is not None:
        found[f"{SHARE_LABEL}aicoreQuota"] = str(pod.share.aicore)
        found[f"{SHARE_LABEL}hbmQuota"] = str(pod.share.hbm_mib)
        found[f"{SHARE_LABEL}policy"] = pod.share.policy
    elif (pod.writes_real or takes_whole_node(pod.chips, devices)) and all(name in devices for name in names):
        found[ASCEND_REAL] = text
        found[configuration_key(pod.resource)] = _configuration(
            pod, node, dict(zip(pod.chips, names, strict=True)), devices
        )
    return found


def physical_ids(node: NodeCard, resource: str, chips: int) -> dict[int, int]:
    """Physical chip ids of a node by the ids that :func:`annotations` writes for them under the resource name.

    An id of two chips maps to neither. Without device ids each chip maps to itself.

    Args:
        node: The node.
        resource: Resource name of its chips.
        chips: Mask of its chips.
    """
    devices = node.devices() if node.has_device_ids else {}
    found: dict[int, int] = {}
    twice: set[int] = set()
    for chip in range(chips.bit_length()):
        if chips >> chip & 1:
            device = _device_id(devices.get(chip_names(resource, [chip])), chip)
            if found.setdefault(device, chip) != chip:
                twice.add(device)
    return {device: chip for device, chip in found.items() if device not in twice}


def _as_written(pod: BoundPod, devices: Mapping[str, BaseDevice], names: Sequence[str]) -> str:
    """Names of chips on Ascend 950: with device ids instead of physical ids."""
    ids = [_device_id(devices.get(name), chip) for name, chip in zip(names, pod.chips, strict=True)]
    return chip_names(pod.resource, ids)


def _device_id(device: BaseDevice | None, chip: int) -> int:
    found = str(device.device_id) if device is not None and device.device_id is not None else ""
    number = whole_number(found)
    return chip if number is None else number


def _configuration(pod: BoundPod, node: NodeCard, names: Mapping[int, str], devices: Mapping[str, BaseDevice]) -> str:
    """JSON of the device configuration, without blanks.

    If the node has no annotation of its SuperPoD, the one in the other annotations of the pod is used.
    """
    listed = []
    for chip in sorted(names):
        device = devices[names[chip]]
        super_id = device.super_device_id
        listed.append(
            _Device(str(chip), device.address or _NO_ADDRESS, "" if super_id is None else str(super_id), device.levels)
        )
    return msgspec.json.encode(
        _Configuration(
            pod_name=pod.name,
            server_id=pod.uid,
            host_ip=node.address,
            super_pod_id=_number(node.superpod_id or pod.more.get(SUPER_POD_ID, "")),
            devices=listed,
            rack_id=_number(node.rack_id),
            server_index=node.server_index,
            server_ip=node.address,
        )
    ).decode()


def _number(text: str) -> int:
    """A whole number of 64 bits; 0 for any other text, as in the reference implementation."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if -WHOLE_MAX <= number <= WHOLE_MAX else 0
