"""State of a cell: the folded facts and the folded ledger, and the columns that follow from both.

The columns do not depend on the order in which facts and records were applied to one another, only on how far each
went: all readers have the same columns at the same sequences. Longer than 400 lines because each kind of fact has its
step here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import NO_CHANGES, Changes, ChangesBuilder, JobKey
from berth.core.cluster.drains import check_drain
from berth.core.cluster.node_facts import check_health, check_nodes
from berth.core.state.constraint_state import ConstraintState
from berth.core.state.fact_checks import check_group, check_pods, check_subject
from berth.core.state.fault_inputs import FaultInputs
from berth.core.state.gang_followup import forget_idle, to_examine
from berth.core.state.job_facts import JobFacts
from berth.core.state.job_nodes import JobNodes
from berth.core.state.kept_facts import Effect, KeptFacts
from berth.core.state.ledger import FOLD_VERSION, Folded, Holding, LedgerFold, PodShare, dump_of
from berth.core.state.occupancy import Occupancy
from berth.core.state.pod_facts import PodFacts
from berth.core.state.queues.queue_index import QueueIndex
from berth.core.state.queues.waiting_groups import WaitingGroups
from berth.core.state.waiting_dump import Loaded, WaitingDump
from berth.core.topologies.planning import Index
from berth.core.topologies.registry import TOPOLOGIES
from berth.schemas.chain import Link, state_digest
from berth.schemas.envelope import DecodeError, Envelope, body_of, encode, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Round
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.status import SnapshotBody
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

__all__ = ["AppliedFact", "JobKey", "State"]


class AppliedFact(NamedTuple):
    """What a fact did."""

    changes: Changes = NO_CHANGES
    error: str = ""
    """Why the message can never be applied; nothing of it was then. Empty otherwise."""


class State:
    """Facts and ledger of a cell at (``facts_seq``, ``fold.head``).

    Args:
        owns: Which domains' nodes to keep, and nothing of jobs: a shard. All of everything when None.
        keeps: Whether to keep the latest message of each subject, for snapshots.
    """

    def __init__(self, *, owns: Callable[[str], bool] | None = None, keeps: bool = False) -> None:
        self.fold = LedgerFold()
        self._pod_facts = PodFacts()
        self.pods, self.outcomes = self._pod_facts.pods, self._pod_facts.outcomes
        self.foreign, self.claimed = self._pod_facts.foreign, self._pod_facts.claimed
        self.short = self._pod_facts.short
        self._occupancy = Occupancy(self.fold, self.pods)
        self.table = self._occupancy.table
        self.shares = self._occupancy.shares
        self._job_facts = JobFacts(self.fold)
        self.jobs = self._job_facts.jobs
        self.name_of = self._job_facts.name_of
        self.covered = self._job_facts.covered
        self.colocation = JobNodes(self.fold, self._occupancy.owned, self.jobs).colocation()
        self.constraints = ConstraintState(self.fold, self.jobs, self._occupancy)
        self.faults = FaultInputs(self.fold, self.table, self.jobs)
        self.queues = QueueIndex(self.fold, self.table)
        self.waiting_groups = WaitingGroups(self.fold)
        self.topologies: dict[str, TopologySeen] = {}
        self.facts_seq = 0
        self.nodes_seq = 0
        """Last fact that scores depend on; scorers need no later one."""
        self.time_ms = 0
        self.ledger_seen: LedgerSeen | None = None  # what bound pods say of the ledger; nothing is decided by it
        self.unknown: Counter[str] = Counter()
        self.applied = 0
        """Facts and records that changed something."""
        self._owns = owns
        self._latest, self._subject, self._sequence = False, "", 0  # of the fact that is being applied
        self._kept = KeptFacts(keeps=keeps)
        self._apply: dict[str, Callable[[Envelope, ChangesBuilder], Effect]] = {
            NodesSeen.KIND: self._nodes,
            HealthSeen.KIND: self._health,
            DrainSeen.KIND: self._drain,
            TopologySeen.KIND: self._topology,
            PodsSeen.KIND: self._pods,
            JobSeen.KIND: self._job,
            OutcomeSeen.KIND: self._outcome,
            TimerSeen.KIND: self._timer,
            LedgerSeen.KIND: self._ledger,
            GroupSeen.KIND: self._group,
            ReplacementsSeen.KIND: self._steering,
            ApprovalSeen.KIND: self._steering,
            QueueSeen.KIND: self._queue,
            **dict.fromkeys(_CONSTRAINT_KINDS, self._constraint),
        }

    @property
    def intake_seq(self) -> int:
        """Highest INTAKE sequence that has a verdict."""
        return self._job_facts.intake_seq

    @property
    def indexes(self) -> Mapping[str, Index]:
        """What topologies keep of the nodes, by name of the index."""
        return self._occupancy.indexes

    @property
    def counting(self) -> Mapping[str, Index]:
        """Those of them that count jobs."""
        return self._occupancy.counting

    @property
    def follows_pods(self) -> bool:
        """Whether an index counts pods of a job by their progress."""
        return self._occupancy.follows_pods

    def apply_fact(self, subject: str, sequence: int, data: bytes, *, latest: bool = False) -> AppliedFact:
        """Fold a fact.

        Args:
            subject: Subject on which it was stored; a fact on the subject of something else is never applied.
            sequence: Its sequence, above ``facts_seq``.
            data: The message.
            latest: It comes from a snapshot or from LATEST, where messages between are missing.

        Returns:
            What it changed. The scheduler must be given the changes, where there is one.
        """
        self.facts_seq = max(self.facts_seq, sequence)
        try:
            envelope = open_envelope(data)
            self._subject = subject
            if self._owns is not None and envelope.kind not in _SCORED_KINDS:
                return _NOTHING  # a shard has no use for it
            step = self._apply.get(envelope.kind)
            if step is None and envelope.kind in _READ_BY_OTHERS:
                return _NOTHING  # which pods there are decides nothing
            if step is None:
                self.unknown[envelope.kind] += 1
                return _NOTHING
            self._latest = latest
            self._sequence = sequence
            found = ChangesBuilder()
            effect = step(envelope, found)
        except DecodeError as error:
            return AppliedFact(error=error.reason)
        if envelope.kind in _SCORED_KINDS:
            self.nodes_seq = max(self.nodes_seq, sequence)
        if envelope.kind != TimerSeen.KIND:
            self._kept.note(effect, subject, sequence, data)
        changes = self._made(found)
        return _NOTHING if changes is NO_CHANGES else AppliedFact(changes)

    def apply_record(self, sequence: int, data: bytes) -> Folded:
        """Fold a message of the ledger.

        Raises:
            HistoryError: Records are missing before it.
            VersionError: Only another release reads it.
            LedgerBrokenError: It breaks a rule of the ledger, or does not decode. Nothing of it was applied.
        """
        return self.apply_link(self.fold.link(sequence, data))

    def apply_link(self, link: Link, record: Round | None = None) -> Folded:
        """As :meth:`apply_record`, for the message of the last :meth:`LedgerFold.link`.

        Args:
            link: The message.
            record: What :meth:`LedgerFold.round_of` gave of it, if that was called.

        Raises:
            LedgerBrokenError: See :meth:`apply_record`.
        """
        if self._owns is None:
            self.queues.prepare()
        return self._follow(self.fold.apply_link(link, record))

    def _follow(self, folded: Folded) -> Folded:
        """Bring the columns in line with a record that was folded."""
        found = ChangesBuilder()
        if folded.epoch:
            found.add(self._occupancy.heed(self.fold.settings))
        if self._owns is not None:
            forget_idle(self.fold, folded.gangs)
            self.fold.admissions.clear()  # it knows no PodGroup
        found.add(self._occupancy.follow(folded))
        if self._owns is None:
            self.faults.follow(folded, found)
            found.woken.update(self.queues.follow(folded))
            self.waiting_groups.follow(folded)
            left = [*folded.given_back, *(one for one, _ in folded.freed), *folded.moved]
            for holding in [*left, *folded.taken]:
                found.add(self.constraints.recount(holding.key))
            found.gangs_to_examine.update(to_examine(folded.gangs, self.jobs, (self.pods, self.outcomes)))
            if left or folded.unheld:
                found.gangs_to_examine.update(self.short)
            self._kept.forget(self._pod_facts.forget_podless(self.jobs, self.fold))
        folded.changes = self._made(found)
        return folded

    def _made(self, found: ChangesBuilder) -> Changes:
        """Changes of one fact or record."""
        changes = found.build(applied=1)
        self.applied += changes.applied
        return changes

    def owned(self, key: tuple[str, int]) -> list[PodShare]:
        """What each rank of a held attempt owns."""
        return self._occupancy.owned(key)

    def held_by(self, key: tuple[str, int]) -> Sequence[PodShare]:
        """All that a held attempt owns: :meth:`owned`, and then the places that are reserved for its ranks."""
        return self._occupancy.held_by(key)

    def held(self, node: str) -> int:
        """Mask of a node's chips that have an owner."""
        row = self.table.row_of.get(node)
        return 0 if row is None else int(self.table.used[row]) | int(self.table.releasing[row])

    def pods_seen(self, holding: Holding) -> PodsSeen | None:
        """Pods of exactly this attempt, as the cluster shows them."""
        return self._occupancy.pods_seen(holding)

    def outcome_of(self, holding: Holding) -> OutcomeSeen | None:
        """The binder's outcome for exactly this attempt."""
        seen = self.outcomes.get((holding.namespace, holding.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == holding.key else None

    def dump(self, waiting: WaitingDump | None = None) -> bytes:
        """Snapshot of the facts kept and of the ledger's fold, in a total order.

        Args:
            waiting: Gangs that wait for a decision; None in a service that does not decide.
        """
        dump = self.fold.dump()
        dump.intake_seq, dump.nodes_seq = self.intake_seq, self.nodes_seq
        dump.waiting = waiting
        dump.lost = self.faults.lost.dump()
        facts, ledger = self._kept.dump(), msgspec.msgpack.encode(dump)
        body = SnapshotBody(
            ledger_seq=self.fold.head,
            facts_seq=self.facts_seq,
            facts=facts,
            ledger=ledger,
            digest=state_digest(facts, ledger),
            fold_version=FOLD_VERSION,
        )
        return encode(body)

    def load(self, body: SnapshotBody) -> Loaded:
        """Become what a snapshot holds; only for a state that has applied nothing yet.

        Raises:
            DecodeError: The folded ledger does not decode; then nothing was loaded.
            InvariantError: What it holds breaks a rule of the ledger.
        """
        dump = dump_of(body.ledger)
        found = ChangesBuilder()
        for fact in sorted(body.facts, key=lambda kept: kept.sequence):
            found.add(self.apply_fact(fact.subject, fact.sequence, fact.data, latest=True).changes)
        self.fold.load(dump)
        self._occupancy.heed(self.fold.settings)
        found.add(self._occupancy.count_anew())
        for key in sorted(self.fold.holdings):
            found.add(self._occupancy.take(self.fold.holdings[key]))
        for uid in sorted(self.fold.held):
            found.add(self._occupancy.hold(self.fold.held[uid]))
        self._job_facts.intake_seq = max(self.intake_seq, dump.intake_seq)
        self.facts_seq = body.facts_seq
        self.nodes_seq = dump.nodes_seq
        self.time_ms = dump.waiting.time_ms if dump.waiting is not None else 0
        if self._owns is None:
            self.faults.begin()
            self.faults.lost.load(dump.lost)
            self.waiting_groups.begin()
            found.add(self.constraints.begin())
            found.gangs_to_examine.update(dict.fromkeys(self.fold.gangs))
            found.gangs_to_examine.update(dict.fromkeys(self.foreign))
        else:
            forget_idle(self.fold, list(self.fold.gangs.values()))
            self.fold.admissions.clear()
        return Loaded(found.build(), dump.waiting)

    def forget_unnamed(self) -> None:
        """Drop gangs whose name belongs to another job or to none.

        For a start from LATEST, where the facts about it are missing.
        """
        self._job_facts.forget_unnamed(self.facts_seq)
        self.waiting_groups.forget_unnamed(self.facts_seq)

    def _nodes(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, NodesSeen)
        check_nodes(fact)
        check_subject(self._subject, "node", fact.domain)
        if self._owns is None or self._owns(fact.domain):
            before = self.faults.readiness(fact.domain) if self._owns is None else {}
            divided = self.queues.divided()
            found.add(self.table.apply_nodes(fact))
            found.woken.update(self.queues.keys_of_nodes(divided))
            self.shares.learn(self.table.rows_of_domain(fact.domain))
            if self._owns is None:
                self.faults.note_nodes(fact, before, found)
        return "folded" if fact.names else "gone"

    def _health(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, HealthSeen)
        check_health(fact)
        check_subject(self._subject, "health", fact.domain)
        if self._owns is None or self._owns(fact.domain):
            divided = self.queues.divided()
            found.add(self.table.apply_health(fact))
            found.woken.update(self.queues.keys_of_nodes(divided))
        if self._owns is None:
            self.faults.note_health(fact, found)
        return "folded"

    def _drain(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, DrainSeen)
        check_drain(fact)
        check_subject(self._subject, "drain", fact.kind, fact.name)
        before = dict(self.table.drained_ms)
        found.add(self.table.apply_drain(fact))
        self.faults.note_drained(before, found)
        return "gone" if fact.gone else "folded"

    def _topology(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, TopologySeen)
        check_subject(self._subject, "topology", fact.kind)
        for topology in TOPOLOGIES:
            topology.check_fact(fact)
        self.topologies[fact.kind] = fact
        found.add(self._occupancy.learn(fact))
        return "folded"

    def _pods(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, PodsSeen)
        check_pods(fact)
        check_subject(self._subject, "pod", fact.namespace, fact.gang)
        found.jobs_changed.update(self._pod_facts.note_pods(fact, self._subject, self._sequence))
        self._examine_again((fact.namespace, fact.gang), found)
        found.pods_changed[fact.namespace, fact.gang] = found.gangs_to_examine[fact.uid] = None
        found.add(self._occupancy.mark((fact.uid, fact.attempt), fact))
        found.add(self.constraints.note_pods((fact.namespace, fact.gang)))
        if self._occupancy.follows_pods:
            found.add(self._occupancy.note_job((fact.uid, fact.attempt)))
        return "folded"

    def _job(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, JobSeen)
        check_subject(self._subject, "job", fact.namespace, fact.name)
        key = (fact.namespace, fact.name)
        effect = self._job_facts.note(fact, latest=self._latest, facts_seq=self.facts_seq, found=found)
        if effect == "gone":
            self._kept.forget((*self._pod_facts.give_up(key, self.fold), *self.faults.forget(key)))
        if effect != "void":
            self._examine_again(key, found)
            found.add(self.constraints.note_job(key))
        return effect

    def _outcome(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, OutcomeSeen)
        check_subject(self._subject, "outcome", fact.namespace, fact.name)
        self._pod_facts.note_outcome(fact, self._subject)
        self._examine_again((fact.namespace, fact.name), found)
        found.pods_changed[fact.namespace, fact.name] = None
        found.gangs_to_examine[fact.uid] = None
        return "folded"

    def _examine_again(self, name: JobKey, found: ChangesBuilder) -> None:
        """Examine all attempts of a name again: its facts changed, and a snapshot holds only the latest."""
        if (seen := self.pods.get(name)) is not None:
            found.gangs_to_examine[seen.uid] = None
        for key in self._occupancy.attempts_of(name):
            found.gangs_to_examine[key[0]] = None
            if self.pods_seen(self.fold.holdings[key]) is None:
                found.add(self._occupancy.unmark(key))
                if self._occupancy.follows_pods:
                    found.add(self._occupancy.note_job(key))

    def _constraint(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        return "gone" if self.constraints.apply(envelope, self._subject, found) else "folded"

    def _steering(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        return self.faults.apply(envelope, self._subject, found)

    def _group(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, GroupSeen)
        check_subject(self._subject, "group", fact.namespace, fact.name)
        check_group(fact)
        self.faults.note_group(fact, found)
        self.waiting_groups.apply(fact, self._sequence)
        return "gone" if fact.gone else "folded"

    def _queue(self, envelope: Envelope, found: ChangesBuilder) -> Effect:
        fact = body_of(envelope, QueueSeen)
        check_subject(self._subject, "queue", fact.queue.name)
        found.woken.update(self.queues.apply(fact))
        return "gone" if fact.gone else "folded"

    def _timer(self, envelope: Envelope, _: ChangesBuilder) -> Effect:
        self.time_ms = max(self.time_ms, body_of(envelope, TimerSeen).at_ms)
        return "folded"

    def _ledger(self, envelope: Envelope, _: ChangesBuilder) -> Effect:
        self.ledger_seen = body_of(envelope, LedgerSeen)
        return "folded"


_NOTHING: Final = AppliedFact()
_CONSTRAINT_KINDS: Final = tuple(
    fact.KIND for fact in (UsageSeen, NamespaceSeen, ClaimSeen, VolumeSeen, StorageSeen, UnboundSeen)
)
_READ_BY_OTHERS: Final = frozenset({MembersSeen.KIND})
_SCORED_KINDS: Final = frozenset({NodesSeen.KIND, HealthSeen.KIND, TopologySeen.KIND, DrainSeen.KIND})
"""Facts on which scores depend. Pods are none: they only move chips from used to releasing, and neither is free."""
