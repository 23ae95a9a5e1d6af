"""Admission of PodGroups where Queues of Volcano are applied: at rest each is admitted that its queue lets in."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from berth.formats.kubernetes import policies
from berth.formats.queues.queue_objects import queue_of_object
from berth.schemas.queues.queue import DEFAULT
from berth.services.inventory.podgroups.status import VALIDATE_FAILED
from tests.sim.errors import Failure
from tests.sim.queue_oracle import QueueOracle, is_in_force
from tests.sim.users import ASCEND_JOBS, GROUPS, JOBS, PODS, QUEUES
from tests.sim.world import World
from tests.support.kube_rules import Tree

_WAITS: Final = frozenset({"", "Pending"})


def see_admitted(world: World) -> None:
    """See that no PodGroup waits for its admission that its queue lets in, and that the others name their queue.

    Nobody admits one whose job is gone.

    Raises:
        Failure: One waits, or does not.
    """
    kube = world.cell.kube
    queues = [queue_of_object(msgspec.convert(found, policies.Queue)) for found in kube.objects(QUEUES)]
    declared = {queue.name: queue for queue in queues if queue is not None}
    if not world.cell.settings.queues or not is_in_force(declared.values()):
        return
    oracle = QueueOracle(declared, {})
    named = {
        (pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name", "")
        for pod in kube.objects(PODS)
        if pod["spec"].get("schedulerName") == "berth"
    }
    owners = {found["metadata"]["uid"] for path in (JOBS, ASCEND_JOBS) for found in kube.objects(path)}
    for group in kube.objects(GROUPS):
        status: Mapping[str, Any] = group.get("status") or {}
        is_ours = group["metadata"]["name"] in named or _controller_of(group) in owners
        if not is_ours or (status.get("phase") or "") not in _WAITS:
            continue
        name, queue = group["metadata"]["name"], (group.get("spec") or {}).get("queue") or DEFAULT
        why = oracle.shut(queue, group["metadata"].get("namespace", "ns"))
        conditions = [one for one in status.get("conditions") or () if one.get("type") == "Unschedulable"]
        if any(one.get("reason") == VALIDATE_FAILED for one in conditions):
            continue  # nothing could start it
        said = [one.get("message", "") for one in conditions]
        world.observer.count["PodGroups that wait for their queue"] += 1
        if why is None:
            raise Failure("a PodGroup is not admitted, and its queue lets it in", f"{name} of {queue}: {said}")
        if not any(why.text in message for message in said):
            raise Failure("a PodGroup does not name the queue that keeps it", f"{name}: {said}, expected {why.text}")


def _controller_of(found: Tree) -> str:
    """Uid of the controller of an object; empty without one."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
