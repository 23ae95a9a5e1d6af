"""Order of binding on a node: pods with equally many chips are bound one after another. Pure.

The kubelet's request to the device plug-in has the number of chips, not the pod; the plug-in takes the oldest pod with
that number. With two such pods waiting, the kubelet may ask for the second first, and each gets the chips of the other.
So a *slot*, equally many chips of a kind on a node, belongs to one pod from its binding until it has its chips.

Two sources show which pod is in a slot: the binder's own bindings, at once, and facts of pods, which also cover the
pods of other schedulers.

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
    """Equally many chips of a kind on a node."""

    node: str
    resource: str
    chips: int


class Turns:
    """The pods in each slot."""

    def __init__(self) -> None:
        self._in: dict[Slot, dict[PodKey, int]] = {}
        """Pods in each slot, in order of arrival, and the sources that show it."""
        self._claims: dict[tuple[str, int], dict[int, Slot]] = {}
        self._seen: dict[tuple[str, str], dict[PodKey, Slot | None]] = {}

    def occupant(self, slot: Slot, *, besides: PodKey | None = None) -> PodKey | None:
        """The pod in a slot that came first, if any."""
        return next((key for key in self._in.get(slot, ()) if key != besides), None)

    def claim(self, slot: Slot, key: PodKey) -> bool:
        """Take a slot for a pod that is about to be bound; returns whether no other pod is in it."""
        if self.occupant(slot, besides=key) is not None:
            return False
        self.hold(slot, key)
        return True

    def hold(self, slot: Slot, key: PodKey) -> None:
        """A pod is in a slot, even if others are."""
        if self._claims.get(key[:2], {}).get(key[2], slot) != slot:
            self.release(key)
        self._claims.setdefault(key[:2], {})[key[2]] = slot
        self._enter(slot, key, _CLAIMED)

    def release(self, key: PodKey) -> list[Slot]:
        """A pod was not bound, or needs its slot no longer; returns the slots that are free now."""
        claims = self._claims.get(key[:2], {})
        slot = claims.pop(key[2], None)
        if not claims:
            self._claims.pop(key[:2], None)
        return [] if slot is None else self._leave(slot, key, _CLAIMED)

    def forget(self, uid: str, attempt: int) -> list[Slot]:
        """No pod of an attempt was bound, or none is left; returns the slots that are free now."""
        return [
            slot for rank in list(self._claims.get((uid, attempt), ())) for slot in self.release((uid, attempt, rank))
        ]

    def is_served(self, namespace: str, gang: str, key: PodKey) -> bool:
        """Whether a pod waits for no chips, by the facts: it has them, needs none, or has ended."""
        rows = self._seen.get((namespace, gang), {})
        return key in rows and rows[key] is None

    def is_reported(self, namespace: str, gang: str, key: PodKey) -> bool:
        """Whether the last fact of a gang reports a pod as present."""
        return key in self._seen.get((namespace, gang), {})

    def take(self, fact: PodsSeen) -> list[Slot]:
        """Take a fact; returns the slots that are free now.

        Raises:
            ValueError: A column or the name table is damaged; then nothing was taken.
            IndexError: An index points outside its table; likewise.
        """
        name = (fact.namespace, fact.gang)
        now = _rows(fact)
        before = self._seen.pop(name, {})
        freed: list[Slot] = []
        if any(phase not in _ENDED for phase in fact.phase):  # else no other fact may follow: keep nothing
            self._seen[name] = now
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
