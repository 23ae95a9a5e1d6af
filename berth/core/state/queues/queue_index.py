"""Queues of a cell: what is declared, what it means on the nodes, and what the gangs of each queue hold.

The tree and the sums are made when somebody asks for them, so that a cell without queues pays nothing for them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.totals import totals_of
from berth.core.copies import copied
from berth.core.gangs import Gang
from berth.core.parity import differs
from berth.core.queues.amounts import ordered
from berth.core.queues.charges import Usage, charge_of_placement
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import Tree, is_tree, tree_of
from berth.core.queues.wake_keys import declared_key, keys_of_change, keys_of_less
from berth.core.state.holdings.held_places import Held
from berth.core.state.ledger import Folded, LedgerFold
from berth.schemas.envelope import DecodeError
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, MEMORY, ROOT, Amounts

_Key = tuple[str, int]
"""(uid, attempt); of held places with the attempt below zero."""


class _Charged(NamedTuple):
    """What an attempt, or places that are held, counts for."""

    queue: str
    charge: Amounts
    namespace: str
    is_leaving: bool
    pods: int
    leaving: Amounts = {}
    """Of ranks that it gives up for others, and still holds; not part of ``charge``."""


class QueueIndex:
    """Queues of a cell at its facts and records.

    Args:
        fold: The folded ledger: its holdings and held places are charged.
        table: The nodes, which are divided.

    Attributes:
        declared: What is declared, by name of the queue.
        version: It grows with each change of what is declared, or held.
    """

    def __init__(self, fold: LedgerFold, table: NodeTable) -> None:
        self.declared: dict[str, QueueSeen] = {}
        self.version = 0
        self._fold = fold
        self._table = table
        self._tree: tuple[Settings, Tree | None] | None = None
        self._usage: Usage | None = None
        self._charged: dict[_Key, _Charged] = {}
        self._shares: Shares | None = None

    def fork(self, fold: LedgerFold, table: NodeTable) -> "QueueIndex":
        """A copy for copies of the fold and of the nodes, which is changed alone."""
        return copied(self, _fold=fold, _table=table, declared=self.declared.copy(), _usage=None, _charged={})

    def apply(self, fact: QueueSeen) -> dict[str, None]:
        """Take over what is declared of a queue; returns the keys of gangs that this may help.

        Raises:
            DecodeError: The queue has no name.
        """
        name = fact.queue.name
        if not name:
            raise DecodeError("queue.name: empty, expected the name of a queue", kind=fact.KIND)
        before = self.declared.pop(name, None)
        if not fact.gone:
            self.declared[name] = fact
        old, new = before.queue if before is not None else None, None if fact.gone else fact.queue
        if old == new:
            return {}
        self.version += 1
        self._tree = self._usage = self._shares = None
        return keys_of_change(old, new)

    def tree(self) -> Tree | None:
        """The tree; None where queues do nothing: by the settings, or because no amount is declared anywhere."""
        settings = self._fold.settings
        if self._tree is None or self._tree[0] is not settings:
            queues = [fact.queue for fact in self.declared.values()]
            in_force = settings.queues > 0 and is_tree(queues)
            tree = tree_of(queues, most=settings.queues_max, differs=differs(settings)) if in_force else None
            self._tree = (settings, tree)
            self._usage = self._shares = None
        return self._tree[1]

    def shares(self) -> Shares | None:
        """Limits and entitlements; None without a tree."""
        tree = self.tree()
        if tree is None:
            return None
        capacity = self.capacity()
        if self._shares is None or self._shares.capacity != capacity:
            self._shares = shares_of(tree, capacity)
        return self._shares

    def capacity(self) -> Amounts:
        """What the nodes have that are ready."""
        totals = totals_of(self._table)
        chips = {resource: count * CHIP for resource, count in totals.chips.items()}
        return ordered({CPU: totals.cpu_milli, MEMORY: totals.memory_mib} | chips)

    def usage(self, tree: Tree) -> Usage:
        """What each queue holds; callers do not change it.

        Args:
            tree: The tree of now.
        """
        if self._usage is None or self._usage.tree is not tree:
            self._usage = Usage(tree)
            self._charged = {}
            self._recount([*self._fold.holdings, *((uid, -1) for uid in self._fold.held)])
        return self._usage

    def continues(self, gang: Gang) -> bool:
        """Whether places are held for a gang in the queue that it names: it continues a job, and starts none."""
        held = self._fold.held.get(gang.uid)
        return held is not None and held.queue in {"", gang.queue} and bool(_charge_of_held(held))

    def divided(self) -> Amounts | None:
        """What the nodes have, where limits rest on that; None elsewhere."""
        tree = self.tree()
        if tree is None or not tree.is_shared:
            return None
        return self.capacity()

    def keys_of_nodes(self, before: Amounts | None) -> dict[str, None]:
        """Keys of gangs that wait for their queues, if the nodes have more of something than before.

        Args:
            before: What :meth:`divided` returned before.
        """
        now = self.divided() if before is not None else None
        if before is None or now is None or all(amount <= before.get(name, 0) for name, amount in now.items()):
            return {}
        return {declared_key(ROOT): None}

    def charge_held(self, usage: Usage, uid: str, *, times: int = 1) -> None:
        """Charge what is held for a gang that starts anew, if anything is, to the queue from which it comes.

        Args:
            usage: What queues hold.
            uid: The gang.
            times: 1, or -1 to take it back.
        """
        held = self._charge((uid, -1))
        if held is not None:
            _count(usage, held, times=times)

    def end(self, usage: Usage, key: tuple[str, int]) -> None:
        """Take back what an attempt is charged, as if it had ended.

        Args:
            usage: What queues hold.
            key: Of the attempt.
        """
        charged = self._charge(key)
        if charged is not None:
            _count(usage, charged, times=-1)

    def prepare(self) -> None:
        """Make the sums before a record is folded: what queues hold less after it is told by them."""
        tree = self.tree()
        if tree is not None:
            self.usage(tree)

    def follow(self, folded: Folded) -> dict[str, None]:
        """Bring the sums in line with a record that was folded; returns keys of gangs for which there is more room."""
        changed = [*folded.taken, *folded.given_back, *(one for one, _ in folded.freed), *folded.moved, *folded.ending]
        keys = [*(one.key for one in changed), *((held.uid, -1) for held in [*folded.held, *folded.unheld])]
        self.version += bool(keys)
        return self._recount(keys)

    def recount(self, key: tuple[str, int]) -> None:
        """Bring the sums in line with what an attempt holds."""
        self.version += 1
        self._recount([key])

    def _recount(self, keys: Iterable[_Key]) -> dict[str, None]:
        usage, less = self._usage, dict[str, None]()
        if usage is None:
            return less
        for key in keys:
            before, now = self._charged.pop(key, None), self._charge(key)
            if before is not None:
                _count(usage, before, times=-1)
                kept = now.charge if now is not None and now.queue == before.queue else {}
                less.update(dict.fromkeys(keys_of_less(usage.tree, before.queue, before.charge, kept)))
            if now is not None:
                self._charged[key] = now
                _count(usage, now)
        return less

    def _charge(self, key: _Key) -> _Charged | None:
        if key[1] < 0:
            held = self._fold.held.get(key[0])
            if held is None:
                return None
            charge = _charge_of_held(held)
            return _Charged(held.queue or DEFAULT, charge, held.namespace, is_leaving=False, pods=len(held.ranks))
        holding = self._fold.holdings.get(key)
        if holding is None or not holding.charged_queue:  # no PodGroup says whose pods these are
            return None
        gone = set(holding.gone).difference(holding.unplaced)  # others are placed anew, by the same attempt
        leaving, pods = charge_of_placement(holding.placement, gone), holding.placement.pods() - len(gone)
        giving_up = holding.giving_up() if holding.moves else []
        charge = charge_of_placement(holding.placement, gone.union(giving_up)) if giving_up else leaving
        part = {name: amount - charge.get(name, 0) for name, amount in leaving.items()} if giving_up else {}
        return _Charged(holding.charged_queue, charge, holding.namespace, bool(holding.ending), pods, part)


def _count(usage: Usage, one: _Charged, *, times: int = 1) -> None:
    leaving, pods = one.is_leaving, one.pods
    usage.charge(one.queue, one.charge, namespace=one.namespace, is_leaving=leaving, times=times, pods=pods)
    if one.leaving:
        usage.charge(one.queue, one.leaving, namespace=one.namespace, is_leaving=True, times=times, pods=0)


def _charge_of_held(held: Held) -> Amounts:
    return charge_of_placement(held.placement, _others(held.placement, held.ranks))


def _others(placement: Placement, ranks: Iterable[int]) -> set[int]:
    return set(range(placement.pods())).difference(ranks)
