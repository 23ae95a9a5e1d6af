"""Slots of chips on nodes: pods with the same number of chips on a node are bound one after another. Pure.

The kubelet's request to the device plug-in states the number of chips, not the pod; the plug-in takes the oldest pod
with that number. With two such pods waiting, the kubelet may request the second first, and each gets the other's chips.
So a *slot*, a number of chips of a kind on a node, belongs to one pod from its binding until it has its chips.

Two sources report the occupants of a slot: Berth's own bindings, at once, and facts of pods, which include pods of
others.

Source: docs/reference/kubernetes.md, "Gaps of the hand-off" and "Binding".
"""

from typing import Final, NamedTuple, TypeAlias

from berth.core.chips.picking import ids_of
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import PodPhase, PodsSeen

PodKey: TypeAlias = tuple[str, int, int]
"""(uid of the gang, attempt, rank)"""

_ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
_CLAIMED: Final = 1
_SEEN: Final = 2


class Slot(NamedTuple):
    """A number of chips of a kind on a node."""

    node: str
    resource: str
    chips: int


class ChipSlots:
    """Occupants of all slots."""

    def __init__(self) -> None:
        self._in: dict[Slot, dict[PodKey, int]] = {}
        """Pods in each slot, in the order of their arrival, and the sources that report them."""
        self._claims: dict[tuple[str, int], dict[int, Slot]] = {}
        self._seen: dict[tuple[str, str], dict[PodKey, Slot | None]] = {}
        self._steps: dict[tuple[str, str], dict[PodKey, int]] = {}
        """Steps of recoveries for which pods were bound, where there are any."""

    def occupant(self, slot: Slot, *, besides: PodKey | None = None) -> PodKey | None:
        """Pod that came first into a slot, if any."""
        return next((key for key in self._in.get(slot, ()) if key != besides), None)

    def claim(self, slot: Slot, key: PodKey) -> bool:
        """Occupy a slot for a pod that is about to be bound; returns whether the slot has no other pod."""
        if self.occupant(slot, besides=key) is not None:
            return False
        self.hold(slot, key)
        return True

    def hold(self, slot: Slot, key: PodKey) -> None:
        """Occupy a slot for a pod, even if it has others."""
        if self._claims.get(key[:2], {}).get(key[2], slot) != slot:
            self.release(key)
        self._claims.setdefault(key[:2], {})[key[2]] = slot
        self._enter(slot, key, _CLAIMED)

    def release(self, key: PodKey) -> list[Slot]:
        """Release the slot of a pod that was not bound or has its chips; returns the slots that are now free."""
        claims = self._claims.get(key[:2], {})
        slot = claims.pop(key[2], None)
        if not claims:
            self._claims.pop(key[:2], None)
        return [] if slot is None else self._leave(slot, key, _CLAIMED)

    def forget(self, uid: str, attempt: int) -> list[Slot]:
        """Release all slots of an attempt without pods; returns the slots that are now free."""
        return [
            slot for rank in list(self._claims.get((uid, attempt), ())) for slot in self.release((uid, attempt, rank))
        ]

    def is_served(self, namespace: str, gang: str, key: PodKey, *, step: int = 0) -> bool:
        """Whether facts state that a pod waits for no chips: it has them, needs none, or has finished.

        Args:
            namespace: Of the gang.
            gang: Its name.
            key: The pod.
            step: A pod that was bound for an earlier step is another one.
        """
        rows = self._seen.get((namespace, gang), {})
        steps = self._steps.get((namespace, gang), {})
        return key in rows and rows[key] is None and steps.get(key, 0) >= step

    def is_reported(self, namespace: str, gang: str, key: PodKey) -> bool:
        """Whether the last fact of a gang reports a pod as existing."""
        return key in self._seen.get((namespace, gang), {})

    def take(self, fact: PodsSeen) -> list[Slot]:
        """Take a fact; returns the slots that are now free.

        Raises:
            ValueError: A column or the name table is damaged; then the fact is ignored.
            IndexError: An index points outside its table; then the fact is ignored.
        """
        name = (fact.namespace, fact.gang)
        now = _rows(fact)
        before = self._seen.pop(name, {})
        self._steps.pop(name, None)
        freed: list[Slot] = []
        if any(phase not in _ENDED for phase in fact.phase):  # otherwise no further fact may follow: do not store it
            self._seen[name] = now
            if fact.steps:
                rows = zip(unpack(fact.rank, 4), unpack(fact.steps, 4), strict=True)
                self._steps[name] = {(fact.uid, fact.attempt, rank): step for rank, step in rows if step}
        if not fact.phase:
            freed += self.forget(fact.uid, fact.attempt)
        for key, slot in now.items():
            if slot is None:
                freed += self.release(key)
            else:
                self._enter(slot, key, _SEEN)
        for key, slot in before.items():
            if slot is not None and now.get(key) != slot:
                freed += self._leave(slot, key, _SEEN)
            if key not in now:
                freed += self.release(key)
        return freed

    def _enter(self, slot: Slot, key: PodKey, source: int) -> None:
        inside = self._in.setdefault(slot, {})
        inside[key] = inside.get(key, 0) | source

    def _leave(self, slot: Slot, key: PodKey, source: int) -> list[Slot]:
        inside = self._in[slot]
        inside[key] &= ~source
        if inside[key]:
            return []
        del inside[key]
        if inside:
            return []
        del self._in[slot]
        return [slot]


def _rows(fact: PodsSeen) -> dict[PodKey, Slot | None]:
    """Pods of a fact, and the slot of each that waits for its chips."""
    names = unpack_names(fact.nodes)
    phases = fact.phase
    consumed = fact.consumed or bytes(len(phases))
    found: dict[PodKey, Slot | None] = {}
    columns = zip(unpack(fact.rank, 4), unpack(fact.node_index, 4), unpack(fact.chips, 8), strict=True)
    for row, (rank, node, mask) in enumerate(columns):
        if phases[row] == PodPhase.GONE:
            continue
        waits = phases[row] == PodPhase.PENDING and not consumed[row] and mask
        slot = Slot(names[node], fact.resource, len(ids_of(mask))) if waits else None
        found[fact.uid, fact.attempt, rank] = slot
    return found
