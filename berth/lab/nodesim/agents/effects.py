"""Effects, rules and counters of the agents of a simulated node. Pure."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from berth.lab.nodesim.agents.pods import AgentPod


@dataclass(frozen=True, slots=True)
class Annotate:
    """Write annotations on a pod."""

    pod: AgentPod
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Write a pod's status."""

    pod: AgentPod
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Complete the deletion of a pod."""

    pod: AgentPod


@dataclass(frozen=True, slots=True)
class Report:
    """Write a ConfigMap of the node's agents; without data it is deleted."""

    namespace: str
    name: str
    data: dict[str, str]


@dataclass(frozen=True, slots=True)
class SetNode:
    """Write the node's status."""

    node: str
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SetPresence:
    """Delete the node, or register it again."""

    node: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class Alarm:
    """Report a placement that does not fit."""

    pod: AgentPod
    reason: str


AgentEffect: TypeAlias = Annotate | SetStatus | Confirm | Report | SetNode | SetPresence | Alarm


@dataclass(frozen=True, slots=True)
class AgentRules:
    """Behaviour of the agents.

    Attributes:
        admit_ms: Time from the binding until kubelet admits the pod.
        start_ms: Time from the admission until the containers run.
        terminating_ms: Time from the deletion of a pod until its end.
        run_default_ms: Run time of pods without an annotation for it; None forever.
        unchanged_ms: Period in which the device plug-in repeats an unchanged report.
        shuffle: Kubelet admits pods that are due together in random order; otherwise in the order of their binding.
        preset_virtual_devices: See :class:`DevicePlugin`.
        reversed_ids: See :func:`base_device_infos`.
        other_releases: See :func:`~berth.lab.nodesim.agents.device_report.other_release`.
    """

    admit_ms: int = 100
    start_ms: int = 500
    terminating_ms: int = 500
    run_default_ms: int | None = 30_000
    unchanged_ms: int = 300_000
    shuffle: bool = True
    preset_virtual_devices: bool = True
    reversed_ids: bool = False
    other_releases: bool = False


@dataclass(slots=True)
class Tally:
    """Counters of the agents of all nodes.

    Attributes:
        bound: Pods that got the requested chips.
        failed: Pods that were refused.
        ended: Admitted pods that have finished or are gone.
        swapped: Pods that got other chips than those of their own annotation.
        admission_errors: Pods for which the device plug-in found no annotation.
    """

    bound: int = 0
    failed: int = 0
    ended: int = 0
    swapped: int = 0
    admission_errors: int = 0
