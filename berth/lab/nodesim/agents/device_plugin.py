"""Device plug-in of a node: the chips that a container gets, and the report about them. Pure.

Kubelet has its own ids of chips. Each maps to a real chip. When a pod gets other chips than kubelet picked, the two ids
swap their chips. So kubelet's free ids always map to the chips that no pod has mounted.

Source: docs/reference/kubernetes.md, "Life of a pod".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth.formats.ascend.check_code import GoValue, go_json
from berth.formats.ascend.pod_annotations import (
    ASCEND_REAL,
    CONSUMED,
    KLT_DEV,
    PREDICATE_TIME,
    chip_names,
    configuration_key,
)
from berth.lab.nodesim.agents.device_report import Place
from berth.lab.nodesim.agents.pods import AgentPod, chip_ids, chips_asked, is_consumed, predicate_time
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.nodes import NodeDescription

SHARES: Final = 100


class AllocateError(Exception):
    """The device plug-in cannot determine the chips of a container."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """Answer to kubelet.

    Attributes:
        ids: Kubelet's choice.
        chips: Real chips that are mounted.
        source: Pod whose annotation was used and is now consumed; None when no pod was looked up.
    """

    ids: tuple[int, ...]
    chips: tuple[int, ...]
    source: AgentPod | None


class DevicePlugin:
    """Device plug-in of one node.

    Args:
        node: The node.
        infos: Chips of the node as in the annotation ``baseDeviceInfos``.
        place: Place of the node in its SuperPoD.
        preset_virtual_devices: The default mode of virtual chips: a container that gets all chips is not looked up.
    """

    def __init__(
        self,
        node: NodeDescription,
        infos: Mapping[str, Mapping[str, object]],
        place: Place,
        *,
        preset_virtual_devices: bool,
    ) -> None:
        self._node = node
        self._infos = infos
        self._place = place
        self._preset = preset_virtual_devices
        self._is_shared = shares_of(node) > 1
        chips = _ids(node.chips)
        parts = shares_of(node)
        self._real = {chip * parts + part: chip for chip in chips for part in range(parts)}
        self._physical = {
            int(str(info["DeviceID"])): chip
            for chip in chips
            if "DeviceID" in (info := infos[chip_names(node.resource, [chip])])
        }
        self._consumed: set[str] = set()

    @property
    def ids(self) -> list[int]:
        """All ids of kubelet, ascending."""
        return sorted(self._real)

    def stands_for(self, klt: int) -> int:
        """Real chip to which an id of kubelet maps."""
        return self._real[klt]

    def annotated(self, pod: AgentPod) -> tuple[int, ...] | None:
        """Real chips that the scheduler wrote on a pod; None when they cannot be read."""
        ids = chip_ids(pod.metadata.annotation(self._node.resource))
        if not ids or not self._physical:
            return ids
        return tuple(self._physical[chip] for chip in ids) if all(chip in self._physical for chip in ids) else None

    def allocate(self, ids: Sequence[int], pods: Iterable[AgentPod]) -> Allocated:
        """Chips for a container for which kubelet picked ``ids``.

        The caller writes :data:`CONSUMED` on the source pod. That pod may differ from the one that the container
        belongs to, because kubelet does not name it.

        Args:
            ids: Kubelet's choice.
            pods: Pods of the node.

        Raises:
            AllocateError: No pod of the node waits for this number of chips.
        """
        if len(ids) == len(self._real) and self._preset:
            return Allocated(tuple(ids), tuple(sorted(self._real[klt] for klt in ids)), None)
        found = [pod for pod in pods if self._waits(pod, len(ids))]
        if not found:
            raise AllocateError(
                f"no pod on node {self._node.name} has {len(ids)} chips in annotation {self._node.resource} "
                f"and a {PREDICATE_TIME} that is not used"
            )
        names = sorted({pod.key for pod in found})
        chosen = min(found, key=lambda pod: (predicate_time(pod), -names.index(pod.key)))
        chips = self.annotated(chosen) or ()
        self._consumed.add(chosen.metadata.uid)
        self._swap(ids, chips)
        return Allocated(tuple(ids), tuple(sorted(chips)), chosen)

    def _waits(self, pod: AgentPod, count: int) -> bool:
        """Whether a container with ``count`` chips may get those of a pod's annotation."""
        if pod.is_over or pod.is_leaving or is_consumed(pod) or pod.metadata.uid in self._consumed:
            return False
        chips = self.annotated(pod)
        return (
            bool(chips_asked(pod, self._node.resource))
            and chips is not None
            and len(chips) == count
            and all(self._node.chips >> chip & 1 for chip in chips)
        )

    def _swap(self, ids: Sequence[int], chips: Sequence[int]) -> None:
        """Map ``ids`` to ``chips``, and the ids that mapped to these to the remaining chips.

        Ids of shared chips stay: many map to one chip, and it does not matter which of them kubelet has allocated.
        """
        if self._is_shared:
            return
        wanted = set(chips)
        outside = sorted(klt for klt, chip in self._real.items() if chip in wanted and klt not in ids)
        for klt in sorted(ids):
            if self._real[klt] not in wanted and outside:
                other = outside.pop(0)
                self._real[klt], self._real[other] = self._real[other], self._real[klt]

    def remember(self, ids: Sequence[int], chips: Sequence[int]) -> None:
        """Restore an allocation of an earlier run."""
        if set(ids) <= set(self._real) and set(chips) <= set(self._real.values()):
            self._swap(ids, chips)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        self._consumed.discard(uid)

    def report(self, pod: AgentPod, given: Allocated) -> dict[str, str]:
        """Annotations that state the chips of a pod; none when they are set already."""
        if pod.metadata.annotation(ASCEND_REAL) or not given.chips:
            return {}
        resource = self._node.resource
        return {
            KLT_DEV: chip_names(resource, sorted(given.ids)),
            ASCEND_REAL: chip_names(resource, given.chips),
            configuration_key(resource): self._configuration(pod, given.chips),
        }

    def _configuration(self, pod: AgentPod, chips: Sequence[int]) -> str:
        devices: list[GoValue] = []
        for chip in chips:
            info = self._infos[chip_names(self._node.resource, [chip])]
            device: dict[str, GoValue] = {"device_id": str(chip), "device_ip": str(info["IP"])}
            if self._place.superpod >= 0:
                device["super_device_id"] = str(info["SuperDeviceID"])
            devices.append(device)
        server = self._place.server
        text: dict[str, GoValue] = {
            "pod_name": pod.metadata.name,
            "server_id": pod.metadata.uid,
            "host_ip": self._node.address,
            "super_pod_id": self._place.superpod,
            "devices": devices,
            "rack_id": self._place.rack or 0,
            "server_index": str(max(server, 0)),
            "server_ip": self._node.address,
        }
        return "{" + ",".join(f'"{key}":{go_json(value)}' for key, value in text.items()) + "}"


def shares_of(node: NodeDescription) -> int:
    """Kubernetes devices per chip of a node.

    Source: docs/reference/nodes-and-chips.md, "Validation of jobs".
    """
    return SHARES if node.labels.get(LABEL_SOFT_SHARE) == "true" else 1


def consumption() -> dict[str, str]:
    """Annotation that marks a pod's chips as allocated."""
    return {PREDICATE_TIME: CONSUMED}


def _ids(mask: int) -> list[int]:
    return [chip for chip in range(mask.bit_length()) if mask >> chip & 1]
