"""What the planner knows of leaf switches, SuperPoDs and racks: whether a gang could get nodes below them.

Each pod gets a node of its own. As in :mod:`tests.sim.planner`, a yes is certain: where rules depend on what jobs left
behind (states of leaves, places before a fault), only what does not is used.

Source: docs/reference/switches.md, "Policy 1.0", "Policy 2.0", "Single layer"; docs/reference/superpods.md,
"Selection of blocks", "Racks".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from berth.schemas.envelope import decode
from berth.schemas.facts import TopologySeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings

BLOCK_CHIPS: Final = {"module910a3x16-sp": 16, "module910a3x8-sp": 8, "chip8-node8-sp": 8, "chip8-node8-ra64-sp": 8}
"""Forms with blocks, and the chips of a node."""
SWITCH_CODES: Final = frozenset({"no-topology", "no-leaf", "no-rows", "no-leaves"})
_GANG_PODS: Final = "berth/gang-pods"
_RACKS: Final = "chip8-node8-ra64-sp"
_SIZED: Final = frozenset({"chip8-node8-sp", _RACKS})
"""Forms that place nothing while a SuperPoD has more nodes than it may have."""
_LARGE: Final = 4
"""Pods from which on a large model crosses leaves."""
_POSITIONS_MAX: Final = 128


class Seat(NamedTuple):
    """A node with room for any pod of the gang.

    Attributes:
        name: Of the node.
        superpod: Its SuperPoD; empty without.
        rack: Likewise.
    """

    name: str
    superpod: str
    rack: str


class Leaf(NamedTuple):
    """A leaf switch.

    Attributes:
        places: Places, in the order of their list, whose nodes have room.
        is_crossed: Some attempt has pods below this leaf and elsewhere.
    """

    places: list[int]
    is_crossed: bool


class Fabric:
    """Leaf switches.

    Args:
        facts: The newest fact of each subject.
        attempts: Nodes of each attempt that has some.

    Attributes:
        has_leaves: Whether there are any.
        is_single: Whether they are all that there is.
    """

    def __init__(self, facts: Mapping[str, bytes], attempts: Iterable[Sequence[str]] = ()) -> None:
        found = [decode(data, TopologySeen) for subject, data in facts.items() if ".fact.topology" in subject]
        self._nodes = [leaf.nodes for one in found for leaf in one.leaves]
        self.has_leaves = bool(self._nodes)
        self.is_single = any(one.level == "single_layer" for one in found)
        self._most = max([one.places for one in found] + [len(nodes) for nodes in self._nodes], default=0)
        leaf_of = {name: leaf for leaf, nodes in enumerate(self._nodes) for name in nodes if name}
        self._crossed: set[int] = set()
        for nodes in attempts:
            leaves = {leaf_of.get(name, -1) for name in nodes}
            if len(leaves) > 1:
                self._crossed |= leaves

    def below_leaves(self, request: JobRequest, settings: Settings, seats: Iterable[Seat]) -> bool:
        """Whether the pods could get nodes as the policy of the leaves wants them.

        Args:
            request: Its pods, all with chips.
            settings: Name the policy.
            seats: Nodes with room.
        """
        names = {seat.name for seat in seats}
        leaves = [
            Leaf([place for place, name in enumerate(nodes) if name in names], number in self._crossed)
            for number, nodes in enumerate(self._nodes)
        ]
        pods, gang_pods = request_pods(request)
        is_large = request.labels.get("tor-affinity") == "large-model-schema"
        if self.is_single:
            return gang_pods <= self._most and any(len(leaf.places) >= pods for leaf in leaves)
        is_old = settings.nslb_version != "2.0"
        if pods < self._most and any(len(leaf.places) >= pods and (is_old or not leaf.is_crossed) for leaf in leaves):
            return True
        if is_large and pods < _LARGE:
            return False
        free = [leaf for leaf in leaves if not leaf.is_crossed]
        if is_large and is_old:
            return self._in_rows(pods, free)
        return sum(len(leaf.places) for leaf in free) >= pods

    def _in_rows(self, pods: int, free: Sequence[Leaf]) -> bool:
        """Whether whole leaves, or whole logical switches, give so many nodes."""
        most = self._most
        row, column = divmod(pods - 1, most)
        if pods >= most and sum(len(leaf.places) == most for leaf in free) > row:
            return True
        counts = Counter(place for leaf in free for place in leaf.places)
        columns = sorted((counts[place] for place in range(most)), reverse=True)
        return most <= _POSITIONS_MAX and columns[column] > row and (not row or columns[-1] >= row)


def request_pods(request: JobRequest) -> tuple[int, int]:
    """Pods with chips of a request, and of its whole gang: one that came after its gang was placed is a part of it."""
    pods = sum(task.replicas for task in request.tasks if task.chips)
    return pods, max(pods, int(request.annotations.get(_GANG_PODS, "0")))


def in_blocks(request: JobRequest, settings: Settings, form: str, seats: Sequence[Seat]) -> bool:
    """Whether the pods could get nodes in blocks.

    Args:
        request: Its pods, all with chips.
        settings: Size of SuperPoDs.
        form: One of :data:`BLOCK_CHIPS`.
        seats: Nodes with room.
    """
    seats = [seat for seat in seats if seat.superpod and (form != _RACKS or seat.rack)]
    pods = sum(task.replicas for task in request.tasks)
    free = Counter(seat.superpod for seat in seats)
    if form in _SIZED and any(count > settings.super_pod_size for count in free.values()):
        return False
    if request.labels.get("super-pod-affinity") == "soft":
        return len(seats) >= pods
    chips = sum(task.replicas * task.chips for task in request.tasks)
    block = max(int(request.annotations.get("sp-block", chips)) // BLOCK_CHIPS[form], 1)
    need = pods // block
    if sum(count // block for count in free.values()) < need:
        return False
    if form != _RACKS or pods == 1:
        return True
    part = (int(request.annotations.get("ra-block", "8")) + 7) // 8
    racks = Counter((seat.superpod, seat.rack) for seat in seats)
    if pods <= part:
        return max(racks.values(), default=0) >= pods
    parts: Counter[str] = Counter()
    for (superpod, _), count in racks.items():
        parts[superpod] += count // part
    is_in_one = pods <= settings.super_pod_size and any(count >= pods // part for count in parts.values())
    return is_in_one or sum(count * part // block for count in parts.values()) >= need
