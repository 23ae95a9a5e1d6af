"""Free chips of a node from the texts in the cluster: annotation, ConfigMap and pods.

A *device list* is the map of texts in the ConfigMap: ``<res>`` has the free chips, ``<res>-Unhealthy``,
``<res>-NetworkUnhealthy``, ``<res>-Recovering`` and ``<res>-Fault`` have the others and their faults. A text is a
comma-separated list of chip names; a chip name is ``<type>-<id>``, and its resource is ``huawei.com/<type>``.

Source: docs/reference/nodes-and-chips.md, "Free list".
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.formats.shortened import shortened

RESOURCE_PREFIX: Final = "huawei.com/"
ASCEND_REAL: Final = "huawei.com/AscendReal"
CHIPS_MAX: Final = 100
"""Maximum number of entries in the chip list of a pod; a longer list is ignored as damaged."""
_POD_NAME_MAX: Final = 253
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENDED: Final = frozenset({"Failed", "Succeeded"})
_CHIP_NAME: Final = re.compile(r"[A-Za-z0-9]+-([0-9]{1,2})")
_ID_MAX: Final = 63

_BaseInfos = dict[str, dict[str, object] | None]
_BASE_INFOS: Final = msgspec.json.Decoder(_BaseInfos | None)


class PodChips(msgspec.Struct, frozen=True):
    """Texts of a pod of the node about its chips."""

    name: str
    phase: str
    annotations: dict[str, str]


def available(
    *,
    base_device_infos: str | None,
    device_list: Mapping[str, str],
    pods: Iterable[PodChips],
    self_maintained: bool = True,
    soft_share: bool = False,
) -> dict[str, str]:
    """Device list of a node with the free chips that may be allocated.

    Args:
        base_device_infos: Node annotation ``baseDeviceInfos``, a JSON map by chip name; None if it is missing.
        device_list: Device list of the ConfigMap.
        pods: Pods of the node.
        self_maintained: Setting ``self-maintain-available-card``: free chips are those of the annotation that no active
            pod uses and that are neither unhealthy nor recovering. Otherwise the lists of the ConfigMap are used.
        soft_share: The chips of the node may be shared; then the lists of the ConfigMap are used too.

    Returns:
        Texts by key; the names of a free list are sorted as text. Empty if the annotation is missing or not a JSON map.
    """
    names = _base_names(base_device_infos)
    if names is None:
        return {}
    result = dict(device_list)
    if not self_maintained or soft_share or any(name.count("-") > 1 for name in names):
        return result
    pods = list(pods)
    listed = {key for key in device_list if "-" not in key.removeprefix(RESOURCE_PREFIX)}
    for resource in sorted(listed | {resource_of(name) for name in names}):
        taken = {chip for pod in pods for chip in chips_held(pod, resource)}
        taken.update(_split(device_list.get(f"{resource}-Unhealthy", "")))
        taken.update(_split(device_list.get(f"{resource}-Recovering", "")))
        free = [name for name in names if resource_of(name) == resource and name not in taken]
        result[resource] = ",".join(sorted(free))
    return result


def chips_held(pod: PodChips, resource: str) -> list[str]:
    """Chip names that a pod uses; none for a pod that ended, or with an invalid name or list."""
    if pod.phase in _ENDED or len(pod.name) > _POD_NAME_MAX or not _POD_NAME.fullmatch(pod.name):
        return []
    names = _split(pod.annotations.get(ASCEND_REAL) or pod.annotations.get(resource, ""))
    return names if len(names) <= CHIPS_MAX else []


def resource_of(chip_name: str) -> str:
    """Resource name of a chip: ``huawei.com/Ascend910`` for ``Ascend910-3``."""
    return RESOURCE_PREFIX + chip_name.partition("-")[0]


def chip_mask(text: str) -> int:
    """Mask of the chip names in a text; bit ``i`` is the chip with id ``i``. The empty text is 0.

    Raises:
        ValueError: A name is not a chip, or its id is above 63.
    """
    mask = 0
    for name in _split(text):
        match = _CHIP_NAME.fullmatch(name)
        if match is None or int(match[1]) > _ID_MAX:
            raise ValueError(f"{shortened(name)} is no chip name <type>-<id> with an id up to {_ID_MAX}")
        mask |= 1 << int(match[1])
    return mask


def _base_names(base_device_infos: str | None) -> list[str] | None:
    """Chip names of the annotation; None if it is not such a map."""
    if base_device_infos is None:
        return None
    try:
        return sorted(_BASE_INFOS.decode(base_device_infos) or {})
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _split(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]
