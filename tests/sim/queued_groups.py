"""Admission of PodGroups where queues are in force: at rest each is admitted that its queue has room for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.formats.kubernetes.pods import amount_of
from berth.formats.kubernetes.workloads.membership import natural
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, MEMORY
from berth.services.inventory.podgroups.status import VALIDATE_FAILED
from tests.sim.errors import Failure
from tests.sim.queue_oracle import Charge, QueueOracle
from tests.sim.queue_watch import charge_of
from tests.sim.users import ASCEND_JOBS, GROUPS, JOBS, PODS
from tests.sim.world import World
from tests.support.kube_rules import Tree

_WAITS: Final = frozenset({"", "Pending"})


def see_admitted(world: World) -> None:
    """See that no PodGroup waits for its admission that its queue has room for, and that the others name their queue.

    What counts at most is all that is held, and all that waits. Nobody admits one whose job is gone.

    Raises:
        Failure: One waits, or does not.
    """
    kube, state = world.cell.kube, world.observer.state
    oracle = world.observer.queues.now(state)
    if oracle is None:
        return
    for gang in world.observer.scheduler.queue.gangs():
        job = state.jobs[gang.namespace, gang.name]
        assert job.request is not None
        oracle.charge(charge_of(job.request))
    named = {
        (pod["metadata"].get("annotations") or {}).get(GROUP_NAME, "")
        for pod in kube.objects(PODS)
        if pod["spec"].get("schedulerName") == "berth"
    }
    owners = {found["metadata"]["uid"] for path in (JOBS, ASCEND_JOBS) for found in kube.objects(path)}
    groups = kube.objects(GROUPS)
    pods = kube.objects(PODS)
    for group in groups:
        if (group.get("status") or {}).get("phase") == "Inqueue":
            oracle.charge(_minimum(group, pods))
    for group in groups:
        status: Mapping[str, Any] = group.get("status") or {}
        is_ours = group["metadata"]["name"] in named or _controller_of(group) in owners
        if not is_ours or (status.get("phase") or "") not in _WAITS:
            continue
        conditions = [one for one in status.get("conditions") or () if one.get("type") == "Unschedulable"]
        if any(one.get("reason") == VALIDATE_FAILED for one in conditions):
            continue  # nothing could start it
        world.observer.count["PodGroups that wait for their queue"] += 1
        _see_reason(
            oracle, _minimum(group, pods), group["metadata"]["name"], [one.get("message", "") for one in conditions]
        )


def _see_reason(oracle: QueueOracle, asked: Charge, name: str, said: list[str]) -> None:
    """See that a PodGroup has a reason to wait, and says it.

    Raises:
        Failure: It has none, or says another one.
    """
    shut = oracle.shut(asked.queue, asked.namespace)
    if shut is None and oracle.why(asked) is None and not oracle.is_fifo(asked.queue):
        raise Failure("a PodGroup is not admitted, and its queue lets it in", f"{name} of {asked.queue}: {said}")
    words = [shut.text] if shut is not None else [f"queue {step}" for step in oracle.paths[asked.queue]]
    if not any(word in message for message in said for word in words):
        raise Failure("a PodGroup does not name the queue that keeps it", f"{name}: {said}, expected {words}")


def _minimum(group: Tree, pods: Sequence[Tree]) -> Charge:
    """What the minimum of a PodGroup asks for: what it declares, else its first pods."""
    spec, meta = group.get("spec") or {}, group["metadata"]
    asked: list[Mapping[str, Any]] = [spec["minResources"]] if spec.get("minResources") else []
    if not asked:
        own = [pod for pod in pods if (pod["metadata"].get("annotations") or {}).get(GROUP_NAME) == meta["name"]]
        first = sorted(own, key=lambda pod: natural(str(pod["metadata"]["name"])))[: int(spec.get("minMember") or 0)]
        asked = [one["resources"]["requests"] for pod in first for one in pod["spec"]["containers"]]
    amounts: Counter[str] = Counter()
    for resources in asked:
        for name, value in resources.items():
            if name in {CPU, MEMORY}:
                amounts[name] += amount_of(name, str(value))
            elif name.startswith("huawei.com/"):
                amounts[name] += amount_of(name, str(value)) * CHIP
    return Charge(spec.get("queue") or DEFAULT, meta.get("namespace", "ns"), amounts)


def _controller_of(found: Tree) -> str:
    """Uid of the controller of an object; empty without one."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
