"""What gangs count for, and what queues hold: sums over charges, taken along the tree."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from berth.core.copies import copied
from berth.core.queues.amounts import add, ordered, total
from berth.core.queues.tree import Tree
from berth.schemas.placement import Placement, Run, Share
from berth.schemas.queues.queue import CHIP, CPU, MEMORY, Amounts

K = TypeVar("K")


class PodRequest(NamedTuple):
    """What a pod requests.

    Attributes:
        cpu_milli: Thousandths of a CPU.
        memory_mib: Mebibytes.
        resource: Name of the resource of its chips; empty without chips.
        chips: Number of chips.
        quota: Hundredths of one chip that it shares with others, whatever number it requests; 0: whole chips.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    resource: str = ""
    chips: int = 0
    quota: int = 0


def charge_of(pods: Iterable[tuple[PodRequest, int]]) -> Amounts:
    """Charge of a gang: requests of its ranks that are held, with and without chips.

    Args:
        pods: Requests, and how many ranks have each.
    """
    charge: Amounts = {}
    for request, ranks in pods:
        chips = request.quota or request.chips * CHIP
        parts = {CPU: request.cpu_milli, MEMORY: request.memory_mib, request.resource: chips}
        add(charge, {dimension: amount for dimension, amount in parts.items() if dimension and amount}, ranks)
    return ordered(charge)


def charge_of_runs(runs: Iterable[Run], resource: str, share: Share | None) -> Amounts:
    """Charge of all pods of runs.

    Args:
        runs: The pods.
        resource: Name of the resource of their chips.
        share: Quota of each pod with chips; None if it has whole chips.
    """
    quota = share.aicore if share is not None else 0
    return charge_of(
        (PodRequest(run.cpu_milli, run.memory_mib, resource, run.chips, quota if run.chips else 0), run.pods)
        for run in runs
    )


def charge_of_placement(placement: Placement, gone: Collection[int] = ()) -> Amounts:
    """Charge of a placement.

    Args:
        placement: The placement.
        gone: Ranks that are not charged.
    """
    runs: Iterable[Run] = placement.runs
    if gone:
        runs, first = [], 0
        for run in placement.runs:
            left = sum(rank not in gone for rank in range(first, first + run.pods))
            runs.append(Run(left, run.chips, run.cpu_milli, run.memory_mib))
            first += run.pods
    return charge_of_runs(runs, placement.resource, placement.share)


def ranks_of_minimum(roles: Sequence[str], least: int, by_role: Mapping[str, int]) -> list[int]:
    """Ranks that a gang needs at least: of each role as many as it declares, then the first ones up to ``least``.

    Args:
        roles: Role of each rank.
        least: Number of ranks; 0, or more than there are, for all.
        by_role: Number of ranks of roles; empty where none is declared. They count if they are no more than ``least``
            together.
    """
    if not 0 < least < len(roles):
        return list(range(len(roles)))
    left = dict(by_role) if sum(by_role.values()) <= least else {}
    found = []
    for rank, role in enumerate(roles):
        if left.get(role, 0) > 0:
            left[role] -= 1
            found.append(rank)
    taken = set(found)
    others = [rank for rank in range(len(roles)) if rank not in taken]
    return sorted(found + others[: max(0, least - len(found))])


class Holding(msgspec.Struct, frozen=True):
    """A gang that holds something.

    Attributes:
        uid: Its uid.
        queue: Its queue, which its placement names.
        charge: What it counts for.
        minimum: What its minimum counts for; None: all of its charge.
        namespace: Its namespace.
        priority: Its priority.
        start: Order of its start among gangs of its priority.
        is_leaving: It was told to leave.
        is_preemptable: Others may displace it.
        is_critical: None may displace it.
    """

    uid: str
    queue: str
    charge: Amounts
    minimum: Amounts | None = None
    namespace: str = ""
    priority: int = 0
    start: int = 0
    is_leaving: bool = False
    is_preemptable: bool = True
    is_critical: bool = False


class Usage:
    """What each queue of a tree holds with those below it: exact sums, whatever their size.

    Attributes:
        tree: The queues.
    """

    def __init__(self, tree: Tree, gangs: Iterable[Holding] = ()) -> None:
        """What gangs hold.

        Args:
            tree: The queues.
            gangs: The gangs, in any order.
        """
        self.tree = tree
        self._held: dict[str, Amounts] = {}
        self._leaving: dict[str, Amounts] = {}
        self._by_namespace: dict[tuple[str, str], Amounts] = {}
        self._pods: dict[str, int] = {}
        self._own: set[int] | None = None
        """Sums (``id``) of a copy that are its own."""
        for gang in gangs:
            self.charge(gang.queue, gang.charge, namespace=gang.namespace, is_leaving=gang.is_leaving)

    def charge(
        self,
        queue: str,
        charge: Mapping[str, int],
        *,
        namespace: str = "",
        is_leaving: bool = False,
        times: int = 1,
        pods: int = 0,
    ) -> None:
        """Charge a queue and those above it.

        Args:
            queue: The queue; one that does not exist is the root.
            charge: The amounts.
            namespace: Namespace of the gang.
            is_leaving: Whether the gang was told to leave.
            times: 1, or -1 to take a charge back.
            pods: Its pods, for those who are told; nothing limits them.
        """
        table = self._leaving if is_leaving else self._held
        for step in self.tree.charged(queue):
            _count(self._sums(table, step), charge, times)
            self._pods[step] = self._pods.get(step, 0) + pods * times
            if step in self.tree.queues and self.tree.queues[step].per_namespace:
                _count(self._sums(self._by_namespace, (step, namespace)), charge, times)

    def fork(self) -> "Usage":
        """A copy that is changed alone."""
        tables = self._held.copy(), self._leaving.copy(), self._by_namespace.copy()
        pods = self._pods.copy()
        return copied(self, _held=tables[0], _leaving=tables[1], _by_namespace=tables[2], _pods=pods, _own=set())

    def _sums(self, table: dict[K, Amounts], key: K) -> Amounts:
        """Sums of a key, which may be changed."""
        if self._own is None:
            return table.setdefault(key, {})
        sums = table.get(key)
        if sums is None or id(sums) not in self._own:
            sums = table[key] = dict(sums or {})
            self._own.add(id(sums))
        return sums

    def held(self, queue: str, dimension: str) -> int:
        """What a queue holds of a dimension, without gangs that are leaving."""
        return self._held.get(queue, {}).get(dimension, 0)

    def leaving(self, queue: str, dimension: str) -> int:
        """What gangs of a queue that are leaving still hold of a dimension."""
        return self._leaving.get(queue, {}).get(dimension, 0)

    def allocated(self, queue: str) -> tuple[Amounts, int]:
        """All that gangs of a queue and of those below have, leaving ones included, and how many pods."""
        return total([self._held.get(queue, {}), self._leaving.get(queue, {})]), self._pods.get(queue, 0)

    def of_namespace(self, queue: str, namespace: str, dimension: str) -> int:
        """What gangs of a namespace hold in a queue that limits namespaces, leaving ones included."""
        return self._by_namespace.get((queue, namespace), {}).get(dimension, 0)


def _count(sums: Amounts, charge: Mapping[str, int], times: int) -> None:
    for dimension, amount in charge.items():
        sums[dimension] = sums.get(dimension, 0) + amount * times
