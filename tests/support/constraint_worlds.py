"""Clusters with constraints of pods: facts of usage, and an oracle that knows what kube-scheduler's plug-ins allow.

The oracle is plain Python over lists of pods, and shares no code with the product.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from berth.schemas.columns import pack, pack_names
from berth.schemas.constraints import Expression
from berth.schemas.intake import Task
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm, SpreadTerm
from berth.schemas.usage_facts import UNLIMITED, ClaimName, PodSet, RankName, UsageSeen

HOST = "kubernetes.io/hostname"
NONE = PodConstraints()


def having(**labels: str) -> LabelSelector:
    """Objects with these labels."""
    return LabelSelector(tuple(Expression(key, "In", (value,)) for key, value in sorted(labels.items())))


def near(key: str, namespace: str = "default", **labels: str) -> PodTerm:
    """Pods of a namespace with these labels, at a topology key."""
    return PodTerm(key, having(**labels), (namespace,))


@dataclass(frozen=True)
class OnePod:
    """A pod on a node."""

    node: str
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    constraints: PodConstraints = NONE
    ending: bool = False


@dataclass(frozen=True)
class OneNode:
    """A node as constraints see it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pods_max: int = UNLIMITED
    resources: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str, int] = field(default_factory=dict)
    """Most volumes of each CSI driver."""

    def value(self, key: str) -> str | None:
        return self.name if key == HOST else self.labels.get(key)


def usage_of(
    domain: str,
    nodes: Sequence[OneNode],
    pods: Iterable[OnePod],
    relabelled: Mapping[RankName, OnePod] = MappingProxyType({}),
) -> UsageSeen:
    """Fact of the pods of other schedulers on some nodes, written column by column.

    Args:
        domain: Of the fact.
        nodes: Its nodes.
        pods: Pods of other schedulers; those on other nodes are left out.
        relabelled: Pods that Berth placed and that have other labels since; likewise.
    """
    names = sorted(node.name for node in nodes)
    row = {name: index for index, name in enumerate(names)}
    by_name = {node.name: node for node in nodes}
    mine = [pod for pod in pods if pod.node in row]
    resources = sorted(
        {name for node in nodes for name in node.resources} | {n for p in mine for n, _ in p.constraints.resources}
    )
    groups: Counter[tuple[int, tuple[str, tuple[tuple[str, str], ...], bool]]] = Counter()
    used: Counter[tuple[int, int]] = Counter()
    terms: dict[PodTerm, None] = {}
    ports: dict[HostPort, None] = {}
    others = {rank: pod for rank, pod in relabelled.items() if pod.node in row}
    for pod in (*mine, *others.values()):
        groups[row[pod.node], (pod.namespace, tuple(sorted(pod.labels.items())), pod.ending)] += 1
    for pod in mine:
        for name, amount in pod.constraints.resources:
            used[row[pod.node], resources.index(name)] += amount
        terms.update(dict.fromkeys(pod.constraints.anti_affinity))
        ports.update(dict.fromkeys(pod.constraints.ports))
    sets = sorted({key for _, key in groups})
    set_rows = sorted((at, sets.index(key), count) for (at, key), count in groups.items())
    term_rows = sorted(
        {(row[pod.node], list(terms).index(term)) for pod in mine for term in pod.constraints.anti_affinity}
    )
    port_rows = sorted({(row[pod.node], list(ports).index(port)) for pod in mine for port in pod.constraints.ports})
    offered = [
        (at, resources.index(name), by_name[host].resources[name])
        for at, host in enumerate(names)
        for name in sorted(by_name[host].resources)
    ]
    claims = list(dict.fromkeys((pod.namespace, name) for pod in mine for name in pod.constraints.claims))
    claim_rows = sorted(
        {(row[pod.node], claims.index((pod.namespace, name))) for pod in mine for name in pod.constraints.claims}
    )
    drivers = sorted({driver for node in nodes for driver in node.volumes})
    limits = [
        (at, drivers.index(driver), by_name[host].volumes[driver])
        for at, host in enumerate(names)
        for driver in sorted(by_name[host].volumes)
    ]
    counts = Counter(pod.node for pod in mine)
    return UsageSeen(
        domain=domain,
        names=pack_names(names),
        pods=pack([counts[name] for name in names], 4),
        pods_max=pack([by_name[name].pods_max for name in names], 4),
        resources=resources,
        offered_node=pack([at for at, _, _ in offered], 4),
        offered_index=pack([index for _, index, _ in offered], 4),
        offered=pack([amount for _, _, amount in offered], 8),
        used_node=pack([at for at, _ in sorted(used)], 4),
        used_index=pack([index for _, index in sorted(used)], 4),
        used=pack([used[pair] for pair in sorted(used)], 8),
        pod_sets=[PodSet(namespace, dict(labels), ending) for namespace, labels, ending in sets],
        set_node=pack([at for at, _, _ in set_rows], 4),
        set_index=pack([index for _, index, _ in set_rows], 4),
        set_pods=pack([count for _, _, count in set_rows], 4),
        terms=list(terms),
        term_node=pack([at for at, _ in term_rows], 4),
        term_index=pack([index for _, index in term_rows], 4),
        ports=list(ports),
        port_node=pack([at for at, _ in port_rows], 4),
        port_index=pack([index for _, index in port_rows], 4),
        claims=[ClaimName(*claim) for claim in claims],
        claim_node=pack([at for at, _ in claim_rows], 4),
        claim_index=pack([index for _, index in claim_rows], 4),
        drivers=drivers,
        limit_node=pack([at for at, _, _ in limits], 4),
        limit_index=pack([index for _, index, _ in limits], 4),
        limit=pack([most for _, _, most in limits], 4),
        relabelled=sorted(others, key=lambda name: (name.uid, name.attempt, name.rank)),
    )


class Oracle:
    """What kube-scheduler's default plug-ins allow, for one pod after another.

    Args:
        nodes: All nodes.
        pods: All pods on them.
        namespaces: Labels of namespaces.
        failed: Nodes on which claims could not be bound.
    """

    def __init__(
        self,
        nodes: Sequence[OneNode],
        pods: Iterable[OnePod],
        namespaces: Mapping[str, Mapping[str, str]],
        failed: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self.failed = failed
        self.nodes = {node.name: node for node in nodes}
        self.pods = list(pods)
        self.namespaces = namespaces

    def broken(self, pod: OnePod, *, node_selector: Mapping[str, str] | None = None) -> list[str]:
        """Constraints that a pod would break on its node."""
        node = self.nodes[pod.node]
        return [*self._on_node(pod, node), *self._near(pod, node, node_selector or {})]

    def _on_node(self, pod: OnePod, node: OneNode) -> list[str]:
        wanted = pod.constraints
        here = [other for other in self.pods if other.node == pod.node]
        used: Counter[str] = Counter()
        for other in here:
            used.update(dict(other.constraints.resources))
        short = [name for name, amount in wanted.resources if used[name] + amount > node.resources.get(name, 0)]
        taken = [port for other in here for port in other.constraints.ports]
        checks = {
            "pods": len(here) + 1 > node.pods_max,
            "resource": bool(short),
            "port": any(clash(port, other) for port in wanted.ports for other in taken),
            "volume": not all(self._has_claim(name, pod, node) for name in wanted.claims),
        }
        return [name for name, is_broken in checks.items() if is_broken]

    def _has_claim(self, name: str, pod: OnePod, node: OneNode) -> bool:
        """Claims of "default": "in-b" is bound in zone b, "once" has one pod, "made" is made in zones a and b.

        "own-1" and "own-2" each get one of two volumes, on n2 and on n4.
        """
        failed = node.name in self.failed.get(name, ())
        users = {
            other.node for other in self.pods if other.namespace == pod.namespace and name in other.constraints.claims
        }
        match name if pod.namespace == "default" else "":
            case "in-b":
                return node.value("zone") == "b"
            case "once":
                return not users
            case "made":
                return node.value("zone") in {"a", "b"} and users <= {node.name} and not failed
            case "own-1" | "own-2" as own:
                if node.name not in {"n2", "n4"} or failed:
                    return False
                other = "own-2" if own == "own-1" else "own-1"
                both = {other, own} <= set(pod.constraints.claims)
                rest = {seen.node for seen in self.pods if other in seen.constraints.claims}
                return users <= {node.name} and node.name not in rest and not both
            case _:
                return False

    def _near(self, pod: OnePod, node: OneNode, node_selector: Mapping[str, str]) -> list[str]:
        wanted = pod.constraints
        forbidden = [
            (term, other) for other in self.pods for term in wanted.anti_affinity if self._selects(term, other)
        ]
        repelling = [
            (term, other) for other in self.pods for term in other.constraints.anti_affinity if self._selects(term, pod)
        ]
        checks = {
            "affinity": bool(wanted.affinity) and not self._has_affinity(pod, node),
            "anti-affinity": any(self._same(term.topology_key, node, other) for term, other in forbidden),
            "repelled": any(self._same(term.topology_key, node, other) for term, other in repelling),
            "spread": not all(self._is_even(spread, pod, node, node_selector) for spread in wanted.spread),
        }
        return [name for name, is_broken in checks.items() if is_broken]

    def _has_affinity(self, pod: OnePod, node: OneNode) -> bool:
        terms = pod.constraints.affinity
        if any(node.value(term.topology_key) is None for term in terms):
            return False
        friends = [other for other in self.pods if all(self._selects(term, other) for term in terms)]
        if all(any(self._same(term.topology_key, node, other) for other in friends) for term in terms):
            return True
        is_anywhere = any(
            self.nodes[other.node].value(term.topology_key) is not None for other in friends for term in terms
        )
        return not is_anywhere and all(self._selects(term, pod) for term in terms)

    def _is_even(self, spread: SpreadTerm, pod: OnePod, node: OneNode, node_selector: Mapping[str, str]) -> bool:
        value = node.value(spread.topology_key)
        if value is None:
            return False
        keys = [term.topology_key for term in pod.constraints.spread]
        counted = [
            other
            for other in self.nodes.values()
            if all(other.value(key) is not None for key in keys) and self._counts(spread, pod, other, node_selector)
        ]
        names = {other.name for other in counted}
        numbers = {other.value(spread.topology_key): 0 for other in counted}
        for other in self.pods:
            if other.node in names and self._is_counted(spread, pod, other):
                numbers[self.nodes[other.node].value(spread.topology_key)] += 1
        least = min(numbers.values(), default=0) if len(numbers) >= max(spread.min_domains, 1) else 0
        return numbers.get(value, 0) + holds(spread.selector, pod.labels) - least <= spread.max_skew

    def _is_counted(self, spread: SpreadTerm, pod: OnePod, other: OnePod) -> bool:
        """Whether a spread of a pod counts another one."""
        is_alike = other.namespace == pod.namespace and not other.ending
        return is_alike and holds(spread.selector, other.labels)

    def _counts(self, spread: SpreadTerm, _: OnePod, node: OneNode, node_selector: Mapping[str, str]) -> bool:
        """Whether a spread of a pod counts a node that has all its labels. No node has taints here."""
        return not spread.by_affinity or node_selector.items() <= dict(node.labels).items()

    def _selects(self, term: PodTerm, pod: OnePod) -> bool:
        labels = self.namespaces.get(pod.namespace, {})
        return (pod.namespace in term.namespaces or holds(term.namespace_selector, labels)) and holds(
            term.selector, pod.labels
        )

    def _same(self, key: str, node: OneNode, other: OnePod) -> bool:
        value = node.value(key)
        return value is not None and value == self.nodes[other.node].value(key)


def holds(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects labels."""
    if selector is None:
        return False
    for one in selector.expressions:
        is_there = one.key in labels
        ok = {
            "In": is_there and labels.get(one.key) in one.values,
            "NotIn": not (is_there and labels[one.key] in one.values),
            "Exists": is_there,
            "DoesNotExist": not is_there,
            "Gt": False,  # of nodes only; in pods that were placed while constraints were off
            "Lt": False,
        }[one.operator]
        if not ok:
            return False
    return True


def clash(one: HostPort, other: HostPort) -> bool:
    """Whether two pods with these host ports cannot be on one node."""
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return "" in {one.address, other.address} or one.address == other.address


def pods_of(tasks: Sequence[Task], nodes: Sequence[str], namespace: str = "default") -> list[OnePod]:
    """Pods of a placed gang, in the order of ranks."""
    pods = [task for task in tasks for _ in range(task.replicas)]
    return [
        OnePod(node, namespace, task.labels, task.constraints or NONE) for task, node in zip(pods, nodes, strict=True)
    ]
