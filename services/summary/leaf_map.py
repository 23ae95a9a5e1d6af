"""Map of the leaf switches for operators: their states, and the jobs on the nodes below them. Pure.

Source: docs/reference/kubernetes.md, "Map of leaf switches"; docs/reference/switches.md,
"Ranks, scores and annotations".
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth.core.cluster.node_packing import SWITCHES
from berth.core.state.cell import State
from berth.core.topologies.switches.occupancy.leaf_bits import STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex, leaf_index_of
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.formats.kubernetes.objects import Pod
from berth.services.summary.views import resource_of

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_TWO: Final = "2.0"


class _Node(msgspec.Struct, frozen=True):
    """A node below a leaf switch; fields have the names of the format."""

    address: str = msgspec.field(name="NodeIp")
    name: str = msgspec.field(name="NodeName")
    jobs: list[str] = msgspec.field(name="JobName")


class _Leaf(msgspec.Struct, frozen=True):
    """A leaf switch; fields have the names of the format."""

    unhealthy: int = msgspec.field(name="IsHealthy")
    """0 healthy, 1 unhealthy."""
    state: int = msgspec.field(name="IsSharedTor")
    """0 free, 1 shared, 2 exclusive."""
    nodes: list[_Node]


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


def leaf_map(state: State, jobs: NodeJobs) -> str | None:
    """JSON by name of the leaf switch; empty without policy 2.0 or leaf switches, None before the first epoch.

    Leaf switches are sorted by name; nodes are in the order of their ports.
    """
    if not state.fold.epoch:
        return None
    index = leaf_index_of(state.indexes)
    if state.fold.settings.nslb_version != _TWO or index.leaves.is_single_layer or not index.counts_jobs:
        return ""
    bits = dict(zip(index.leaves.names, _occupancy(index).bits().tolist(), strict=True))
    found: dict[str, _Leaf] = {}
    for leaf in sorted(state.topologies[SWITCHES].leaves, key=lambda item: item.name):
        addresses = leaf.addresses or [""] * len(leaf.nodes)
        found[leaf.name] = _Leaf(
            unhealthy=int(bool(bits[leaf.name] & UNHEALTHY)),
            state=bits[leaf.name] & STATE,
            nodes=[
                _Node(address, name, jobs.on(name) if name else [])
                for address, name in zip(addresses, leaf.nodes, strict=True)
            ],
        )
    return msgspec.json.encode(found).decode()


def _occupancy(index: LeafIndex) -> LeafOccupancy:
    """Jobs by leaf switch, counted from the decision, even where decisions follow the reference implementation."""
    if not index.follows_pods:
        return index.occupancy
    occupancy = LeafOccupancy(index.leaves)
    for key, job in index.occupancy.jobs().items():
        occupancy.put(key, job)
    return occupancy
