"""An oracle that knows what kube-scheduler's plug-ins allow looks at each gang that a record places.

It judges by what the facts say at that moment, pod after pod in the order in which Berth places them, and shares no
code with the product.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from berth.core.state.cell import State
from berth.schemas.columns import unpack
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings, Verdict
from berth.schemas.nodes import NodeDescription
from berth.schemas.pod_constraints import PodTerm, SpreadTerm
from berth.schemas.usage_facts import ClaimName, RankName
from berth.schemas.volume_facts import ClaimSeen, VolumeSeen
from tests.fuzz.accounts import Accounts
from tests.fuzz.failure import Failure
from tests.fuzz.neighbours import Neighbours
from tests.fuzz.storage import NO_PROVISIONER, Storage
from tests.support.constraint_worlds import HOST, NONE, OneNode, OnePod, Oracle, holds

CHECKED = "check: constraints"
_NAMES = frozenset({HOST, "metadata.name"})
_CORDON = Taint("node.kubernetes.io/unschedulable")


@dataclass(frozen=True)
class SeenNode(OneNode):
    """A node as the facts tell it. One that no fact of nodes tells has no topology value."""

    is_there: bool = True
    taints: tuple[Taint, ...] = ()

    def value(self, key: str) -> str | None:
        return super().value(key) if self.is_there else None


@dataclass(frozen=True)
class AskingPod(OnePod):
    """A pod of a job, with what it asks of nodes."""

    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True)
class HeldPod(OnePod):
    """A pod that Berth placed. Its labels may be unknown, or told elsewhere: then no selector selects it."""

    has_labels: bool = True


class FactOracle(Oracle):
    """What is allowed by what facts and ledger say.

    Args:
        nodes: All nodes.
        pods: All pods on them.
        neighbours: Facts of usage and of namespaces.
        storage: Facts about volumes.
        labels: Pods among those above, with the labels that they have now, where the above have none.
    """

    def __init__(
        self,
        nodes: Iterable[OneNode],
        pods: Iterable[OnePod],
        neighbours: Neighbours,
        storage: Storage,
        labels: Sequence[OnePod],
    ) -> None:
        super().__init__(list(nodes), pods, neighbours.namespaces)
        self._storage = storage
        self._labels = labels
        self._has_usage = any(usage.nodes for usage in neighbours.told.values())

    def _on_node(self, pod: OnePod, node: OneNode) -> list[str]:
        """Without facts of usage nobody says what nodes have."""
        found = super()._on_node(pod, node)
        if self._has_usage and not self._takes_disks(pod, node):
            found.append("volume-limit")
        return found if self._has_usage else [name for name in found if name != "resource"]

    def _near(self, pod: OnePod, node: OneNode, node_selector: Mapping[str, str]) -> list[str]:
        pods, self.pods = self.pods, [*self.pods, *self._labels]
        try:
            return super()._near(pod, node, node_selector)
        finally:
            self.pods = pods

    def _selects(self, term: PodTerm, pod: OnePod) -> bool:
        return (not isinstance(pod, HeldPod) or pod.has_labels) and super()._selects(term, pod)

    def _is_counted(self, spread: SpreadTerm, pod: OnePod, other: OnePod) -> bool:
        return (not isinstance(other, HeldPod) or other.has_labels) and super()._is_counted(spread, pod, other)

    def _counts(self, spread: SpreadTerm, pod: OnePod, node: OneNode, node_selector: Mapping[str, str]) -> bool:
        assert isinstance(pod, AskingPod)
        assert isinstance(node, SeenNode)
        del node_selector
        labels = {**node.labels, **dict.fromkeys(_NAMES, node.name)}
        if spread.by_affinity and not (pod.selector.items() <= labels.items() and fits_terms(pod.affinity, labels)):
            return False
        return not spread.by_taints or all(
            any(tolerates(one, taint) for one in pod.tolerations)
            for taint in node.taints
            if taint.effect in {"NoSchedule", "NoExecute"}
        )

    def _has_claim(self, name: str, pod: OnePod, node: OneNode) -> bool:
        """Whether a claim lets a pod use a node."""
        storage = self._storage
        if not (self._has_usage or storage.claims or storage.volumes or storage.storage):
            return True
        claim = storage.claims.get(ClaimName(pod.namespace, name))
        if claim is None or claim.deleting or claim.phase == "lost":
            return False
        users = [one for one in self.pods if one.namespace == pod.namespace and name in one.constraints.claims]
        if users and "ReadWriteOncePod" in claim.access:
            return False
        if claim.phase == "bound":
            volume = storage.volumes.get(claim.volume)
            return volume is not None and self._reaches(volume, node)
        waits = claim.storage_class in storage.storage and storage.storage[claim.storage_class].waits
        return waits and not claim.volume and self._gets_volume(claim, {one.node for one in users}, node)

    def _gets_volume(self, claim: ClaimSeen, homes: set[str], node: OneNode) -> bool:
        """Whether a claim that waits for its pods can have a volume for a node.

        Which of several volumes it gets is free here, but its pods have one volume.
        """
        if claim.selected_node:
            return claim.selected_node == node.name and self._is_made(claim, node)
        near = [volume for volume in self._choices(claim) if self._reaches(volume, node)]
        if homes:
            others = [self.nodes[home] for home in homes]
            return node.name in homes or any(self._reaches(volume, other) for volume in near for other in others)
        return bool(near) or self._is_made(claim, node)

    def _reaches(self, volume: VolumeSeen, node: OneNode) -> bool:
        labels = {**node.labels, **dict.fromkeys(_NAMES, node.name)}
        return node.value(HOST) is not None and fits_terms(volume.affinity, labels)

    def _is_made(self, claim: ClaimSeen, node: OneNode) -> bool:
        storage = self._storage.storage[claim.storage_class]
        if storage.provisioner in {"", NO_PROVISIONER} or not fits_terms(storage.topologies, node.labels):
            return False
        return not storage.has_capacity or any(
            holds(part.nodes, node.labels) and (part.volume_max or part.capacity) >= claim.size
            for part in storage.capacities
        )

    def _choices(self, claim: ClaimSeen) -> list[VolumeSeen]:
        name = ClaimName(claim.namespace, claim.name)
        return [
            volume
            for volume in self._storage.volumes.values()
            if (volume.storage_class, volume.mode, volume.deleting) == (claim.storage_class, claim.mode, False)
            and volume.size >= claim.size
            and (
                (volume.claim == name and volume.claim_uid in {"", claim.uid})
                or (
                    volume.claim is None
                    and set(claim.access) <= set(volume.access)
                    and (claim.selector is None or holds(claim.selector, volume.labels))
                )
            )
        ]

    def _takes_disks(self, pod: OnePod, node: OneNode) -> bool:
        """Whether the drivers whose volumes a pod brings have room for them on a node."""
        there: set[tuple[str, str]] = set()
        for other in self.pods:
            if other.node == node.name:
                there |= self._disks(other)
        new = self._disks(pod) - there
        count = Counter(driver for driver, _ in there | new)
        return all(count[driver] <= node.volumes.get(driver, count[driver]) for driver, _ in new)

    def _disks(self, pod: OnePod) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for name in pod.constraints.claims:
            claim = self._storage.claims.get(ClaimName(pod.namespace, name))
            if claim is None:
                continue
            if claim.phase == "bound":
                volume = self._storage.volumes.get(claim.volume)
                if volume is not None and volume.driver:
                    found.add((volume.driver, volume.handle))
                continue
            storage = self._storage.storage.get(claim.storage_class)
            if storage is not None and storage.provisioner not in {"", NO_PROVISIONER}:
                found.add((storage.provisioner, f"made for {pod.namespace}/{name}"))
        return found


def fits_terms(terms: Iterable[Term], labels: Mapping[str, str]) -> bool:
    """Whether one of some terms holds for the labels of a node, or there are none."""
    some = list(terms)
    return not some or any(
        term.expressions and all(_fits(expression, labels) for expression in term.expressions) for term in some
    )


def _fits(expression: Expression, labels: Mapping[str, str]) -> bool:
    is_in = labels.get(expression.key) in expression.values
    return {
        "In": is_in,
        "NotIn": not is_in,
        "Exists": expression.key in labels,
        "DoesNotExist": expression.key not in labels,
    }[expression.operator]


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration is one of a taint."""
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def see_constraints_hold(  # everything that is known
    verdicts: Iterable[Verdict],
    accounts: Accounts,
    nodes: Mapping[str, NodeDescription],
    neighbours: Neighbours,
    storage: Storage,
    state: State,
) -> int:
    """See that the gangs of a record break no hard constraint, one after the other; returns how many were looked at.

    Args:
        verdicts: Of the record.
        accounts: What was held before it.
        nodes: What the facts say of nodes.
        neighbours: What they say of usage and namespaces.
        storage: What they say of volumes.
        state: For the jobs and the pods as the facts tell them, and the settings.

    Raises:
        Failure: They do.
    """
    settings = state.fold.settings
    placed = [verdict for verdict in verdicts if verdict.placement is not None]
    if not settings.enforces_constraints or not placed:
        return 0
    relabelled = {rank: None for usage in neighbours.told.values() for rank in usage.relabelled}
    pods = [pod for usage in neighbours.told.values() for pod in usage.pods]
    pods += _held(accounts, state.jobs, state.pods, relabelled)
    labels = [pod for usage in neighbours.told.values() for pod in usage.relabelled.values()]
    limits = _limits(neighbours)
    names = dict.fromkeys([*nodes, *limits, *(pod.node for pod in (*pods, *labels))])
    oracle = FactOracle(
        [_seen(name, nodes.get(name), limits.get(name)) for name in names], pods, neighbours, storage, labels
    )
    for verdict in placed:
        job = state.jobs[verdict.namespace, verdict.name]
        _see_gang(oracle, verdict, job, settings)
    return len(placed)


def _see_gang(oracle: FactOracle, verdict: Verdict, job: JobSeen, settings: Settings) -> None:
    """See that a gang breaks nothing, and count it for the next ones.

    Raises:
        Failure: It breaks something.
    """
    assert verdict.placement is not None
    assert job.request is not None
    pods = asking(job.request, verdict.namespace, verdict.placement.names())
    chips = [task.chips for task in job.request.tasks for _ in range(task.replicas)]
    is_planned = verdict.placement.switch is not None or verdict.placement.block is not None
    ranks = sorted(range(len(pods)), key=lambda rank: (settings.plain_pods or is_planned) and not chips[rank])
    for rank in ranks:
        broken = oracle.broken(pods[rank])
        if broken:
            raise Failure(f"constraints: {broken[0]} is broken", f"{verdict.name} rank {rank} on {pods[rank].node}")
        oracle.pods.append(pods[rank])


def asking(request: JobRequest, namespace: str, nodes: Iterable[str]) -> list[AskingPod]:
    """Pods of a request on some nodes, by rank."""

    def pod(task: Task, node: str) -> AskingPod:
        return AskingPod(
            node,
            namespace,
            task.labels,
            task.constraints or NONE,
            selector={**request.node_selector, **task.node_selector},
            affinity=tuple(task.affinity),
            tolerations=tuple(task.tolerations),
        )

    tasks = [task for task in request.tasks for _ in range(task.replicas)]
    return [pod(task, node) for task, node in zip(tasks, nodes, strict=True)]


def _held(
    accounts: Accounts,
    jobs: Mapping[tuple[str, str], JobSeen],
    pods: Mapping[tuple[str, str], PodsSeen],
    relabelled: Mapping[RankName, None],
) -> Iterator[HeldPod]:
    """Pods that Berth has placed. What was adopted is in the facts of usage."""
    for key, ranks in accounts.owned.items():
        attempt = accounts.attempts.get(key)
        if attempt is None:
            continue
        job = jobs.get((attempt.namespace, attempt.name))
        request = job.request if job is not None and job.uid == attempt.uid else None
        tasks = [task for task in request.tasks for _ in range(task.replicas)] if request is not None else []
        ending = _ending(pods.get((attempt.namespace, attempt.name)), key)
        for rank, pod in ranks.items():
            if len(tasks) != attempt.pods:
                yield HeldPod(pod.node, has_labels=False)
                continue
            task, has_labels = tasks[rank], RankName(*key, rank) not in relabelled
            wanted = task.constraints or NONE
            yield HeldPod(pod.node, attempt.namespace, task.labels, wanted, rank in ending, has_labels=has_labels)


def _ending(seen: PodsSeen | None, key: tuple[str, int]) -> set[int]:
    """Ranks of an attempt that are being deleted."""
    if seen is None or (seen.uid, seen.attempt) != key:
        return set()
    phases = zip(unpack(seen.rank, 4), seen.phase, strict=True)
    return {rank for rank, phase in phases if phase == PodPhase.TERMINATING}


def _seen(name: str, node: NodeDescription | None, limits: OneNode | None) -> SeenNode:
    """A node with what all facts say of it."""
    of = limits or OneNode(name)
    if node is None:
        return SeenNode(name, {}, of.pods_max, of.resources, of.volumes, is_there=False)
    taints = [*node.taints, _CORDON] if node.cordoned else node.taints
    return SeenNode(name, node.labels, of.pods_max, of.resources, of.volumes, taints=tuple(taints))


def _limits(neighbours: Neighbours) -> dict[str, OneNode]:
    """Limits of nodes: the smallest where facts of several domains tell them."""
    found: dict[str, OneNode] = {}
    for usage in neighbours.told.values():
        for node in usage.nodes:
            other = found.get(node.name, OneNode(node.name))
            found[node.name] = OneNode(
                node.name,
                {},
                min(node.pods_max, other.pods_max),
                _least(node.resources, other.resources),
                _least(node.volumes, other.volumes),
            )
    return found


def _least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: min(one.get(key, other.get(key, 0)), other.get(key, one.get(key, 0))) for key in {**one, **other}}
