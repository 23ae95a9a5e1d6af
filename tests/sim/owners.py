"""What controllers and users of gangs do to them: PodGroups that are made again, names that come late or change, owners
that are scaled and rolled, bindings that are refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth.formats.ascend.pod_annotations import GROUP_NAME
from berth.runtime.kube.port import RefusedError
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.manifests import owned, pod
from tests.sim.story import Event, Story
from tests.sim.users import GROUPS, JOBS, PODS, REPLICA_SETS, Users
from tests.support.kube_rules import Tree

_REFUSALS: Final = ((400, "BadRequest"), (403, "Forbidden"), (422, "Invalid"), (500, "InternalError"))
_JOB_KINDS: Final = frozenset({"Job batch.volcano.sh", "AscendJob"})
"""Controllers that make pods with the name of their PodGroup."""
_STEP_S: Final = 0.3
_TEND_S: Final = 1.0
"""How soon the controller of ReplicaSets sees that a pod is deleted."""


class Owners(Users):
    """See above."""

    rollouts = 0
    """How many were made."""

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self._templates: dict[str, Tree] = {}
        """Pod of each ReplicaSet of a rollout."""

    def _do_scale(self, event: Event) -> None:
        """A Volcano Job gets other numbers of pods, while they wait or run."""
        dice, jobs = event.dice, self.cell.kube.objects(JOBS)
        if not jobs:
            return
        job = jobs[event.one % len(jobs)]
        first, *rest = job["spec"]["tasks"]
        tasks = [{**first, "replicas": dice.randrange(1, 6)}, *rest]
        size = sum(int(task["replicas"]) for task in tasks)
        least = min(int(job["spec"]["minAvailable"]), size) if dice.random() < 0.5 else dice.randrange(1, size + 1)
        spec = {**job["spec"], "tasks": tasks, "minAvailable": least}
        self.cell.kube.put(JOBS, {**job, "spec": spec})

    def _do_rollout(self, event: Event) -> None:
        """A ReplicaSet is made, scaled, and replaced by another one, pod by pod, as a Deployment does it."""
        number, self.rollouts = self.rollouts, self.rollouts + 1
        dice, ask = event.dice, self.ask_of(event)
        count = dice.randrange(1, 5)
        bodies = [pod(f"d{number}-{part}-x", ask, dice) for part in (0, 1)]
        scaled_s, rolled_s = 2.0 * event.for_s, 2.0 * event.for_s + dice.choice((0.0, 5.0))
        self._replicate(number, 0, count, bodies[0])
        size = dice.randrange(6)
        self.later(scaled_s, self._replicate, number, 0, size, bodies[0])
        for step in range(size + 1):
            at_s = rolled_s + step * dice.choice((_STEP_S, 4 * _STEP_S))
            self.later(at_s, self._replicate, number, 1, min(step + 1, size), bodies[1])
            self.later(at_s + _STEP_S / 2, self._replicate, number, 0, size - step, bodies[0])

    def _replicate(self, number: int, part: int, count: int, body: Tree) -> None:
        """Let a ReplicaSet have so many pods: others are made, or the last ones are deleted."""
        name = f"d{number}-{part}"
        spec = {"replicas": count}
        self._fill(self.cell.kube.put(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec}), body)
        if not self._templates:
            self.later(_TEND_S, self._refill)
        self._templates[name] = body

    def _refill(self) -> None:
        """Make pods again that were deleted; those that have ended stay, for their work is done."""
        for made in self.cell.kube.objects(REPLICA_SETS):
            if (body := self._templates.get(made["metadata"]["name"])) is not None:
                self._fill(made, body)
        self.later(_TEND_S, self._refill)

    def _fill(self, made: Tree, body: Tree) -> None:
        kube, name, count = self.cell.kube, made["metadata"]["name"], int(made["spec"]["replicas"])
        pods = [found for found in kube.objects(PODS) if found["metadata"]["name"].startswith(f"{name}-")]
        live = [found for found in pods if "deletionTimestamp" not in found["metadata"]]
        for found in live[count:]:
            finished(kube.delete(f"{PODS}/{found['metadata']['name']}"))
        for _ in range(count - len(live)):
            self.pods += 1
            whole = {**body, "metadata": {**body["metadata"], "name": f"{name}-{self.pods}"}}
            finished(kube.create(PODS, owned(whole, "ReplicaSet", "apps/v1", made)))

    def _do_rename(self, event: Event) -> None:
        """Live pods of nobody, or of one ReplicaSet or Job, get the name of another PodGroup, one after another.

        Or those of a ReplicaSet, which is deleted without them, are adopted by another one.
        """
        kube, dice = self.cell.kube, event.dice
        pods = [found for found in kube.objects(PODS) if _kind_of(found) not in _JOB_KINDS and not _is_over(found)]
        if not pods:
            return
        chosen = pods[event.one % len(pods)]
        same = [found for found in pods if _owner_of(found) == _owner_of(chosen)]
        few = same if _owner_of(chosen) else [chosen]
        if _kind_of(chosen) == "ReplicaSet" and event.two % 2:
            kube.confirm(f"{REPLICA_SETS}/{chosen['metadata']['ownerReferences'][0]['name']}")
            self._own(few, None)
            self.later(event.for_s, self._adopt, few, f"a{event.one}-{event.two}")
            return
        name = f"g{event.one}-{event.two}"
        least = dice.randrange(1, len(few) + 1)
        is_late = dice.random() < 0.5
        self.later(event.for_s if is_late else 0.0, self._group, name, least, event)
        for number, found in enumerate(few):
            path = f"{PODS}/{found['metadata']['name']}"
            self.later(number * dice.choice((0.0, 0.05, _STEP_S)), self._name_group, path, found, name)

    def _adopt(self, few: Sequence[Tree], name: str) -> None:
        made = self.cell.kube.put(REPLICA_SETS, {"metadata": {"name": name}, "spec": {"replicas": len(few)}})
        self._own(few, owned({"metadata": {}}, "ReplicaSet", "apps/v1", made)["metadata"]["ownerReferences"])

    def _own(self, few: Sequence[Tree], owners: list[Tree] | None) -> None:
        """Give pods that are still there other owners."""
        for found in few:
            path = f"{PODS}/{found['metadata']['name']}"
            try:
                is_there = self.cell.kube.object(path)["metadata"]["uid"] == found["metadata"]["uid"]
            except KeyError:
                continue
            if is_there:
                finished(self.cell.kube.patch(path, {"metadata": {"ownerReferences": owners}}))

    def _name_group(self, path: str, pod: Tree, name: str) -> None:
        """Write the name of a PodGroup on a pod that is still there, and has not ended."""
        try:
            found = self.cell.kube.object(path)
        except KeyError:
            return
        if found["metadata"]["uid"] == pod["metadata"]["uid"] and not _is_over(found):
            finished(self.cell.kube.patch(path, {"metadata": {"annotations": {GROUP_NAME: name}}}))

    def _do_regroup(self, event: Event) -> None:
        """A PodGroup is deleted and made again under its name; its annotations, or its minimum, may be lost."""
        kube, dice = self.cell.kube, event.dice
        groups = kube.objects(GROUPS)
        if not groups:
            return
        group = groups[event.one % len(groups)]
        meta = group["metadata"]
        if dice.random() < 0.3:  # a controller writes it as it knew it
            kube.put(GROUPS, {**group, "metadata": {key: meta[key] for key in meta if key != "annotations"}})
            return
        kube.confirm(f"{GROUPS}/{meta['name']}")
        kept = {key: meta[key] for key in ("name", "labels", "annotations", "ownerReferences") if key in meta}
        body = {"metadata": kept, "spec": group.get("spec") or {}, "status": dice.choice(({}, {"phase": "Pending"}))}
        self.later(0.0 if event.two % 2 else event.for_s, self._make_group, body)

    def _make_group(self, body: Mapping[str, Any]) -> None:
        names = {found["metadata"]["name"] for found in self.cell.kube.objects(GROUPS)}
        if body["metadata"]["name"] not in names:
            self.cell.kube.put(GROUPS, body)

    def _do_refuse(self, event: Event) -> None:
        """The next bindings, of all pods or of one, are refused: once, a few times or for long."""
        dice = event.dice
        status, cause = dice.choice(_REFUSALS)
        waiting = [found for found in self.cell.kube.objects(PODS) if not found["spec"].get("nodeName")]
        part = "/binding"
        if waiting and dice.random() < 0.5:
            part = f"/{waiting[event.one % len(waiting)]['metadata']['name']}/binding"
        refused = RefusedError("the request is refused", status=status, cause=cause)
        self.cell.kube.fail(refused, method="POST", part=part, times=dice.choice((1, 3, 12)))


def _is_over(pod: Tree) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _owner_of(pod: Tree) -> str:
    """Uid of the controller of a pod; empty without one."""
    return next((str(one["uid"]) for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), "")


def _kind_of(pod: Tree) -> str:
    """Kind of the controller of a pod, with the group of Volcano's Job; empty without one."""
    for one in pod["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            group = str(one["apiVersion"]).partition("/")[0]
            return f"{one['kind']} {group}" if one["kind"] == "Job" and "volcano" in group else str(one["kind"])
    return ""
