"""Rejections: pods that were bound and that the kubelet of their node has failed without starting a container.

Source: Kubernetes, "Node conditions and admission" of the kubelet: reasons such as ``UnexpectedAdmissionError``,
``OutOfcpu`` and ``TopologyAffinityError``.
"""

from typing import Final

from berth.formats.kubernetes.objects import Pod
from berth.products.resources import RESOURCES
from berth.schemas.facts import PodRejection

_LATER: Final = frozenset({"Evicted", "NodeLost", "Shutdown", "Terminated", "DeadlineExceeded"})
"""Reasons of pods that had been admitted."""
_TOPOLOGY: Final = "TopologyAffinityError"
_OF_DEVICES: Final = "UnexpectedAdmissionError"
_WORDS: Final = ("device", "plugin", "plug-in", "allocate failed", *(name.lower() for name in RESOURCES))


def rejection_of(pod: Pod) -> PodRejection:
    """Whether the kubelet has rejected a pod, and whether it names devices or their plug-in."""
    status = pod.status
    is_rejected = status.phase == "Failed" and pod.spec.node_name and status.reason and status.reason not in _LATER
    if not is_rejected or status.container_statuses or status.init_container_statuses:
        return PodRejection.NONE
    if status.reason == _TOPOLOGY:
        return PodRejection.OTHER
    text = f"{status.reason} {status.message}".lower()
    names_devices = status.reason == _OF_DEVICES or any(word in text for word in _WORDS)
    return PodRejection.DEVICES if names_devices else PodRejection.OTHER
