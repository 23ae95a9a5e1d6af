"""Pods that left a rank: their names and nodes, so that one that comes back to its node is known as such. Pure.

After a restart the names are not known: a pod that comes back to the node counts then.

Source: docs/reference/faults.md, "What is written after a fault".
"""

from collections.abc import Iterable

from berth.formats.ascend.pod_annotations import IN_PLACE, LEDGER, STEP
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.services.binder.cluster import Gang
from berth.services.binder.work import AttemptKey


class PreviousPods:
    """Pods that left the ranks of live attempts."""

    def __init__(self) -> None:
        self._names: dict[AttemptKey, dict[int, str]] = {}
        self._nodes: dict[AttemptKey, dict[int, str]] = {}

    def record_deleted(self, key: AttemptKey, rank: int, *, name: str, node: str) -> None:
        """Record the name and node of a pod that was deleted."""
        self._names.setdefault(key, {})[rank] = name
        self._nodes.setdefault(key, {})[rank] = node

    def record_gone(self, fact: PodsSeen) -> None:
        """Record the nodes of pods that a fact reports as gone.

        Raises:
            ValueError: A column or the name table is damaged.
            IndexError: An index points outside its table.
        """
        if PodPhase.GONE not in fact.phase:
            return
        names = unpack_names(fact.nodes)
        nodes = self._nodes.setdefault((fact.uid, fact.attempt), {})
        rows = zip(unpack(fact.rank, 4), fact.phase, unpack(fact.node_index, 4), strict=True)
        nodes.update((rank, names[node]) for rank, phase, node in rows if phase == PodPhase.GONE)

    def marks(self, gang: Gang, rank: int, *, name: str, node: str) -> dict[str, str]:
        """Annotations about the record and recoveries of a pod that is to be bound.

        Args:
            gang: The attempt.
            rank: Rank of the pod.
            name: Name of the pod: it is in place if, as far as is known, the one that left had the same ...
            node: ... and was on the same node.
        """
        step = gang.steps.get(rank, 0)
        marks = {STEP: str(step)} if step else {}
        if gang.ledger:
            marks[LEDGER] = gang.ledger
        was_here = self._nodes.get(gang.key, {}).get(rank) == node
        if step and was_here and self._names.get(gang.key, {}).get(rank, name) == name:
            marks[IN_PLACE] = "true"
        return marks

    def remove(self, key: AttemptKey) -> None:
        """Remove the pods of an attempt that has ended."""
        self._names.pop(key, None)
        self._nodes.pop(key, None)

    def keep(self, keys: Iterable[AttemptKey]) -> None:
        """Remove all attempts but some."""
        live = set(keys)
        for key in [key for key in {**self._names, **self._nodes} if key not in live]:
            self.remove(key)
