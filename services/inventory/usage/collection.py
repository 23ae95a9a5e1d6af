"""Usage of all nodes, and the facts published about it, one a domain. Pure.

Pods that Berth has placed are in the ledger with the labels and constraints of their request; facts contain only
their changed labels. Pods of all other schedulers are in facts whole, also those whose chips were adopted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from berth.formats.kubernetes.objects import Node
from berth.formats.kubernetes.storage_objects import CsiNode
from berth.schemas.facts import JobSeen, is_repeat
from berth.schemas.pod_constraints import PodConstraints
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import UsageSeen
from berth.services.inventory.pod_rows import PodRow
from berth.services.inventory.usage.node_usage import NodeUsage, Offer, PlacedPod, offer_of, usage_of
from berth.services.inventory.usage.selector_keys import SelectorKeys
from berth.services.inventory.usage.usage_facts import NodeState, usage_fact

K = TypeVar("K")
JobKey = tuple[str, str]


class VolumeLimits:
    """How many volumes of which CSI driver each node takes.

    Args:
        changed: Called with the name of a node whose limits changed.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._limits: dict[str, dict[str, int]] = {}

    def of(self, name: str) -> Mapping[str, int]:
        """Limits of a node, by driver."""
        return self._limits.get(name, {})

    def replace(self, objects: Iterable[CsiNode]) -> None:
        """Take all nodes."""
        found = {one.metadata.name: one.limits for one in objects}
        for name in sorted(found.keys() | self._limits.keys()):
            self._set(name, found.get(name, {}))

    def put(self, found: CsiNode) -> None:
        """Take the current state of a node."""
        self._set(found.metadata.name, found.limits)

    def drop(self, found: CsiNode) -> None:
        """Take that a node is gone."""
        self._set(found.metadata.name, {})

    def _set(self, name: str, limits: dict[str, int]) -> None:
        if self._limits.get(name, {}) == limits:
            return
        if limits:
            self._limits[name] = limits
        else:
            del self._limits[name]
        self._changed(name)


class Usage:
    """What nodes offer, and what pods use of them."""

    def __init__(self) -> None:
        self._keys = SelectorKeys()
        self._offers: dict[str, Offer] = {}
        self.volume_limits = VolumeLimits(self._touch)
        self._rows: dict[str, tuple[PodRow, bool]] = {}
        """Bound pods by uid, and whether Berth has placed them."""
        self._on_node: dict[str, dict[str, None]] = {}
        self._of_job: dict[JobKey, dict[str, None]] = {}
        """Pods with a placement of Berth, by their job."""
        self._usages: dict[str, NodeUsage] = {}
        self._labels: dict[JobKey, tuple[str, list[tuple[int, dict[str, str]]]]] = {}
        """Uid of a request, and number and labels of the pods of its tasks."""
        self._domain_of: dict[str, str] = {}
        self._dirty: dict[str, None] = {}
        """Nodes whose pods changed."""
        self._stale: dict[str, None] = {}
        """Domains to be packed anew."""
        self._revision = 0
        self._published: dict[str, UsageSeen] = {}

    def restore(self, published: Iterable[UsageSeen]) -> None:
        """Restore the facts that earlier runs published last."""
        for fact in published:
            self._published[fact.domain] = fact
            self._stale[fact.domain] = None

    @property
    def is_changed(self) -> bool:
        """Whether anything changed since the last :meth:`due`."""
        return bool(self._dirty or self._stale) or self._keys.revision != self._revision

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take all nodes."""
        offers = {node.metadata.name: offer_of(node) for node in nodes}
        for name in sorted(offers.keys() | self._offers.keys()):
            self._set_offer(name, offers.get(name))

    def take_node(self, node: Node, *, is_gone: bool) -> None:
        """Take the current state of a node."""
        self._set_offer(node.metadata.name, None if is_gone else offer_of(node))

    def _set_offer(self, name: str, offer: Offer | None) -> None:
        if self._offers.get(name) == offer:
            return
        if offer is None:
            del self._offers[name]
        else:
            self._offers[name] = offer
        self._touch(name)

    def note_selectors(self, uid: str, constraints: PodConstraints | None) -> None:
        """Take the constraints of a pod that waits; None once it is gone."""
        self._keys.note(uid, (constraints,))

    def note_job(self, job: JobSeen) -> None:
        """Take the verdict on a job: the labels and selectors of its request."""
        key = (job.namespace, job.name)
        if job.request is None or job.state in {"tombstone", "rejected"}:
            if job.state in {"tombstone", "rejected"}:
                self._labels.pop(key, None)
                self._keys.note(key, ())
            return
        self._keys.note(key, (task.constraints for task in job.request.tasks))
        known = (job.uid, [(task.replicas, task.labels) for task in job.request.tasks])
        if self._labels.get(key) != known:
            self._labels[key] = known
            self._dirty.update((self._rows[uid][0].node, None) for uid in self._of_job.get(key, ()))

    def put(self, row: PodRow, *, is_own: bool) -> None:
        """Take the current state of a bound pod.

        Args:
            row: The pod.
            is_own: Berth has placed it, and the ledger counts it.
        """
        before = self._rows.get(row.uid)
        if before == (row, is_own):
            return
        self._rows[row.uid] = (row, is_own)
        self._on_node.setdefault(row.node, {})[row.uid] = None
        if row.identity is not None:
            self._of_job.setdefault((row.namespace, row.identity.job), {})[row.uid] = None
        self._dirty[row.node] = None
        self._keys.note(row.uid, (row.constraints if row.is_live else None,))

    def drop(self, uid: str) -> None:
        """Take that a pod is gone."""
        self._keys.note(uid, ())
        found = self._rows.pop(uid, None)
        if found is None:
            return
        row = found[0]
        _leave(self._on_node, row.node, uid)
        if row.identity is not None:
            _leave(self._of_job, (row.namespace, row.identity.job), uid)
        self._dirty[row.node] = None

    def due(self, domain_of: Mapping[str, str], at_ms: UnixMs) -> list[UsageSeen]:
        """Facts that differ from the published ones, in the order of domains.

        Args:
            domain_of: Domain of each node.
            at_ms: The time.
        """
        self._settle(domain_of)
        facts: list[UsageSeen] = []
        members: dict[str, list[str]] = {domain: [] for domain in self._stale}
        for name, domain in domain_of.items():
            if domain in members:
                members[domain].append(name)
        for domain in sorted(self._stale):
            published = self._published.get(domain)
            fact = usage_fact(domain, [self._state(name) for name in sorted(members[domain])], at_ms=at_ms)
            if is_repeat(published, fact) or (published is None and not fact.names):
                del self._stale[domain]
            else:
                facts.append(fact)
        return facts

    def note_published(self, fact: UsageSeen) -> None:
        """Note that a fact was published."""
        if fact.names:
            self._published[fact.domain] = fact
        else:
            self._published.pop(fact.domain, None)
        self._stale.pop(fact.domain, None)

    def _touch(self, name: str) -> None:
        domain = self._domain_of.get(name)
        if domain is not None:
            self._stale[domain] = None

    def _settle(self, domain_of: Mapping[str, str]) -> None:
        """Sum up the nodes whose pods changed, and note the domains that follow."""
        if self._keys.revision != self._revision:
            self._revision = self._keys.revision
            self._dirty.update(dict.fromkeys(self._on_node))
        if domain_of != self._domain_of:
            moved = {name for name in domain_of.keys() | self._domain_of.keys() if self._moved(name, domain_of)}
            for name in sorted(moved):
                self._touch(name)
            self._domain_of = dict(domain_of)
            for name in sorted(moved):
                self._touch(name)
        for name in self._dirty:
            before = self._usages.pop(name, None)
            uids = self._on_node.get(name)
            if uids:
                self._usages[name] = usage_of((self._placed(uid) for uid in uids), self._keys)
            if self._usages.get(name) != before:
                self._touch(name)
        self._dirty.clear()

    def _moved(self, name: str, domain_of: Mapping[str, str]) -> bool:
        return domain_of.get(name) != self._domain_of.get(name)

    def _placed(self, uid: str) -> PlacedPod:
        row, is_own = self._rows[uid]
        return PlacedPod(row, self._asked_labels(row) if is_own else None)

    def _asked_labels(self, row: PodRow) -> Mapping[str, str]:
        """Labels that the request of a pod has for its rank; those of the pod while the request is unknown."""
        known = self._labels.get((row.namespace, row.identity.job)) if row.identity is not None else None
        if known is None or row.identity is None or known[0] != row.identity.uid:
            return row.labels
        rank = row.identity.rank
        for replicas, labels in known[1]:
            if rank < replicas:
                return labels
            rank -= replicas
        return row.labels

    def _state(self, name: str) -> NodeState:
        return NodeState(
            name,
            self._offers.get(name) or Offer(),
            self._usages.get(name) or NodeUsage(),
            self.volume_limits.of(name),
        )


def _leave(index: dict[K, dict[str, None]], key: K, uid: str) -> None:
    del index[key][uid]
    if not index[key]:
        del index[key]
