"""What kube-scheduler's plug-ins allow by the facts of a history: an oracle that shares no code with the product."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.pod_constraints import PodConstraints, PodTerm, SpreadTerm
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen, VolumeSeen
from tests.fuzz.neighbours import Neighbours
from tests.fuzz.storage import NO_PROVISIONER, Storage
from tests.support.constraint_worlds import HOST, OneNode, OnePod, Oracle, holds

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
    chips: tuple[int, ...] = ()


class Decided(NamedTuple):
    """What a placement says of a claim."""

    name: ClaimName
    uid: str
    volume: str
    """Empty: one is made."""
    node: str


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
        self.decided: list[Decided] = []
        """What placements say of claims, the oldest first."""
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
        failure = self._storage.failure(claim)
        is_made = self._is_made(claim, node) and node.name not in failure.nodes
        if claim.selected_node:
            return claim.selected_node == node.name and is_made
        name = ClaimName(claim.namespace, claim.name)
        former = [one for one in self.decided if one.name == name]
        known = next((one for one in former if one.uid == claim.uid), None)
        if known is not None:
            return self._has_decided(known, failure, node)
        taken = {one.volume for one in self.decided} | {*failure.volumes}
        choices = [volume for volume in self._choices(claim) if volume.name not in taken]
        near = [volume for volume in choices if self._reaches(volume, node)]
        if homes and not former:
            others = [self.nodes[home] for home in homes]
            return node.name in homes or any(self._reaches(volume, other) for volume in near for other in others)
        return bool(near) or is_made

    def _has_decided(self, known: "Decided", failure: UnboundSeen, node: OneNode) -> bool:
        """Whether what a placement says that a claim gets can be used from a node."""
        if not known.volume:
            return known.node == node.name and node.name not in failure.nodes
        volume = self._storage.volumes.get(known.volume)
        return volume is not None and volume.name not in failure.volumes and self._reaches(volume, node)

    def open_claims(self, pod: OnePod) -> list[ClaimSeen]:
        """Claims of a pod that are not bound, and are bound when it is placed."""
        found = [self._storage.claims.get(ClaimName(pod.namespace, name)) for name in pod.constraints.claims]
        classes = self._storage.storage
        return [
            claim
            for claim in found
            if claim is not None
            and (claim.phase, claim.volume) == ("pending", "")
            and claim.storage_class in classes
            and classes[claim.storage_class].waits
        ]

    def present(self) -> list[str]:
        """Names of the nodes that facts of nodes tell."""
        return [name for name, node in self.nodes.items() if node.value(HOST) is not None]

    def chooses_volumes(self, namespace: str, wanted: PodConstraints) -> bool:
        """Whether a pod has a claim for which a volume is chosen when it is placed."""
        claims = (self._storage.claims.get(ClaimName(namespace, name)) for name in wanted.claims)
        return any(claim is not None and claim.phase == "pending" and not claim.volume for claim in claims)

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
