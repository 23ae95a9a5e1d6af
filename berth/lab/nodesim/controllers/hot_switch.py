"""The Ascend operator's part in a hot switch: it makes a backup pod, and deletes one that came too late. Pure.

Source: docs/reference/faults.md, "Hot switch".
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from berth.formats.ascend.pod_annotations import BACKUP, BACKUP_SOURCE, POD_TYPE
from berth.formats.kubernetes.objects import Pod
from berth.lab.nodesim.agents.recovery_service import (
    CREATE,
    DELETE,
    IN_FLOW,
    NEED_OPERATOR,
    TRUE,
)
from berth.lab.nodesim.controllers.gang_children import Action, AnnotatePod, DeletePods, DesiredPod, MakePods
from berth.schemas.fault_facts import BACKUP_POD

_WORD: Final = "-hot-"
_NUMBERS: Final = 10_000


def backup_name(pod: Pod) -> str:
    """Name of the backup pod of a pod: with four digits at its end."""
    source = pod.metadata.name.partition(_WORD)[0]
    return f"{source}{_WORD}{crc32(pod.metadata.uid.encode()) % _NUMBERS:04}"


def switch_actions(pods: Iterable[Pod], bodies: dict[str, dict[str, Any]]) -> list[Action]:
    """What the operator does because of the marks of its pods.

    Args:
        pods: Its pods.
        bodies: Bodies of its pods by name, as it would make them anew.
    """
    actions: list[Action] = []
    for pod in sorted(pods, key=lambda one: one.metadata.name):
        wish = pod.metadata.annotation(NEED_OPERATOR)
        body = bodies.get(pod.metadata.name.partition(_WORD)[0])
        if wish == DELETE and pod.metadata.deletion_timestamp is None:
            actions.append(DeletePods([pod]))
        elif wish == CREATE and body is not None:
            name, meta = backup_name(pod), body["metadata"]
            marks = {IN_FLOW: TRUE, POD_TYPE: BACKUP, BACKUP_SOURCE: pod.metadata.name}
            made = {**meta, "name": name, "annotations": {**meta["annotations"], **marks}}
            actions.append(MakePods([{**body, "metadata": made}]))
            actions.append(AnnotatePod(pod, {NEED_OPERATOR: None, BACKUP_POD: name}))
    return actions


def without_backed_up(desired_pods: Sequence[DesiredPod], pods: Iterable[Pod]) -> list[DesiredPod]:
    """Desired pods that no backup pod has replaced."""
    replaced = frozenset(
        pod.metadata.name.partition(_WORD)[0]
        for pod in pods
        if _WORD in pod.metadata.name and pod.metadata.deletion_timestamp is None
    )
    return [one for one in desired_pods if one.name not in replaced]
