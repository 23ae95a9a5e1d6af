"""Occupancy: what each rank of a placed attempt owns in node columns, in shares of chips and in topologies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from berth.core.changes import NO_CHANGES, Changes, ChangesBuilder, JobKey
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.state.held_jobs import held_job
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.pod_phases import rows_of
from berth.core.state.ledger import Folded, Holding, LedgerFold, PodShare, owned_by
from berth.core.topologies.planning import Index
from berth.core.topologies.registry import indexes_of
from berth.schemas.facts import PodPhase, PodsSeen, TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.placement import Share

AttemptKey = tuple[str, int]
"""(uid, attempt)"""
_LEAF_OPENED = Changes(leaf_opened=True)


class Occupancy:
    """Owners of chips, cpu and memory.

    Each method that changes the columns returns the changes.

    Args:
        fold: The folded ledger; its holdings are what is occupied.
        pods: Pods of each job, as facts show them.
    """

    def __init__(self, fold: LedgerFold, pods: Mapping[JobKey, PodsSeen]) -> None:
        self.table = NodeTable()
        self.shares = SoftShareTable(self.table)
        self.indexes = indexes_of(self.table)
        """What topologies keep of the nodes, by name of the index."""
        self.counting: Mapping[str, Index] = {}
        """Those of them that count jobs."""
        self.follows_pods = False
        """Whether an index counts pods of a job by their progress."""
        self._fold = fold
        self._facts = pods
        self._owned: dict[AttemptKey, list[PodShare]] = {}
        self._reserved: dict[AttemptKey, dict[int, PodShare]] = {}
        """Places of ranks that still leave their old ones; attempts without any are not in it."""
        self._attempts_of: dict[JobKey, dict[AttemptKey, None]] = {}
        """Replaced when it changes: copies have the same values."""
        self._releasing: dict[AttemptKey, dict[int, bool]] = {}

    def fork(self, fold: LedgerFold, table: NodeTable) -> "Occupancy":
        """A copy for copies of the fold and of the nodes, which is changed alone."""
        indexes = {name: index.fork(table) for name, index in self.indexes.items()}
        return copied(
            self,
            _fold=fold,
            table=table,
            shares=self.shares.fork(table),
            indexes=indexes,
            counting={name: indexes[name] for name in self.counting},
            _owned=self._owned.copy(),
            _reserved=self._reserved.copy(),
            _releasing=self._releasing.copy(),
            _attempts_of=self._attempts_of.copy(),
        )

    def owned(self, key: AttemptKey) -> list[PodShare]:
        """What each rank of a held attempt owns."""
        return self._owned.get(key, [])

    def reserved(self, key: AttemptKey) -> Mapping[int, PodShare]:
        """Places that are reserved for ranks of a held attempt, by rank."""
        return self._reserved.get(key, {})

    def held_by(self, key: AttemptKey) -> Sequence[PodShare]:
        """All that an attempt owns: what its ranks own, in rank order, and then the places reserved for them."""
        owned, reserved = self.owned(key), self._reserved.get(key)
        return [*owned, *reserved.values()] if reserved else owned

    def attempts_of(self, name: JobKey) -> Iterable[AttemptKey]:
        """Held attempts under a name."""
        return self._attempts_of.get(name, ())

    def pods_seen(self, holding: Holding) -> PodsSeen | None:
        """Pods of exactly this attempt, as the cluster shows them."""
        seen = self._facts.get((holding.namespace, holding.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == holding.key else None

    def follow(self, folded: Folded) -> Changes:
        """Bring the columns in line with a record that was folded."""
        found = ChangesBuilder()
        for holding in folded.given_back:
            found.add(self.give_back(holding))
        for held in folded.unheld:
            found.add(self.unhold(held))
        moved = {holding.key: holding for holding in folded.moved}
        for holding, ranks in folded.freed:
            if holding.key not in moved:
                found.add(self.free(holding, ranks))
        gets = [(holding, self._leave(holding, found)) for holding in moved.values()]
        for held in folded.held:  # of a gang that ends, what was reserved for its ranks may be among it
            found.add(self.hold(held))
        for holding, pods in gets:  # ranks may change places with one another
            found.add(self._arrive(holding, pods))
        for holding in folded.taken:  # last: a repeated adoption is given back by the same record
            found.add(self.take(holding))
        return found.build()

    def take(self, holding: Holding) -> Changes:
        """Give an attempt what its placement contains."""
        found = ChangesBuilder()
        self.remember(holding)
        for pod in self.held_by(holding.key):
            self._hold(pod, holding.placement.share, found)
        found.add(self.note_job(holding.key))
        seen = self.pods_seen(holding)
        if seen is not None:
            found.add(self.mark(holding.key, seen))
        return found.build()

    def give_back(self, holding: Holding) -> Changes:
        """Take back all that an attempt owns."""
        found = ChangesBuilder()
        for pod in self.held_by(holding.key):
            self._let_go(pod, holding.placement.share, found)
        self.forget(holding)
        for index in self.counting.values():
            found.leaf_opened |= index.set(holding.key, None)
        return found.build()

    def remember(self, holding: Holding) -> None:
        """Note what an attempt owns, without the columns."""
        owned = owned_by(holding) if holding.moves else list(self._fold.pods_of(holding))
        self._note(holding, owned, holding.reserved())
        name = (holding.namespace, holding.name)
        self._attempts_of[name] = {**self._attempts_of.get(name, {}), holding.key: None}

    def forget(self, holding: Holding) -> None:
        """Forget what an attempt owns, without the columns."""
        del self._owned[holding.key]
        self._reserved.pop(holding.key, None)
        self._releasing.pop(holding.key, None)
        attempts = self._attempts_of.pop((holding.namespace, holding.name))
        if len(attempts) > 1:
            others = {key: None for key in attempts if key != holding.key}
            self._attempts_of[holding.namespace, holding.name] = others

    def hold(self, held: Held) -> Changes:
        """Keep the places of an attempt that was given back, or of a gang for which others leave."""
        found = ChangesBuilder()
        for pod in held.places().values():
            self._hold(pod, held.placement.share, found)
        for node, mask in held.awaited_chips():
            self.shares.close(found, self.table.row(node), mask)
        return found.build()

    def unhold(self, held: Held) -> Changes:
        """Take back places that were held."""
        found = ChangesBuilder()
        for pod in held.places().values():
            self._let_go(pod, held.placement.share, found)
        for node, mask in held.awaited_chips():
            self.shares.open(found, self.table.row(node), mask)
        return found.build()

    def free(self, holding: Holding, ranks: Iterable[int]) -> Changes:
        """Take back what some ranks of an attempt own."""
        found = ChangesBuilder()
        pods = self._owned[holding.key]
        releasing = self._releasing.get(holding.key, {})
        for rank in ranks:
            self._let_go(pods[rank], holding.placement.share, found)
            pods[rank] = PodShare(pods[rank].node, 0, (), 0, 0, pods=0)
            releasing.pop(rank, None)
        if not releasing:
            self._releasing.pop(holding.key, None)
        found.add(self.note_job(holding.key))
        return found.build()

    def _leave(self, holding: Holding, found: ChangesBuilder) -> list[PodShare] | None:
        """Take back what an attempt has given up: after steps of its recovery, releases of ranks, or corrections.

        A reserved place that a rank takes does not change.

        Returns:
            What it gets by the same record; None if that ended it.
        """
        before, reserved_before = self._owned.get(holding.key), self._reserved.get(holding.key, {})
        if before is None:
            return None
        now, reserved = owned_by(holding), holding.reserved()
        releasing = self._releasing.get(holding.key, {})
        gets: list[PodShare] = []
        for rank, (was, pod) in enumerate(zip(before, now, strict=True)):
            if was == pod and rank not in reserved_before and rank not in reserved:
                continue
            old = Counter([was, reserved_before[rank]] if rank in reserved_before else [was])
            new = Counter([pod, reserved[rank]] if rank in reserved else [pod])
            for one in (old - new).elements():
                self._let_go(one, holding.placement.share, found)
            gets += (new - old).elements()
            if was != pod:
                releasing.pop(rank, None)
        if not releasing:
            self._releasing.pop(holding.key, None)
        self._note(holding, now, reserved)
        return gets

    def _arrive(self, holding: Holding, gets: list[PodShare] | None) -> Changes:
        """Give an attempt what :meth:`_leave` said that it gets."""
        if gets is None:
            return NO_CHANGES
        found = ChangesBuilder()
        for one in gets:
            self._hold(one, holding.placement.share, found)
        found.add(self.note_job(holding.key))
        seen = self.pods_seen(holding)
        if seen is not None:
            found.add(self.mark(holding.key, seen))
        return found.build()

    def _note(self, holding: Holding, owned: list[PodShare], reserved: dict[int, PodShare]) -> None:
        self._owned[holding.key] = owned
        self._reserved.pop(holding.key, None)
        if reserved:
            self._reserved[holding.key] = reserved

    def _hold(self, pod: PodShare, share: Share | None, found: ChangesBuilder) -> None:
        row, mask = self.table.row(pod.node), pod.mask
        if share is not None and pod.chips:
            self.shares.hold(found, row, pod.chips[0], share)
            mask = 0
        self.table.hold(found, row, mask, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib, pods=pod.pods)

    def _let_go(self, pod: PodShare, share: Share | None, found: ChangesBuilder) -> None:
        row, mask = self.table.row(pod.node), pod.mask
        if share is not None and pod.chips:
            self.shares.let_go(found, row, pod.chips[0], share)
            mask = 0
        self.table.let_go(found, row, mask, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib, pods=pod.pods)

    def mark(self, key: AttemptKey, seen: PodsSeen) -> Changes:
        """Mark the chips of terminating pods of an attempt as releasing."""
        if PodPhase.TERMINATING not in seen.phase and key not in self._releasing:
            return NO_CHANGES
        holding = self._fold.holdings.get(key)
        pods = self._owned.get(key)
        if pods is None or holding is None or holding.placement.share is not None:
            return NO_CHANGES
        before = self._releasing.get(key, {})
        terminating = {
            rank: True
            for rank, phase in rows_of(holding, seen)
            if phase == PodPhase.TERMINATING and rank < len(pods) and pods[rank].mask
        }
        found = ChangesBuilder()
        for rank in sorted(before.keys() ^ terminating.keys()):
            pod = pods[rank]
            row = self.table.row(pod.node)
            self.table.mark_releasing(found, row, pod.mask, releasing=rank in terminating)
        if terminating:
            self._releasing[key] = terminating
        else:
            self._releasing.pop(key, None)
        return found.build()

    def unmark(self, key: AttemptKey) -> Changes:
        """Count chips as used again: nothing is known of the pods of an attempt any more."""
        found = ChangesBuilder()
        pods = self._owned.get(key, [])
        for rank in sorted(self._releasing.pop(key, {})):
            row = self.table.row(pods[rank].node)
            self.table.mark_releasing(found, row, pods[rank].mask, releasing=False)
        return found.build()

    def learn(self, fact: TopologySeen) -> Changes:
        """Take a valid fact about the groups of a topology."""
        news = [index.learn(fact) for index in self.indexes.values()]
        return self.count_anew() if any(news) else NO_CHANGES

    def heed(self, settings: Settings) -> Changes:
        """Count jobs as the settings of an epoch have it."""
        news = [index.heed(settings) for index in self.indexes.values()]
        return self.count_anew() if any(news) else NO_CHANGES

    def count_anew(self) -> Changes:
        """Count all jobs again: groups of a topology, or the rules of counting, changed."""
        self.counting = {name: index for name, index in self.indexes.items() if index.counts_jobs}
        self.follows_pods = any(index.follows_pods for index in self.indexes.values())
        found = ChangesBuilder()
        for key in sorted(self._owned):
            found.add(self.note_job(key))
        found.leaf_opened = True
        return found.build()

    def note_job(self, key: AttemptKey) -> Changes:
        """Note where an attempt is, for the indexes that count jobs."""
        if not self.counting:
            return NO_CHANGES
        holding = self._fold.holdings.get(key)
        if holding is None or key not in self._owned:
            return NO_CHANGES
        has_opened = False
        seen = self.pods_seen(holding) if self.follows_pods else None
        job = held_job(holding, self._owned[key], self.reserved(key), seen)
        for index in self.counting.values():
            has_opened |= index.set(key, index.held(job))
        if self.follows_pods:  # there, what pods do changes their groups, and no row
            return Changes(leaf_opened=has_opened, nodes_changed=True)
        return _LEAF_OPENED if has_opened else NO_CHANGES
