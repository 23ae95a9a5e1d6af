"""What other schedulers and kubelets do: pods of strangers, pods that are rejected, other chips than were decided."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Final

from berth.core.chips.picking import ids_of
from berth.core.requests.job_validation import SHARE_AICORE
from berth.formats.ascend.pod_annotations import ASCEND_REAL, JOB_UID, PREDICATE_TIME, chip_names
from berth.products.model import LABEL_SOFT_SHARE, RESOURCE_910
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.story import Event, Story
from tests.sim.users import PODS, Users
from tests.support.kube_cells import chips_of
from tests.support.kube_rules import Tree

NODES: Final = "/api/v1/nodes"

REJECTIONS: Final = ("UnexpectedAdmissionError", "TopologyAffinityError", "OutOfcpu")
"""Reasons for which kubelets reject pods."""
_REJECT_S: Final = 0.02
_MOUNT_TRIES: Final = 20
_MOUNT_AGAIN_S: Final = 2.0
_STARTED: Final = frozenset({"Running", "Succeeded", "Failed"})


class Outsiders(Users):
    """See above."""

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self.rejecting: dict[str, str] = {}
        """Nodes whose kubelets reject pods, and for which reason."""

    def _do_stranger(self, event: Event) -> None:
        """Another scheduler binds a pod with chips: it names them, or nobody does, for now or for ever.

        Its clock may be behind, so that the device plug-in serves its pod before one of Berth that was bound earlier.
        """
        node, dice, kube = self.node_of(event), event.dice, self.cell.kube
        if not node.resource or LABEL_SOFT_SHARE in node.labels or node.name not in _names(kube.objects(NODES)):
            return
        pods = [one for one in kube.objects(PODS) if one["spec"].get("nodeName") == node.name and not _is_over(one)]
        taken = reduce(or_, map(chips_of, pods), 0)
        free = list(ids_of(node.chips & ~taken))
        marks = {"berth/run-for": f"{dice.choice((10, 15, 20))}s"}
        count = node.chips.bit_count()
        if free and dice.random() < 0.7:
            count = dice.randrange(1, len(free) + 1)
            if node.resource == RESOURCE_910 and dice.random() < 0.8:
                marks[node.resource] = chip_names(node.resource, sorted(dice.sample(free, count)))
                shift_ms = dice.choice((-5_000, 5_000))
                marks[PREDICATE_TIME] = str((self.cell.clocks["kube"].now_ms() + shift_ms) * 1_000_000)
        asked = {node.resource: str(count)}
        spec: Tree = {
            "schedulerName": "default-scheduler",
            "nodeName": node.name,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none:1", "resources": {"requests": asked, "limits": asked}}],
        }
        finished(kube.create(PODS, {"metadata": {"name": self._pod_name(), "annotations": marks}, "spec": spec}))

    def _do_mount(self, event: Event) -> None:
        """A device plug-in mounts other chips than were decided: free ones, or two pods get each other's.

        A second pod may be told late, so that two name the same chips for a while.
        """
        self._mount_others(event, _MOUNT_TRIES)

    def _mount_others(self, event: Event, tries: int) -> None:
        dice, kube = event.dice, self.cell.kube
        served = [one for one in kube.objects(PODS) if _is_served(one) and not _is_over(one)]
        if not served:
            if tries > 1:
                self.later(_MOUNT_AGAIN_S, self._mount_others, event, tries - 1)
            return
        first = served[event.one % len(served)]
        mine, node = chips_of(first), first["spec"]["nodeName"]
        there = [one for one in kube.objects(PODS) if one["spec"].get("nodeName") == node and not _is_over(one)]
        others = [one for one in there if one in served and one is not first]
        others = [one for one in others if chips_of(one).bit_count() == mine.bit_count()]
        if others and dice.random() < 0.6:
            second = dice.choice(others)
            its = chips_of(second)
            self.later(dice.choice((0.0, event.for_s)), self._mount, second["metadata"]["uid"], mine)
        else:
            chips = next(one for one in self.cell.cluster.nodes if one.name == node).chips
            free = list(ids_of(chips & ~reduce(or_, map(chips_of, there), 0)))
            if len(free) < mine.bit_count():
                return
            its = sum(1 << chip for chip in dice.sample(free, mine.bit_count()))
        self._mount(first["metadata"]["uid"], its)

    def _mount(self, uid: str, mask: int) -> None:
        for found in self.cell.kube.objects(PODS):
            if found["metadata"]["uid"] == uid and not _is_over(found):
                marks = {ASCEND_REAL: chip_names(RESOURCE_910, list(ids_of(mask)))}
                finished(
                    self.cell.kube.patch(f"{PODS}/{found['metadata']['name']}", {"metadata": {"annotations": marks}})
                )

    def _do_reject(self, event: Event) -> None:
        """The kubelet of a node rejects all pods that are bound to it for a while."""
        name = self.node_of(event).name
        self.rejecting[name] = event.dice.choice(REJECTIONS)
        self.later(event.for_s, self.rejecting.pop, name, None)

    def see_bound(self, pod: Tree) -> None:
        """See that a pod was bound: its kubelet may reject it."""
        if pod["spec"]["nodeName"] in self.rejecting:
            self.later(_REJECT_S, self._reject, pod["metadata"]["name"], pod["metadata"]["uid"])

    def _reject(self, name: str, uid: str) -> None:
        for found in self.cell.kube.objects(PODS):
            if found["metadata"]["uid"] == uid and (found.get("status") or {}).get("phase", "") not in _STARTED:
                reason = self.rejecting.get(found["spec"]["nodeName"], REJECTIONS[0])
                status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
                finished(self.cell.kube.patch(f"{PODS}/{name}/status", {"status": status}))


def _is_served(pod: Tree) -> bool:
    """Whether a pod of Berth runs with whole chips that a device plug-in has mounted."""
    annotations = pod["metadata"].get("annotations") or {}
    is_whole = JOB_UID in annotations and SHARE_AICORE not in annotations
    return is_whole and annotations.get(ASCEND_REAL, "").startswith(chip_names(RESOURCE_910, [0])[:-1])


def _names(objects: Iterable[Tree]) -> set[str]:
    return {found["metadata"]["name"] for found in objects}


def _is_over(pod: Tree) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
