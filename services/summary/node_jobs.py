"""Jobs on each node, as its pods show them. Pure."""

from collections.abc import Callable, Iterable
from typing import Final

from berth.formats.kubernetes.objects import Pod
from berth.services.summary.views import resource_of

_ENDED: Final = frozenset({"Succeeded", "Failed"})


class NodeJobs:
    """Names of the jobs that have pods with chips on a node.

    Args:
        changed: Called when the jobs on a node change.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pods: dict[str, tuple[str, str]] = {}
        """Node and name of the job, by uid of the pod."""
        self._on: dict[str, dict[str, int]] = {}
        """Pods of each job, by node and name."""

    def on(self, node: str) -> list[str]:
        """Names of the jobs on a node, sorted: of the controllers of their pods, or of a pod without one."""
        return sorted(self._on.get(node, ()))

    def set_pod(self, pod: Pod) -> None:
        """Take the current state of a pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.status.phase in _ENDED or not resource_of(pod):
            self.drop_pod(uid)
            return
        owner = pod.metadata.controller
        view = (node, owner.name if owner is not None else pod.metadata.name)
        if self._pods.get(uid) == view:
            return
        self.drop_pod(uid)
        self._pods[uid] = view
        jobs = self._on.setdefault(node, {})
        jobs[view[1]] = jobs.get(view[1], 0) + 1
        if jobs[view[1]] == 1:
            self._changed()

    def drop_pod(self, uid: str) -> None:
        """Take the deletion of a pod."""
        node, job = self._pods.pop(uid, ("", ""))
        if not node:
            return
        jobs = self._on[node]
        jobs[job] -= 1
        if not jobs[job]:
            del jobs[job]
            self._changed()
        if not jobs:
            del self._on[node]

    def keep_pods(self, uids: Iterable[str]) -> None:
        """Drop all other pods."""
        for uid in sorted(self._pods.keys() - set(uids)):
            self.drop_pod(uid)
