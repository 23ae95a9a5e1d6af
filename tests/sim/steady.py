"""What must be told of jobs and PodGroups while pods run: looked at once everything is repaired, until the cell rests.

At rest no job runs any more, so statuses and PodGroups of jobs at work are compared before. What is told comes later
than what is so; it is compared only if what is so has been the same for :data:`STEADY_S`, and if somebody led all the
time.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

from berth.core.explain.job_status import digest, status_of
from berth.core.requests.job_validation import SHARE_AICORE
from berth.core.state.holdings.holding import owned_by
from berth.formats.ascend.pod_annotations import ATTEMPT, GROUP_NAME, JOB_UID
from berth.schemas.envelope import decode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.sim.errors import Failure
from tests.sim.observer import SCHEDULER, decided_chips
from tests.sim.users import GROUPS, PODS
from tests.sim.world import World
from tests.support.kube_cells import chips_of
from tests.support.kube_rules import Tree

STEADY_S: Final = 20.0
"""A write whose answer was lost is given up after 15 s, and what waits behind it is written after a pause."""
AT_WORK: Final = frozenset({"placed", "bound", "running", "ending"})
STEADY: Final = ("statuses of jobs at work", "PodGroups at work")
"""What must have been compared at least once in a run of many seeds."""
_NUMBERS: Final = ("running", "succeeded", "failed")


class Truth(NamedTuple):
    """What the pods of a PodGroup are.

    Attributes:
        uid: Of the PodGroup.
        least: How many of its pods it needs.
        total: Its pods.
        running: Pods in phase Running.
        succeeded: Pods in phase Succeeded.
        failed: Pods in phase Failed.
        scheduled: Pods with a node that live and are not being deleted, and those that succeeded.
    """

    uid: str
    least: int
    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    scheduled: int = 0


def reasons_of(status: JobStatus) -> dict[str, str]:
    """Why backup pods (uid), and ranks that recover (the empty name), have no place, as a status tells it."""
    recovery = status.recovery
    ranks = {"": recovery.refusal} if recovery is not None and recovery.refusal else {}
    return {one.uid: one.refusal for one in status.backups} | ranks


class Steady:
    """Compares what is told with what is so.

    Args:
        world: The cell and its observer.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[str, ...], tuple[object, float]] = {}
        """What is so, and since when, in seconds of the loop."""

    def look(self, *, is_led: bool) -> None:
        """Look at all jobs and PodGroups; to be called about once a second.

        Args:
            is_led: Whether a dispatcher leads and the operator does nothing; otherwise nothing is told.

        Raises:
            Failure: Something else is told than what is so.
        """
        if not is_led:
            self._since.clear()
            return
        now: dict[tuple[str, ...], tuple[object, float]] = {}
        self._see_jobs(now)
        self._see_groups(now)
        self._see_mounted(now)
        self._since = now

    def _is_steady(self, now: dict[tuple[str, ...], tuple[object, float]], key: tuple[str, ...], value: object) -> bool:
        at_s = self._world.loop.now_s
        before, since_s = self._since.get(key, (None, at_s))
        now[key] = (value, since_s if before == value else at_s)
        return at_s - now[key][1] >= STEADY_S

    def _see_jobs(self, now: dict[tuple[str, ...], tuple[object, float]]) -> None:
        """The status of a job at work is what the ledger gives it.

        Raises:
            Failure: It is not so.
        """
        world = self._world
        world.observer.catch_up()
        state = world.observer.state
        wanted: dict[tuple[str, str], JobStatus] = {}
        for key in state.jobs:
            status = status_of(state, key, at_ms=0)
            if status is not None and status.phase in AT_WORK and self._is_steady(now, ("job", *key), digest(status)):
                wanted[key] = status
        if not wanted:
            return
        told = self._told()
        for key, usual in wanted.items():
            world.observer.count["statuses of jobs at work"] += 1
            if key not in told:
                raise Failure("a job at work has no status", f"{key}: {usual}")
            # Whether its restart is held back depends on clocks, and why a pod has no place is what the leader found
            # last; both are in no record.
            held, why = told[key].restart_held, reasons_of(told[key])
            status = status_of(state, key, at_ms=0, restart_held=held, unplaced=why) or usual
            if digest(told[key]) != digest(status):
                raise Failure("the status of a job at work is another", f"{key}: {told[key]} instead of {status}")

    def _see_mounted(self, now: dict[tuple[str, ...], tuple[object, float]]) -> None:
        """The ledger has a pod of Berth on the chips that it names, unless another pod names some of them too.

        Raises:
            Failure: It does not.
        """
        observer = self._world.observer
        fold = observer.state.fold
        if not observer.has_strangers:
            return
        pods = [pod for pod in self._world.cell.kube.objects(PODS) if _uses_chips(pod)]
        for pod in pods:
            uid, node, mask = pod["metadata"]["uid"], pod["spec"]["nodeName"], chips_of(pod)
            annotations = pod["metadata"].get("annotations") or {}
            if JOB_UID not in annotations or SHARE_AICORE in annotations:
                continue
            others = reduce(
                or_, (chips_of(one) for one in pods if one is not pod and one["spec"]["nodeName"] == node), 0
            )
            if not self._is_steady(now, ("chips", uid), (mask, mask & others)) or mask & others:
                continue
            keys = ((uid, 0), (annotations[JOB_UID], int(annotations[ATTEMPT])))
            shares = [share for key in keys if key in fold.holdings for share in owned_by(fold.holdings[key])]
            owned = reduce(or_, (share.mask for share in shares if share.node == node), 0)
            observer.count["chips of pods that name others"] += mask != decided_chips(pod)
            observer.count["chips of pods at work"] += 1
            if mask & ~owned:
                raise Failure(
                    "the ledger has a pod on other chips",
                    f"{pod['metadata']['name']} on {node}: {mask:x}, the ledger {owned:x}",
                )

    def _told(self) -> Mapping[tuple[str, str], JobStatus]:
        stream = self._world.cell.server.streams.get(self._world.user.subjects.stream(StreamName.STATUS))
        found: dict[tuple[str, str], JobStatus] = {}
        for message in stream.messages.values() if stream is not None else ():
            said = decode(message.data, JobStatus)
            found[said.namespace, said.name] = said
        return found

    def _see_groups(self, now: dict[tuple[str, ...], tuple[object, float]]) -> None:
        """PodGroups with pods on nodes say how many of them run, and whether they are enough.

        Raises:
            Failure: One does not.
        """
        world = self._world
        pods: dict[str, list[Tree]] = {}
        for pod in world.cell.kube.objects(PODS):
            name = (pod["metadata"].get("annotations") or {}).get(GROUP_NAME, "")
            pods.setdefault(name or _controller_of(pod), []).append(pod)
        for group in world.cell.kube.objects(GROUPS):
            name = group["metadata"]["name"]
            # Pods that are not told of it yet are of the PodGroup of their controller.
            found = [*pods.get(name, ()), *pods.get(_controller_of(group) or "none", ())]
            if not found or any(pod["spec"].get("schedulerName") != SCHEDULER for pod in found):
                continue
            if all(_ended_at(pod) and _ended_at(pod) <= group["metadata"]["creationTimestamp"] for pod in found):
                continue  # it was made again when no pod of it was left that lives: they are of the former one
            truth = truth_of(group, found)
            status: Mapping[str, Any] = group.get("status") or {}
            if not self._is_steady(now, ("PodGroup", name), truth) or not truth.scheduled:
                continue
            world.observer.count["PodGroups at work"] += 1
            said = [status.get(key) or 0 for key in _NUMBERS]
            if said != [truth.running, truth.succeeded, truth.failed]:
                raise Failure("a PodGroup counts other pods than there are", f"{name}: {dict(status)}, {truth}"[:2000])
            if not is_phase_right(status.get("phase") or "", truth):
                raise Failure("a PodGroup at work has a wrong phase", f"{name}: {dict(status)}, {truth}"[:2000])


def _controller_of(found: Tree) -> str:
    """Uid of the controller of an object; empty without one."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def _ended_at(pod: Tree) -> str:
    """When the last container of a pod ended (RFC 3339); empty of one that has not ended."""
    status = pod.get("status") or {}
    if status.get("phase") not in {"Succeeded", "Failed"}:
        return ""
    states = [one["state"].get("terminated") or {} for one in status.get("containerStatuses") or ()]
    return max((str(one.get("finishedAt", "")) for one in states), default="")


def truth_of(group: Tree, pods: list[Tree]) -> Truth:
    """What the pods of a PodGroup are."""
    truth = Truth(group["metadata"]["uid"], max((group.get("spec") or {}).get("minMember") or 0, 1), len(pods))
    phases = [(pod.get("status") or {}).get("phase") or "" for pod in pods]
    is_over = {"Succeeded", "Failed"}
    lives = [
        bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"] and phase not in is_over
        for pod, phase in zip(pods, phases, strict=True)
    ]
    succeeded = phases.count("Succeeded")
    return truth._replace(
        running=phases.count("Running"),
        succeeded=succeeded,
        failed=phases.count("Failed"),
        scheduled=sum(lives) + succeeded,
    )


def is_phase_right(phase: str, truth: Truth) -> bool:
    """Whether a PodGroup with pods on nodes may have a phase."""
    if truth.least <= truth.total == truth.succeeded + truth.failed:
        return phase == "Completed"
    if truth.scheduled >= truth.least:
        return phase == "Running"
    return phase != "Running"  # one that was completed stays so


def _uses_chips(pod: Tree) -> bool:
    over = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return bool(pod["spec"].get("nodeName")) and not over and bool(chips_of(pod))
