"""Pods as the agents of a node read them. Pure."""

from typing import Final

from berth.formats.ascend.device_list import CHIPS_MAX
from berth.formats.ascend.pod_annotations import CONSUMED, PREDICATE_TIME, SHARE_LABEL
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import ContainerStatus, PodStatus
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.pod_spec import Container, PodSpec
from berth.formats.manifests.gang_request import FOREVER, RUN_FOR
from berth.formats.quantities import QuantityError, cpu_milli, duration_ms, memory_mib, pieces
from berth.lab.nodesim.stamps import moment_ms
from berth.products.resources import is_npu
from berth.schemas.placement import Share
from berth.schemas.units import UnixMs

ENDED: Final = frozenset({"Failed", "Succeeded"})
UINT64_MAX: Final = (1 << 64) - 1
_SERVICES: Final = frozenset({"DaemonSet", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"})
"""Controllers whose pods run until they are deleted."""
_ID_MAX: Final = 63
_DIGITS_MAX: Final = 20


class AgentPodStatus(PodStatus, frozen=True):
    """Status of a pod, with the fields that only its kubelet reads."""

    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None


class AgentPodSpec(PodSpec, frozen=True):
    """Spec of a pod, with the fields that only its kubelet reads."""

    restart_policy: str = "Always"


class AgentPod(Lean, frozen=True):
    """A pod that has a node."""

    metadata: Meta = Meta()
    spec: AgentPodSpec = AgentPodSpec()
    status: AgentPodStatus = AgentPodStatus()

    @property
    def key(self) -> str:
        """Namespace and name, for messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_over(self) -> bool:
        """Whether its containers have ended."""
        return self.status.phase in ENDED

    @property
    def is_leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def path(self) -> str:
        """Path of the object in the API."""
        return api_path("v1", "namespaces", self.metadata.namespace, "pods", self.metadata.name)


def chips_asked(pod: AgentPod, resource: str) -> list[int]:
    """Number of chips of each container, in order, without containers that request none."""
    found = [_amount(container, resource) for container in pod.spec.containers or ()]
    return [count for count in found if count]


def other_chips(pod: AgentPod, resource: str) -> str:
    """Name of a chip resource that a pod requests and a node with ``resource`` does not have; empty without one."""
    for container in pod.spec.containers or ():
        for name in sorted({**_of(container, "limits"), **_of(container, "requests")}):
            if is_npu(name) and name != resource and _amount(container, name):
                return name
    return ""


def cpu_and_memory(pod: AgentPod) -> tuple[int, int]:
    """CPU in thousandths and memory in MiB that the containers request; invalid quantities count as zero."""
    cpu = memory = 0
    for container in pod.spec.containers or ():
        asked = {**(_of(container, "limits")), **(_of(container, "requests"))}
        try:
            cpu += cpu_milli(asked.get("cpu", 0))
            memory += memory_mib(asked.get("memory", 0))
        except QuantityError:
            continue
    return cpu, memory


def predicate_time(pod: AgentPod) -> int:
    """Time of the decision; the largest number where it is missing or cannot be read.

    Source: docs/reference/kubernetes.md, "Life of a pod".
    """
    text = pod.metadata.annotation(PREDICATE_TIME)
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return UINT64_MAX
    return min(int(text), UINT64_MAX)


def is_consumed(pod: AgentPod) -> bool:
    """Whether the device plug-in has used the pod's annotation."""
    return pod.metadata.annotation(PREDICATE_TIME) == CONSUMED


def chip_ids(text: str) -> tuple[int, ...] | None:
    """Ids of chip names ``<type>-<id>`` in the given order; None when one is not a chip, or there are too many."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    ids: list[int] = []
    for name in names:
        kind, _, number = name.rpartition("-")
        if not (kind and number.isascii() and number.isdigit()) or int(number) > _ID_MAX:
            return None
        ids.append(int(number))
    return tuple(ids) if len(ids) <= CHIPS_MAX else None


def started_ms(pod: AgentPod) -> UnixMs | None:
    """Time at which the pod became ready, otherwise at which its kubelet admitted it; None when neither is known."""
    ready = next((item for item in pod.status.conditions or () if item.type == "Ready"), None)
    found = moment_ms(ready.last_transition_time) if ready is not None and ready.status == "True" else None
    return moment_ms(pod.status.start_time) if found is None else found


def runs_for_ms(pod: AgentPod, *, default_ms: int | None) -> int | None:
    """Run time of a pod; None forever.

    The annotation ``berth/run-for`` states it: a duration, or ``forever``. Without a valid one, pods of a ReplicaSet,
    StatefulSet, DaemonSet or LeaderWorkerSet run forever, all others for ``default_ms``.
    """
    text = pod.metadata.annotation(RUN_FOR)
    if text == FOREVER:
        return None
    if text:
        try:
            return duration_ms(text)
        except QuantityError:
            pass
    owner = pod.metadata.controller
    return None if owner is not None and owner.kind in _SERVICES else default_ms


def share_of(pod: AgentPod) -> Share | None:
    """Quota of a chip that the scheduler wrote on a pod; None without one, or where it cannot be read.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    cores, memory, policy = (
        pod.metadata.annotation(SHARE_LABEL + key) for key in ("aicoreQuota", "hbmQuota", "policy")
    )
    try:
        return Share(pieces(cores), pieces(memory), policy) if policy else None
    except QuantityError:
        return None


def _amount(container: Container, resource: str) -> int:
    asked = {**_of(container, "limits"), **_of(container, "requests")}
    try:
        return pieces(asked.get(resource, 0))
    except QuantityError:
        return 0


def _of(container: Container, field: str) -> dict[str, str | int | float]:
    return getattr(container.resources, field, None) or {}
