"""What pods use of nodes, and what of that nothing else counts. Pure."""

from typing import Final, NamedTuple, TypeAlias

Amounts: TypeAlias = tuple[int, int, int]
"""Chips, thousandths of a CPU, mebibytes."""
NOTHING: Final[Amounts] = (0, 0, 0)


class Use(NamedTuple):
    """Resources that a pod uses on a node.

    Attributes:
        counted: The ledger, or the fact of a foreign pod, counts its CPU and memory already.
        cpu_beyond: CPU beyond what is counted there: the pod was resized.
        memory_beyond: Memory, likewise.
        unnamed: Chips that are counted nowhere else, as whole chips.
        is_new: The device plug-in may still name them.
    """

    node: str
    chips: int
    cpu_milli: int
    memory_mib: int
    counted: bool
    cpu_beyond: int = 0
    memory_beyond: int = 0
    unnamed: int = 0
    is_new: bool = False

    @property
    def uncounted(self) -> Amounts:
        """Chips, CPU and memory that nothing else counts."""
        if self.counted:
            return (self.unnamed, self.cpu_beyond, self.memory_beyond)
        return (self.unnamed, self.cpu_milli, self.memory_mib)


class Uses:
    """Sums of what pods use, by node."""

    def __init__(self) -> None:
        self._load: dict[str, Amounts] = {}
        self._uncounted: dict[str, Amounts] = {}
        self._unsettled: dict[str, Amounts] = {}

    def note(self, before: Use | None, after: Use | None) -> list[str]:
        """Note that a pod's use of resources changed; None for no use.

        Returns:
            Nodes of which nothing else counts another amount than before.
        """
        changed: list[str] = []
        if before == after:
            return changed
        for use, sign in ((before, -1), (after, 1)):
            if use is None:
                continue
            _add(self._load, use.node, (sign * use.chips, sign * use.cpu_milli, sign * use.memory_mib))
            chips, cpu, memory = use.uncounted
            if not use.counted or chips or cpu or memory:
                _add(self._uncounted, use.node, (sign * chips, sign * cpu, sign * memory))
                _add(self._unsettled, use.node, (sign * use.is_new * chips, 0, 0))
                changed.append(use.node)
        return changed

    def load(self, node: str) -> Amounts:
        """What all pods of a node use."""
        return self._load.get(node, NOTHING)

    def uncounted(self, node: str) -> Amounts:
        """What of that nothing else counts."""
        return self._uncounted.get(node, NOTHING)

    def is_unsettled(self, node: str) -> bool:
        """Whether chips of :meth:`uncounted` may be named soon."""
        return node in self._unsettled

    def is_busy(self, node: str) -> bool:
        """Whether a pod has chips there."""
        return self.load(node)[0] > 0

    def busy(self) -> list[str]:
        """Nodes on which some pod has chips."""
        return [node for node, (chips, _, _) in self._load.items() if chips > 0]


def _add(sums: dict[str, Amounts], node: str, amounts: Amounts) -> None:
    """Add to the sums of a node; zero sums are not kept."""
    chips, cpu, memory = sums.get(node, NOTHING)
    after = (chips + amounts[0], cpu + amounts[1], memory + amounts[2])
    if after == NOTHING:
        sums.pop(node, None)
    else:
        sums[node] = after
