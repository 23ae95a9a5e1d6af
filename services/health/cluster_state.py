"""Nodes by domain, and the chips that their pods hold, folded from facts. Pure."""

from berth.core.cluster.node_packing import unpack_nodes
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import NodesSeen, PodPhase, PodsSeen
from berth.schemas.nodes import NodeDescription

_LIVE = frozenset({PodPhase.PENDING, PodPhase.RUNNING, PodPhase.TERMINATING})


class ClusterState:
    """Nodes and pods of the cell, folded from facts."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDescription] = {}
        self.domain_of: dict[str, str] = {}
        self.domains: dict[str, set[str]] = {}
        self._held: dict[str, dict[str, int]] = {}
        """Bitmaps of the chips that the pods of each gang hold, by node; gangs by their subject."""
        self._gangs_on: dict[str, dict[str, None]] = {}

    def apply_nodes(self, fact: NodesSeen) -> list[str]:
        """Apply the fact of a domain's nodes; returns the domains that changed, sorted.

        Raises:
            ValueError: As :func:`unpack_nodes`.
            IndexError: As :func:`unpack_nodes`.
        """
        found = unpack_nodes(fact)
        before = self.domains.get(fact.domain, set())
        touched = {fact.domain}
        now = {node.name for node in found}
        for name in before - now:
            del self.nodes[name]
            del self.domain_of[name]
        for node in found:
            other = self.domain_of.get(node.name, fact.domain)
            if other != fact.domain:
                self.domains[other].discard(node.name)
                touched.add(other)
            self.nodes[node.name] = node
            self.domain_of[node.name] = fact.domain
        self.domains[fact.domain] = now
        for domain in touched:
            if not self.domains[domain]:
                del self.domains[domain]
        return sorted(touched)

    def apply_pods(self, subject: str, fact: PodsSeen) -> list[str]:
        """Apply the fact of a gang's pods; returns the nodes whose held chips changed, sorted.

        Raises:
            ValueError: A column or the name table is damaged.
            IndexError: An index points outside its table.
        """
        now: dict[str, int] = {}
        names = unpack_names(fact.nodes)
        rows = zip(unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8), strict=True)
        for index, phase, chips in rows:
            if phase in _LIVE and chips:
                now[names[index]] = now.get(names[index], 0) | chips
        before = self._held.pop(subject, {})
        if now:
            self._held[subject] = now
        changed = sorted(node for node in {*before, *now} if before.get(node) != now.get(node))
        for node in changed:
            gangs = self._gangs_on.setdefault(node, {})
            if node in now:
                gangs[subject] = None
            else:
                gangs.pop(subject, None)
                if not gangs:
                    del self._gangs_on[node]
        return changed

    def held(self, node: str) -> int:
        """Bitmap of the chips that pods of a node hold."""
        mask = 0
        for gang in self._gangs_on.get(node, ()):
            mask |= self._held[gang][node]
        return mask

    def idle(self, node: str) -> int:
        """Chips that Kubernetes counts as idle: allocatable minus those of pods. 0 for an unknown node."""
        known = self.nodes.get(node)
        if known is None:
            return 0
        return max(0, known.allocatable - self.held(node).bit_count() - known.chips_others)
