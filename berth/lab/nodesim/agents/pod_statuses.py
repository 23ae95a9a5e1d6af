"""Statuses that a kubelet writes on pods. Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Network
from itertools import repeat
from typing import Any, Final

from berth.lab.nodesim.agents.pods import AgentPod
from berth.lab.nodesim.stamps import stamp
from berth.schemas.units import UnixMs

UNEXPECTED_ADMISSION: Final = "UnexpectedAdmissionError"
"""Reason of a pod for which the device plug-in found no chips."""
_NETWORK: Final = "10.128.0.0/9"


class PodAddresses:
    """Addresses of pods, in order and then from the first one again; an address in use is not assigned again.

    Args:
        network: The addresses; more than pods at one time.
    """

    def __init__(self, network: str = _NETWORK) -> None:
        self._next = (str(address) for one in repeat(IPv4Network(network)) for address in one.hosts())
        self._taken: dict[str, str] = {}
        """Uid by address."""
        self._held: dict[str, str] = {}

    def note(self, uid: str, address: str) -> None:
        """Note the address of a pod."""
        self._taken[address] = uid
        self._held[uid] = address

    def take(self, uid: str) -> str:
        """Address of a pod; the same for each call."""
        while uid not in self._held:
            address = next(self._next)
            if address not in self._taken:
                self.note(uid, address)
        return self._held[uid]

    def release(self, uid: str) -> None:
        """Release the address of a pod that is gone."""
        address = self._held.pop(uid, None)
        if address is not None:
            del self._taken[address]


def running(pod: AgentPod, *, address: str, host: str, now_ms: UnixMs) -> dict[str, Any]:
    """Status of a pod whose containers run."""
    at = stamp(now_ms)
    return {
        "phase": "Running",
        "startTime": at,
        "podIP": address,
        "hostIP": host,
        "conditions": _conditions(("Initialized", "Ready", "ContainersReady"), "True", at),
        "containerStatuses": [
            _container(pod, index, {"running": {"startedAt": at}}, is_ready=True)
            for index in range(len(pod.spec.containers or ()))
        ],
    }


def succeeded(pod: AgentPod, *, started_ms: UnixMs, now_ms: UnixMs) -> dict[str, Any]:
    """Status of a pod whose containers have succeeded."""
    at = stamp(now_ms)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": stamp(started_ms), "finishedAt": at}
    return {
        "phase": "Succeeded",
        "conditions": _conditions(("Ready", "ContainersReady"), "False", at, "PodCompleted"),
        "containerStatuses": [
            _container(pod, index, {"terminated": ended}, is_ready=False)
            for index in range(len(pod.spec.containers or ()))
        ],
    }


def failed(pod: AgentPod, *, exit_code: int, started_ms: UnixMs, now_ms: UnixMs) -> dict[str, Any]:
    """Status of a running pod whose containers have failed: they run again, unless its restart policy is ``Never``."""
    at = stamp(now_ms)
    ended = {"exitCode": exit_code, "reason": "Error", "startedAt": stamp(started_ms), "finishedAt": at}
    indices = range(len(pod.spec.containers or ()))
    if pod.spec.restart_policy == "Never":
        return {
            "phase": "Failed",
            "conditions": _conditions(("Ready", "ContainersReady"), "False", at, "PodFailed"),
            "containerStatuses": [_container(pod, one, {"terminated": ended}, is_ready=False) for one in indices],
        }
    restarts = max((status.restart_count for status in pod.status.container_statuses or ()), default=0) + 1
    again = {"running": {"startedAt": at}}
    return {
        "phase": "Running",
        "containerStatuses": [
            _container(pod, one, again, is_ready=True) | {"restartCount": restarts, "lastState": {"terminated": ended}}
            for one in indices
        ],
    }


def refused(reason: str, message: str, now_ms: UnixMs) -> dict[str, Any]:
    """Status of a pod that its kubelet refuses."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": stamp(now_ms)}


def _conditions(kinds: Iterable[str], status: str, at: str, reason: str = "") -> list[dict[str, str]]:
    found = [{"type": kind, "status": status, "lastTransitionTime": at} for kind in kinds]
    return [{**item, "reason": reason} for item in found] if reason else found


def _container(pod: AgentPod, index: int, state: dict[str, Any], *, is_ready: bool) -> dict[str, Any]:
    containers = pod.spec.containers or ()
    identity = f"{pod.metadata.uid.replace('-', '')}{index:04x}"
    return {
        "name": containers[index].name,
        "image": "sim",
        "imageID": "",
        "containerID": f"containerd://{identity}",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }
